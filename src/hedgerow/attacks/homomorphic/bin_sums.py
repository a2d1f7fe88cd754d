"""Values from exact sums of bins: what the label holder of vertical.homomorphic learns about others' columns.

It opens the sums (G, H) of gradients and hessians over every bin of every column in every node, it knows the rows of
every node, and it knows each row's own (g, h):

    densities   in the first tree all hessians are h, so H / h is the number of rows of each bin, and G says how many
                of them have which label
    rows        rows of a node with the same (g, h) are one kind. Which numbers of each kind add up to (G, H) of a bin
                is a knapsack with 62 bits of answer: in a small node there is one solution. Where it takes all rows of
                a kind, these rows are in the bin

Columns come in another order with every tree; a solution names a bin of a column of its tree. Bins have no edges: the
label holder learns their order, and for numbers that is the order of values. Keys are in no transcript, so for a
recorded run the sums are made again from tables; tests show that they are those that the label holder opened.

With dp=(epsilon, delta) they are made again with new noise of the same scale, also where the label holder has to
subtract and gets more of it. Numbers of rows are rounded, and of all ways to take rows the likeliest is claimed. Nodes
that are not summed (min_rows_per_sum) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.attacks.homomorphic.label_clusters import not_two_classes, seen_nodes
from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import share
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.histogram import are_summed
from hedgerow.engine.losses import Loss
from hedgerow.protocols.vertical.common.joint_forest import JointRows, packed_columns
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.noisy_sums import SumNoise
from hedgerow.protocols.vertical.noised_gradients.noise import plain_quantiser

MOST_WAYS = 1 << 16
"""Ways to take rows of a node, kind by kind, that are tried."""

NOBODY = -1


class Kinds(NamedTuple):
    """Rows of a node by their own gradients, and all sums that they can make."""

    of_row: Ints  # [rows of the node] its kind
    sizes: Ints  # [kinds]
    sums: Ints  # [ways] packed, ascending
    ways: Ints  # [ways] numbers of each kind, mixed radix


def kinds_of(packed: Ints) -> Kinds | None:
    """Of rows with these packed gradients; None if there are more ways than are tried."""
    values, of_row, sizes = np.unique(packed, return_inverse=True, return_counts=True)
    if np.log2(sizes + 1.0).sum() > np.log2(MOST_WAYS):
        return None
    sums = np.zeros(1, np.int64)
    for value, size in zip(values, sizes, strict=True):
        sums = np.add.outer(sums, value * np.arange(size + 1)).reshape(-1)
    order = np.argsort(sums, kind="stable")
    return Kinds(of_row.reshape(-1), sizes, sums[order], order)


def rows_of_bins(kinds: Kinds, sums: Ints) -> Ints:
    """[rows of the node] the bin that each row must be in, given the packed sums of a column's bins; else NOBODY."""
    found = np.full(len(kinds.of_row), NOBODY, np.int64)
    for code, total in enumerate(sums.tolist()):
        first, last = np.searchsorted(kinds.sums, [total, total + 1])
        if last - first == 1:
            taken = np.array(np.unravel_index(int(kinds.ways[first]), tuple(kinds.sizes + 1)))
            found[(taken == kinds.sizes)[kinds.of_row]] = code
    return found


def likeliest_rows(kinds: Kinds, sums: Ints, noise: Noise) -> Ints:
    """[rows of the node] the bin whose likeliest way, given noisy sums of bins, takes all rows of this kind."""
    found = np.full(len(kinds.of_row), NOBODY, np.int64)
    exact = np.column_stack([kinds.sums >> 32, kinds.sums & 0xFFFFFFFF])
    for code, total in enumerate(noise.added_to(sums)):
        nearest = int(np.argmin((((exact - total) / noise.sigmas) ** 2).sum(axis=1)))
        taken = np.array(np.unravel_index(int(kinds.ways[nearest]), tuple(kinds.sizes + 1)))
        found[(taken == kinds.sizes)[kinds.of_row]] = code
    return found


class Noise:
    """That of a run with dp, drawn again; without dp there is none, and sums are exact."""

    def __init__(self, job: HomomorphicJob, n_rows: int, n_columns: int) -> None:
        self._plan = SumNoise.plan(job, job.public_loss(), n_rows, n_columns)
        self._rng = np.random.default_rng(0)

    def __bool__(self) -> bool:
        return self._plan is not None

    @property
    def sigmas(self) -> tuple[float, float]:
        """Of gradients and of hessians."""
        return (0.0, 0.0) if self._plan is None else (self._plan.gradient_sigma, self._plan.hessian_sigma)

    def added_to(self, packed: Ints) -> Ints:
        """[sums, (gradient, hessian)], as the label holder opens them."""
        exact = np.column_stack([packed >> 32, packed & 0xFFFFFFFF])
        return exact if self._plan is None else exact + self._plan.drawn(len(packed), self._rng)


def bin_sums(packed: Ints, codes: Bytes, n_codes: int) -> Ints:
    """Packed sums [codes] of a column over some rows, as the label holder opens them."""
    sums = np.zeros(n_codes, np.int64)
    np.add.at(sums, codes, packed)
    return sums


# --- a recorded run --------------------------------------------------------------------------------------------------


