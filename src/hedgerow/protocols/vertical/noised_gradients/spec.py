"""vertical.noised_gradients, declared: XGBoost-LDP and FedXGBoost-LDP, with a guarantee that holds."""

from __future__ import annotations

from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.protocols.vertical.common.joint_forest import warmup
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.noised_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import label_holder
from hedgerow.protocols.vertical.noised_gradients.messages import (
    BestGains,
    NoisyGradients,
    NoisyLevel,
    Partition,
    StartWithoutNoise,
    WhichWay,
    Winners,
)
from hedgerow.protocols.vertical.noised_gradients.noise import ADJACENCY
from hedgerow.protocols.vertical.noised_gradients.statement import statement
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, PartyData, Planned, Protocol


def planned(job: NoisedGradientsJob, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    """Labels have Gaussian noise for the whole run, unless it is counted by messages; columns have none."""
    if party != job.label_holder:
        return Planned(NonPrivate(f"{job.NAME} does not protect columns"))
    if not job.has_noise or job.per == MESSAGE or job.on_bad_rows == "raise":
        return Planned(NonPrivate(f"{job.NAME} releases without noise"))
    epsilon, delta = job.budget
    return Planned(Gaussian(mu_for(epsilon, delta), 1.0, ADJACENCY), delta)


SPEC = Protocol(
    NoisedGradientsJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToTrain, GoAhead, StartWithoutNoise, NoisyGradients, NoisyLevel),
        *(BestGains, Winners, WhichWay, Partition),
    ),
    statement=statement,
    warmup=warmup,
    result=part_from_dict,
    maps_rows=lambda _options, has_labels: has_labels,
    planned=planned,
)
