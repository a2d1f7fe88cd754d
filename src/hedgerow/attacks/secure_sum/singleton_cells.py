"""Cells that hold one record: histogram sums give away its bin and its label.

The adversary sees, for nodes of growing trees, sums of gradients g and hessians h per feature and bin, as a coordinator
of horizontal.secure_sum does (of all owners' rows), or a partner where there is nobody else to hide among.

    1  siblings that were not sent follow by subtraction from their parents
    2  a record of the logistic loss has g = p - y and h = p (1 - p), so h = |g| (1 - |g|): whatever its score was. Sums
       over several records do not have that property, but for rare accidents; so a cell that has it holds one record
    3  its label is 1 where g is negative, its bin is that of the cell; what the node's path says about it comes on top
    4  a node with such a cell in every feature holds one record in all: every bin of it is known

FederBoost (Tian et al.) holds that horizontal training needs no differential privacy; this is why it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome
from hedgerow.attacks.results import share
from hedgerow.engine.dtypes import Bools, Bytes, Floats, Ints, Words
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.masks import nth, opened
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep, Plan, Start, Unmasking
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import RECEIVED, SENT, Passed

LEAST_HESSIAN = 64
"""In quanta. Below that rounding hides whether h = |g| (1 - |g|), and a guess would be worth nothing."""


@dataclass(frozen=True, eq=False)
class SeenLevel:
    """Sums of some nodes of one level, as somebody saw them."""

    tree: int
    level: int
    splits: Ints  # [nodes of the level before] feature that each splits on, -1 for a leaf; empty at a root
    goes_left: Bytes  # [nodes of the level before, 256] where each code goes
    nodes: Ints  # [sums] nodes of this level, children of splitting nodes in order, left before right
    sums: Ints  # [sums, cells] packed (g << 32) + h, feature after feature, missing last


@dataclass(frozen=True)
class Public:
    """What everybody who takes part knows: where features begin in a vector, and the units of sums."""

    first: Ints  # [features + 1]
    gradient_unit: float
    hessian_unit: float

    @classmethod
    def of_job(cls, first: Ints, n_rows: int, gradient_bits: int | None = None) -> Public:
        """From the bins and the number of rows over all owners, which the coordinator tells everybody."""
        quantiser = Quantiser.for_job(Loss("logistic"), float(n_rows), n_rows=n_rows, gradient_bits=gradient_bits)
        return cls(first, 1.0 / quantiser.gradient_scale, 1.0 / quantiser.hessian_scale)


class ExposedCell(NamedTuple):
    """One record, as far as the adversary knows."""

    tree: int
    level: int
    node: int
    feature: int
    bin: int
    label: int


def find_single_records(levels: Iterable[SeenLevel], public: Public) -> list[ExposedCell]:
    """All cells of all nodes that seem to hold one record."""
    found = []
    for tree, level, node, cells in all_nodes(levels):
        alone, label = _single(cells, public)
        for place in np.flatnonzero(alone).tolist():
            feature = int(np.searchsorted(public.first, place, side="right")) - 1
            code = place - int(public.first[feature])
            found.append(ExposedCell(tree, level, node, feature, code, int(label[place])))
    return found


def all_nodes(levels: Iterable[SeenLevel]) -> Iterator[tuple[int, int, int, Ints]]:
    """(tree, level, node, cells) of all nodes whose sums were seen or follow by subtraction."""
    above: dict[int, Ints] = {}
    for seen in levels:
        here = dict(zip(seen.nodes.tolist(), seen.sums, strict=True))
        if seen.level:
            splitting = np.flatnonzero(seen.splits >= 0).tolist()
            for k, parent in enumerate(splitting):
                for child, sibling in ((2 * k, 2 * k + 1), (2 * k + 1, 2 * k)):
                    if child not in here and sibling in here and parent in above:
                        here[child] = above[parent] - here[sibling]
        for node, cells in here.items():
            yield seen.tree, seen.level, node, cells
        above = here


def _single(cells: Ints, public: Public) -> tuple[Bools, Ints]:
    gradient = (cells >> 32) * public.gradient_unit
    quanta = cells & 0xFFFFFFFF
    hessian = quanta * public.hessian_unit
    size = np.abs(gradient)
    # Both fields were rounded to the nearest quantum, once per record.
    slack = public.hessian_unit + public.gradient_unit
    alone = (quanta >= LEAST_HESSIAN) & (size < 1.0) & (np.abs(hessian - size * (1.0 - size)) <= slack)
    return alone, (gradient < 0).astype(np.int64)


# --- how well it did, for those who have the rows ------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """The attack against the truth."""

    cells: int
    """Cells that the adversary believes to hold one record."""
    right_cells: int
    """Those of them that do, with that label."""
    records: int
    """Records whose label, and one bin or more, the adversary has right."""
    whole_records: int
    """Those that it has alone in a node: all their bins are known."""
    n_records: int


def score(found: Sequence[ExposedCell], levels: Sequence[SeenLevel], codes: Bytes, labels: Floats) -> Score:
    """Hold what was found against the rows it is about: `codes` [features, rows] and labels 0 or 1."""
    place = _nodes_of_rows(levels, codes)
    right, exposed, whole = 0, set(), set()
    for cell in found:
        rows = np.flatnonzero((place[cell.tree, cell.level] == cell.node) & (codes[cell.feature] == cell.bin))
        if len(rows) == 1 and labels[rows[0]] == cell.label:
            right += 1
            exposed.add(int(rows[0]))
            if np.count_nonzero(place[cell.tree, cell.level] == cell.node) == 1:
                whole.add(int(rows[0]))
    return Score(len(found), right, len(exposed), len(whole), codes.shape[1])


def _nodes_of_rows(levels: Sequence[SeenLevel], codes: Bytes) -> dict[tuple[int, int], Ints]:
    """(tree, level) -> the node of each row there, -1 where it has come to rest before."""
    n_rows = codes.shape[1]
    places: dict[tuple[int, int], Ints] = {}
    current = np.zeros(n_rows, np.int64)
    for seen in levels:
        if (seen.tree, seen.level) in places:  # a level that was seen in parts
            continue
        current = _descended(current, seen, codes) if seen.level else np.zeros(n_rows, np.int64)
        places[seen.tree, seen.level] = current
    return places


def _descended(current: Ints, seen: SeenLevel, codes: Bytes) -> Ints:
    number = np.cumsum(seen.splits >= 0) - 1  # among the splitting nodes
    moved = np.full_like(current, -1)
    for node, feature in enumerate(seen.splits.tolist()):
        if feature >= 0:
            here = np.flatnonzero(current == node)
            left = seen.goes_left[node, codes[feature, here]].astype(np.bool_)
            moved[here] = 2 * number[node] + np.where(left, 0, 1)
    return moved


# --- what a coordinator can add up, from its transcript ------------------------------------------------------------


def plan_of(step: NextStep) -> Plan:
    """The numbers of a step by their names."""
    return Plan(*step.plan.tolist())


@dataclass(frozen=True, eq=False)
class SummedLevel:
    """What the coordinator asked for in one step of training, and what came."""

    step: NextStep
    parts: Mapping[str, Words]  # owner -> the masked vector that came from it; those of lost owners are missing
    asked: tuple[str, ...]
    answers: Mapping[str, Unmasking]  # what owners told to take off the masks of their own, where they had any
    number: int  # of this sum among those with such masks, since the last keys

    @property
    def plan(self) -> Plan:
        """The numbers of the step."""
        return plan_of(self.step)

    @property
    def is_complete(self) -> bool:
        """Whether everybody who was asked has answered, so that masks cancel."""
        return set(self.parts) == set(self.asked)

    @property
    def masked_sums(self) -> Words:
        """The sum over all who sent something; masks of pairs cancel in it if that is everybody."""
        total: Words = np.sum(list(self.parts.values()), axis=0, dtype=np.uint64)
        return total

    @property
    def sums(self) -> Words:
        """The sum without the owners' own masks as well, where they helped to take them off."""
        total = self.masked_sums
        return opened(total, nth(self.number), frozenset(self.parts), self.answers) if self.answers else total


