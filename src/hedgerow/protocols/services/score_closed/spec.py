"""vertical.closed_scoring, declared: predictions by all parties together, of which nothing but the scores is opened."""

from __future__ import annotations

from functools import partial

from hedgerow.codec import from_json
from hedgerow.protocols.services.score_closed.job import ClosedScoringJob
from hedgerow.protocols.services.score_closed.messages import (
    BlockDone,
    QuestionsInTrees,
    ReadyToScore,
    ScoreShare,
    ScoresWanted,
)
from hedgerow.protocols.services.score_closed.roles import (
    ClosedScores,
    TookPart,
    dealer,
    feature_holder,
    label_holder,
)
from hedgerow.protocols.services.score_closed.statement import statement
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.common.serving import warmup
from hedgerow.runtime.protocol import DEALER, FEATURE_HOLDER, LABEL_HOLDER, Protocol

SPEC = Protocol(
    ClosedScoringJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder, DEALER: dealer},
    messages=(Seed, Dealt, MaskedWords, ReadyToScore, ScoresWanted, QuestionsInTrees, ScoreShare, BlockDone),
    statement=statement,
    warmup=partial(warmup, dealer="dealer"),
    result=partial(from_json, ClosedScores | TookPart),
    part=part_from_dict,
)
