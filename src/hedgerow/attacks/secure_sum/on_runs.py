"""Attacks on recorded runs of horizontal.secure_sum."""

from __future__ import annotations

import numpy as np

from hedgerow.attacks.intervals import share
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome
from hedgerow.attacks.secure_sum import singleton_cells as cells
from hedgerow.attacks.secure_sum.seen_sums import as_seen, summed_levels
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.protocols.horizontal.secure_sum.exchange import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import Start
from hedgerow.transport.transcripts import SENT


def singleton_cells(context: Context) -> list[Outcome]:
    """The coordinator looks for cells with one record in the sums over all owners."""
    job: Job = context.job
    owners = [owner for owner in job.owners if owner != job.coordinator]
    aim = Aim("singleton_cells", job.coordinator, f"rows of {', '.join(owners)}")
    if job.dp is not None:
        return [aim.says(NOT_RUN, "every sum has noise in it; the attack is on sums without")]
    ensemble = context.run.model.ensemble_
    if ensemble.loss != "logistic":
        return [aim.says(NOT_RUN, "the attack is on two classes")]
    transcript = context.transcript(job.coordinator)
    levels = [level for level in summed_levels(transcript) if level.is_complete]
    seen = as_seen(levels, lambda level: level.sums)
    n_rows = transcript.messages(Start, SENT)[0].n_rows
    public = cells.Public.of_job(ExchangedCells(ensemble.mapper).first, n_rows, job.boosting.gradient_bits)
    exposed = cells.find_single_records(seen, public)
    found = f"{len(exposed):,} cells with one record each: its bin and its label"
    truth = _truth(context, owners)
    if truth is None:
        return [aim.says(NOT_SCORED, found)]
    score = cells.score(exposed, seen, *truth)
    ones = float(truth[1].mean())
    return [
        aim.scored(  # no ceiling: the statement says that sums are not anonymous
            f"{found}; right about {score.records:,} of {score.n_records:,} records",
            "accuracy",
            share(score.right_cells, score.cells, CONFIDENCE),
            chance=max(ones, 1.0 - ones),
        )
    ]


def _truth(context: Context, owners: list[str]) -> tuple[Bytes, Floats] | None:
    """Codes [features, rows] and labels of all rows that are in the sums."""
    mapper = context.run.model.ensemble_.mapper
    codes, labels = [], []
    for owner in owners:
        table = context.table(owner, mapper.features)
        ones = None if table is None else context.ones(owner, table.n_rows)
        if table is None or ones is None:
            return None
        codes.append(mapper.transform(table))
        labels.append(ones)
    return np.concatenate(codes, axis=1), np.concatenate(labels)