def summed_levels(transcript: Iterable[Passed]) -> Iterator[SummedLevel]:
    """The levels of all trees from what passed at a coordinator, in order."""
    order: list[tuple[NextStep, list[str], dict[str, Words], dict[str, Unmasking]]] = []
    last_frame = b""
    for direction, peer, frame in transcript:
        name = peek(frame)[0]
        if direction == SENT and name == NextStep.NAME:
            if frame != last_frame:
                order.append((decode(frame, NextStep), [], {}, {}))
                last_frame = frame
            order[-1][1].append(peer)
        elif direction == RECEIVED and name == MaskedHistogram.NAME and order:
            order[-1][2][peer] = decode(frame, MaskedHistogram).values
        elif direction == RECEIVED and name == Unmasking.NAME and order:
            order[-1][3][peer] = decode(frame, Unmasking)
    n_opened = 0
    for step, owners, parts, answers in order:
        n_opened = 0 if plan_of(step).new_round else n_opened
        if len(step.build):
            yield SummedLevel(step, parts, tuple(owners), answers, n_opened)
        n_opened += bool(answers)


def as_seen(levels: Iterable[SummedLevel], take: Callable[[SummedLevel], Words]) -> list[SeenLevel]:
    """The levels with the sums that `take` gives for each: of all who answered, or of one of them."""
    seen = []
    for summed in levels:
        plan, step = summed.plan, summed.step
        sums = take(summed)[: len(step.build)].view(np.int64)  # counts of rows, if any, come after the gradients
        goes_left = np.unpackbits(step.goes_left, axis=1) if plan.level else np.empty((0, 256), np.uint8)
        splits = np.asarray(step.feature, np.int64) if plan.level else np.empty(0, np.int64)
        seen.append(SeenLevel(plan.tree, plan.level, splits, goes_left, np.asarray(step.build, np.int64), sums))
    return seen


