"""vertical.masked_gradients as something to run: its parameters, roles and statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hedgerow.protocols.published.masked_gradients.feature_holder import feature_holder
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.label_holder import label_holder
from hedgerow.protocols.published.masked_gradients.statement import statement
from hedgerow.protocols.vertical.common.joint_protocol import JointProtocol
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.statement import Statement


class MaskedGradientsProtocol(JointProtocol):
    """MaskedXGBoost as published: not private, and stamped so."""

    name = MaskedGradientsJob.NAME
    JOB = MaskedGradientsJob
    options = frozenset(
        {
            "eps_ap", "delta_ap", "eps_pp", "delta_pp", "sigma1", "sigma2", "C", "n_vectors", "score", "reading",
            "accept_low_snr", "accept_known_leaks", "block_bytes",
        }
    )  # fmt: skip

    def hold_labels(self, me: Party, job: MaskedGradientsJob, data: PartyData | None) -> LabelHolderPart:
        """The label holder's role."""
        return label_holder(me, job, data)

    def hold_features(self, me: Party, job: MaskedGradientsJob, data: PartyData | None) -> OwnerPart:
        """A feature holder's role."""
        return feature_holder(me, job, data)

    def statement(self, job: MaskedGradientsJob, meta: Mapping[str, Any]) -> Statement:
        """What holds, and what does not."""
        return statement(job, meta)


PROTOCOL = MaskedGradientsProtocol()
