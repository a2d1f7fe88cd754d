"""vertical.mp_fedxgb, declared: MP-FedXGB as published, gated and stamped."""

from __future__ import annotations

from hedgerow.protocols.published.mp_fedxgb.dealer import dealer
from hedgerow.protocols.published.mp_fedxgb.holder import holder
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import (
    Better,
    DenominatorShare,
    NumeratorShare,
    NumeratorSigns,
    PredictionShare,
    Steps,
    StepShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.published.mp_fedxgb.statement import statement
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.shares.playing import dealing, result, small
from hedgerow.protocols.shares.rows_messages import AllColumns, ColumnSizes, LevelDone, MaskedBins, SharingSeed
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol

SPEC = Protocol(
    MpFedXgbJob,
    roles={LABEL_HOLDER: holder, FEATURE_HOLDER: holder, DEALER: dealing(dealer)},
    messages=(
        *(ReadyToTrain, GoAhead, Seed, Dealt, MaskedWords),
        *(ColumnSizes, AllColumns, SharingSeed, MaskedBins, LevelDone),
        *(NumeratorShare, DenominatorShare, TestNumeratorShare, TestDenominatorShare),
        *(NumeratorSigns, Better, StepShare, Steps, PredictionShare),
    ),
    statement=statement,
    warmup=small,
    result=result,
)
