"""vertical.explaining, declared: importances and contributions, to each party those of its own columns."""

from __future__ import annotations

from functools import partial

from hedgerow.codec import from_json
from hedgerow.protocols.services.explain.job import IMPORTANCES, ExplainingJob
from hedgerow.protocols.services.explain.messages import (
    AnswersToExplain,
    BeginExplaining,
    ColumnsOfHandles,
    ContributionsOfColumns,
    HandleGains,
    ReadyToExplain,
)
from hedgerow.protocols.services.explain.results import Contributions, Importances
from hedgerow.protocols.services.explain.roles import feature_holder, label_holder
from hedgerow.protocols.services.explain.statement import statement
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.common.serving import warmup
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol, Rehearsal


def rehearsal(job: ExplainingJob) -> Rehearsal | None:
    """Importances need no kernel."""
    return None if job.what == IMPORTANCES else warmup(job)


SPEC = Protocol(
    ExplainingJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(
        *(ReadyToExplain, HandleGains, BeginExplaining),
        *(ColumnsOfHandles, AnswersToExplain, ContributionsOfColumns),
    ),
    statement=statement,
    warmup=rehearsal,
    result=partial(from_json, Importances | Contributions),
    part=part_from_dict,
)
