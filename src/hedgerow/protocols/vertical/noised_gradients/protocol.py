"""vertical.noised_gradients as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import Gaussian, NonPrivate
from hedgerow.protocols.vertical.common.joint_protocol import JointProtocol
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
from hedgerow.protocols.vertical.noised_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import MESSAGE, NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.label_holder import label_holder
from hedgerow.protocols.vertical.noised_gradients.noise import ADJACENCY
from hedgerow.protocols.vertical.noised_gradients.statement import statement
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Planned
from hedgerow.statement import Statement


class NoisedGradients(JointProtocol):
    """XGBoost-LDP and FedXGBoost-LDP, with a guarantee that holds."""

    name = NoisedGradientsJob.NAME
    JOB = NoisedGradientsJob
    options = frozenset({"epsilon", "delta", "score", "per", "classes", "noise_aware", "on_bad_rows"})

    def hold_labels(self, me: Party, job: NoisedGradientsJob, data: PartyData | None) -> LabelHolderPart:
        """The label holder's role."""
        return label_holder(me, job, data)

    def hold_features(self, me: Party, job: NoisedGradientsJob, data: PartyData | None) -> OwnerPart:
        """A feature holder's role."""
        return feature_holder(me, job, data)

    def maps_rows(self, options: Mapping[str, Any], *, has_labels: bool) -> bool:
        """The label holder, whose labels are protected."""
        del options
        return has_labels

    def planned(self, job: NoisedGradientsJob, party: str, data: PartyData) -> Planned | None:
        """Labels have Gaussian noise for the whole run, unless it is counted by messages; columns have none."""
        if party != job.label_holder:
            return Planned(NonPrivate(f"{self.name} does not protect columns"))
        if not job.has_noise or job.per == MESSAGE or job.on_bad_rows == "raise":
            return super().planned(job, party, data)
        epsilon, delta = job.budget
        return Planned(Gaussian(mu_for(epsilon, delta), 1.0, ADJACENCY), delta)

    def statement(self, job: NoisedGradientsJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = NoisedGradients()
