"""vertical.secret_shared, declared: MP-FedXGB's setting, with nothing opened but the winner of each node."""

from __future__ import annotations

from functools import partial

from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.shares.playing import dealing, result, small
from hedgerow.protocols.vertical.common.messages import GoAhead, ReadyToTrain
from hedgerow.protocols.vertical.secret_shared.dealer import dealer
from hedgerow.protocols.vertical.secret_shared.feature_holder import feature_holder
from hedgerow.protocols.vertical.secret_shared.job import OF_THE_PAPER, SecretSharedJob, variant
from hedgerow.protocols.vertical.secret_shared.label_holder import label_holder
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelDone,
    LevelInput,
    MaskedColumns,
    Sizes,
    WhichWay,
    WinnerShare,
)
from hedgerow.protocols.vertical.secret_shared.statement import statement
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol

SPEC = Protocol(
    SecretSharedJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder, DEALER: dealing(dealer)},
    messages=(
        *(ReadyToTrain, GoAhead, Seed, Dealt, MaskedWords),
        *(ColumnShapes, Sizes, MaskedColumns, LevelInput, WinnerShare, WhichWay, LevelDone),
    ),
    statement=statement,
    warmup=partial(small, levels=True),
    result=result,
    variant=variant,
    of_variants=OF_THE_PAPER,
)
