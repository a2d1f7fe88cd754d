"""vertical.scoring, declared: predictions by all parties of a vertical model together."""

from __future__ import annotations

from functools import partial

from hedgerow.codec import from_json
from hedgerow.protocols.services.score.job import ScoringJob
from hedgerow.protocols.services.score.messages import Answers, AnswersWanted, RandomisedAnswers, ReadyToScore
from hedgerow.protocols.services.score.roles import Answered, Scores, feature_holder, label_holder
from hedgerow.protocols.services.score.statement import statement
from hedgerow.protocols.vertical.common.parts import part_from_dict
from hedgerow.protocols.vertical.common.serving import warmup
from hedgerow.runtime.protocol import FEATURE_HOLDER, LABEL_HOLDER, Protocol

SPEC = Protocol(
    ScoringJob,
    roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder},
    messages=(ReadyToScore, AnswersWanted, Answers, RandomisedAnswers),
    statement=statement,
    warmup=warmup,
    result=partial(from_json, Scores | Answered),
    part=part_from_dict,
)
