"""vertical.aligning, declared: private record linkage before a vertical training."""

from __future__ import annotations

from hedgerow.protocols.services.align.job import PARTY, AligningJob
from hedgerow.protocols.services.align.messages import (
    AtWork,
    BlindedIds,
    BlocksRead,
    CommonPlaces,
    FullyBlinded,
    IdsAgreed,
    IdsDescription,
    Verdict,
)
from hedgerow.protocols.services.align.result import AlignedRows
from hedgerow.protocols.services.align.roles import party
from hedgerow.protocols.services.align.statement import statement
from hedgerow.runtime.protocol import Protocol

SPEC = Protocol(
    AligningJob,
    roles={PARTY: party},
    messages=(
        *(IdsDescription, IdsAgreed, BlindedIds, AtWork),
        *(FullyBlinded, BlocksRead, Verdict, CommonPlaces),
    ),
    statement=statement,
    warmup=lambda _job: None,  # no kernel is compiled for this
    result=AlignedRows.from_dict,
)
