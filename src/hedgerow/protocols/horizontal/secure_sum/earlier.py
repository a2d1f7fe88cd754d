"""Going on from an earlier model, which all owners have: more trees, with new rows or with other owners.

    owner -> coordinator   TableDescription   with the digest of the model: all must have the same
    owner -> coordinator   EarlierModel       the model, from one owner, if the coordinator is none

Bins, levels, classes and base score are those of the earlier model. Each owner scores its own rows with its trees,
which stay as they are. Everything else is as without it: totals of the new rows, then trees.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from hedgerow.engine.binning import BinMapper, WideBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import Loss
from hedgerow.engine.table import Level
from hedgerow.errors import InvalidInput, InvalidParameter, ModelFileError
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import EarlierModel, Start, refuse


def document_of(model: Ensemble) -> str:
    """The model as JSON, without what it says about its training: that may differ from party to party."""
    return json.dumps({**model.to_dict(), "meta": {}}, sort_keys=True)


def digest_of(model: Ensemble) -> str:
    """Of all that decides what a model predicts."""
    return hashlib.sha256(document_of(model).encode()).hexdigest()


def read_earlier(sender: str, message: EarlierModel, digest: str) -> Ensemble:
    """The model in a message, which must be the one that all owners have described."""
    try:
        model = Ensemble.from_dict(json.loads(message.document))
    except (ValueError, RecursionError, ModelFileError) as problem:
        raise refuse(sender, message, f"with what is no model: {problem}") from None
    if digest_of(model) != digest:
        raise refuse(sender, message, "with another model than the one that it has described")
    return model


def check_columns(
    where: str, job: Job, model: Ensemble, names: Sequence[str], levels: Sequence[tuple[Level, ...] | None]
) -> None:
    """InvalidInput unless a table has the model's columns, and nothing asks for other bins than the model's."""
    known = [feature.name for feature in model.features]
    if list(names) != known:
        raise InvalidInput(f"{where}: the earlier model has the columns {known}, and the table {list(names)}")
    for feature, these in zip(model.features, levels, strict=True):
        if (feature.levels is None) != (these is None):
            raise InvalidInput(f"{where}: column {feature.name!r} has levels in the earlier model or here, not in both")
        if isinstance(feature, WideBins):
            raise InvalidInput(
                f"{where}: column {feature.name!r} of the earlier model has more edges than trees can be grown on; it "
                "was trained elsewhere"
            )
    if job.quantiles != "search":
        raise InvalidParameter(
            f"{job.NAME}: the bins are those of the earlier model; leave out quantiles, got {job.quantiles!r}"
        )


def check_goes_on(where: str, model: Ensemble, loss: Loss) -> None:
    """InvalidParameter unless trees of this loss can be added to a model."""
    if (model.loss, model.n_outputs) != (loss.name, loss.n_outputs):
        raise InvalidParameter(
            f"{where}: the earlier model is for the {model.loss} loss with {model.n_outputs} outputs, and this "
            f"training for the {loss.name} loss with {loss.n_outputs}; train a new one"
        )


def check_same_start(sender: str, start: Start, mapper: BinMapper, model: Ensemble) -> None:
    """Bins and base scores must be those of the earlier model."""
    mine, theirs = ([feature.to_dict() for feature in features] for features in (mapper.features, model.features))
    if mine != theirs or not np.array_equal(start.base_scores, model.base_scores):
        raise refuse(sender, start, "with other bins or base scores than those of the earlier model")