def on_run(context: Context) -> list[Outcome]:
    """The label holder, against every feature holder: numbers of rows in bins, and rows of bins in small nodes."""
    job: HomomorphicJob = context.job
    return [outcome for party in job.feature_holders for outcome in _against(context, job, party)]


def _against(context: Context, job: HomomorphicJob, victim: str) -> list[Outcome]:
    counts = Aim("bin_sums", job.label_holder, f"numbers of rows in bins of {victim}")
    rows = Aim("bin_sums", job.label_holder, f"bins of rows of {victim}")
    why = not_two_classes(context)
    if context.run.model.meta.get("weighted"):
        why = "rows have weights, which are not in the record of the run"
    if why is not None:
        return [aim.says(NOT_RUN, why) for aim in (counts, rows)]
    transcript = context.run.transcript(job.label_holder)
    n_rows = n_rows_of(transcript)
    features = context.run.model.parts[victim].features
    n_codes = [feature.n_value_bins + 1 for feature in features]
    told = f"how many rows are in each of {sum(n_codes):,} bins, by label"
    gradients = gradients_of_trees(context, job, n_rows)
    table = context.table(victim, features, n_rows)
    if gradients is None or table is None:
        needed = "to score it, the labels and everybody's --table are needed"
        return [counts.says(NOT_SCORED, f"{told}; {needed}"), rows.says(NOT_SCORED, f"rows of small nodes; {needed}")]
    codes = context.run.model.parts[victim].codes(table)
    nodes = seen_nodes(transcript, job.feature_holders[0], n_rows)
    noise = Noise(job, n_rows, len(n_codes))
    return [
        counts.scored(told, "share", _densities(gradients[0], codes, n_codes, noise)),
        _placed(rows, nodes, gradients, codes, n_codes, job, noise),
    ]


def _densities(packed: Ints, codes: Bytes, n_codes: list[int], noise: Noise) -> Any:
    """The share of bins whose number of rows follows from the sums of the first root."""
    hessian, hits = int(packed[0]) & 0xFFFFFFFF, 0
    for column, n in zip(codes, n_codes, strict=True):
        counted = np.rint(noise.added_to(bin_sums(packed, column, n))[:, 1] / hessian)
        hits += int((counted == np.bincount(column, minlength=n)).sum())
    return share(hits, sum(n_codes), CONFIDENCE)


def _placed(
    aim: Aim,
    trees: list[list[Ints]],
    gradients: list[Ints],
    codes: Bytes,
    n_codes: list[int],
    job: HomomorphicJob,
    noise: Noise,
) -> Outcome:
    """The share of rows and columns whose bin followed in some small node, of all."""
    is_placed: Bools = np.zeros(codes.shape, np.bool_)
    n_claims = n_right = 0
    for levels, packed in zip(trees, gradients, strict=True):
        for level in levels[: job.boosting.max_depth]:  # nodes below the last level are not summed
            n_rows = np.bincount(level[level >= 0], minlength=1)
            n_rows = np.append(n_rows, [0] * (len(n_rows) % 2)) if len(n_rows) > 1 else n_rows  # the last may be empty
            for node in np.flatnonzero(are_summed(n_rows, job.boosting.min_rows_per_sum)).tolist():
                members = np.flatnonzero(level == node)
                kinds = kinds_of(packed[members])
                if kinds is None:
                    continue
                for column, n in enumerate(n_codes):
                    truth = codes[column, members]
                    sums = bin_sums(packed[members], truth, n)
                    told = likeliest_rows(kinds, sums, noise) if noise else rows_of_bins(kinds, sums)
                    claimed = told != NOBODY
                    n_claims += int(claimed.sum())
                    n_right += int((told == truth)[claimed].sum())
                    is_placed[column, members[told == truth]] = True
    found = f"{n_claims:,} times the bin of a row, {n_right:,} of them right; how many rows and columns that makes"
    return aim.scored(found, "share", share(int(is_placed.sum()), is_placed.size, CONFIDENCE))


def gradients_of_trees(context: Context, job: HomomorphicJob, n_rows: int) -> list[Ints] | None:
    """Per tree every row's packed gradient, as the label holder had it; None unless labels and all tables are there."""
    model: Any = context.run.model
    parts, holder = model.parts, job.label_holder
    labels = context.ones(holder, n_rows)
    tables = {party: context.table(party, parts[party].features, n_rows) for party in job.parties}
    if labels is None or any(table is None for table in tables.values()):
        return None
    codes = {party: parts[party].codes(table) for party, table in tables.items()}
    answers = {party: parts[party].answers(codes[party]) for party in job.feature_holders}
    return _gradients(parts[holder], codes[holder], answers, labels, job)


def _gradients(part: Any, own: Bytes, answers: Mapping[str, Bytes], labels: Floats, job: HomomorphicJob) -> list[Ints]:
    loss, ensemble = Loss("logistic", 2), part.ensemble
    rows = JointRows(
        packed_columns(own, part.features),
        labels,
        None,
        loss,
        ensemble.base_scores,
        plain_quantiser(job, loss, len(labels)),
        n_threads=1,
    )
    over, found = part.all_codes(own, answers), []
    for done in range(len(ensemble.trees)):
        grown = Ensemble(ensemble.mapper, ensemble.loss, [0.0], trees=ensemble.trees[:done])
        rows.scores[0] = grown.raw_scores_binned(over)[:, 0]
        rows.gradients()
        found.append(rows.gradients_packed[0].copy())
    return found
