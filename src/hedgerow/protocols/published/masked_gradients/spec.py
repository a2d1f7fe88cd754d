"""vertical.masked_gradients, declared: MaskedXGBoost as published. Not private, and stamped so."""

from __future__ import annotations

from hedgerow.protocols.published.masked_gradients.feature_holder import feature_holder
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.label_holder import label_holder
from hedgerow.protocols.published.masked_gradients.messages import (
    BestScores,
    MaskedGradients,
    NextVectors,
    NoiseVectors,
    Partition,
    Scales,
    WhichWay,
    Winners,
)
from hedgerow.protocols.published.masked_gradients.statement import statement
from hedgerow.protocols.vertical.common.joint_forest import warmup
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol

SPEC = Protocol(
    MaskedGradientsJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, Scales, NoiseVectors, NextVectors, MaskedGradients),
        *(BestScores, Winners, WhichWay, Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
)