# --- a recorded run ------------------------------------------------------------------------------------------------


def on_run(context: Context) -> list[Outcome]:
    """The coordinator looks for cells with one record in the sums over all owners."""
    job: Job = context.job
    owners = [owner for owner in job.owners if owner != job.coordinator]
    aim = Aim("singleton_cells", job.coordinator, f"rows of {', '.join(owners)}")
    if job.dp is not None:
        return [aim.says(NOT_RUN, "every sum has noise in it; the attack is on sums without")]
    model: Any = context.run.model
    ensemble = model.ensemble_
    if ensemble.loss != "logistic":
        return [aim.says(NOT_RUN, "the attack is on two classes")]
    transcript = context.run.transcript(job.coordinator)
    levels = [level for level in summed_levels(transcript) if level.is_complete]
    seen = as_seen(levels, lambda level: level.sums)
    n_rows = transcript.messages(Start, SENT)[0].n_rows
    public = Public.of_job(ExchangedCells(ensemble.mapper).first, n_rows, job.boosting.gradient_bits)
    exposed = find_single_records(seen, public)
    found = f"{len(exposed):,} cells with one record each: its bin and its label"
    truth = _truth(context, owners)
    if truth is None:
        return [aim.says(NOT_SCORED, found)]
    result = score(exposed, seen, *truth)
    ones = float(truth[1].mean())
    return [
        aim.scored(  # no ceiling: the statement says that sums are not anonymous
            f"{found}; right about {result.records:,} of {result.n_records:,} records",
            "accuracy",
            share(result.right_cells, result.cells, CONFIDENCE),
            chance=max(ones, 1.0 - ones),
        )
    ]


def _truth(context: Context, owners: list[str]) -> tuple[Bytes, Floats] | None:
    """Codes [features, rows] and labels of all rows that are in the sums."""
    model: Any = context.run.model
    mapper = model.ensemble_.mapper
    codes, labels = [], []
    for owner in owners:
        table = context.table(owner, mapper.features)
        ones = None if table is None else context.ones(owner, table.n_rows)
        if table is None or ones is None:
            return None
        codes.append(mapper.transform(table))
        labels.append(ones)
    return np.concatenate(codes, axis=1), np.concatenate(labels)
