"""What ranges of single fields cannot say about a message: one function for each, before anybody computes with it.

All raise ProtocolError, which names the sender. `Nodes` follows the nodes of the growing tree, so that an owner knows
which splits, leaf values and sums a step can be about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from hedgerow.compiling import kernel
from hedgerow.engine.dtypes import MAX_BINS, Floats, Ints
from hedgerow.engine.growth import DEEPEST, HISTOGRAM_BYTES
from hedgerow.engine.losses import LABEL_STEPS, MOST_ROWS, Loss
from hedgerow.engine.table import Level
from hedgerow.errors import ProtocolError
from hedgerow.protocols.central.gaussian.requests import Kind, SumRequest, Update
from hedgerow.protocols.horizontal.secure_sum.messages import (
    LATEST_ROUND,
    Agreement,
    NextStep,
    OwnLabelRange,
    Plan,
    SumWanted,
    TableDescription,
)
from hedgerow.protocols.horizontal.secure_sum.quantile_search import PROBES_PER_COLUMN
from hedgerow.protocols.number_line import KINDS
from hedgerow.transport.frames import Message

LEVELS = "levels"
"""The kind of a categorical column, beside those of number lines."""

MOST_LEVELS = 2**16
"""Of one list; how many of them are supported is another question, with an error of its own."""

LARGEST_LOG = 800.0
"""Base scores of losses with a logarithm as their link: log-odds of what rows fit into memory are far below."""


def refuse(sender: str, message: Message | type[Message], what: str) -> ProtocolError:
    """The error to raise."""
    return ProtocolError(f"{sender} sent {message.NAME} {what}")


# --- do the tables fit? ----------------------------------------------------------------------------------------------


def read_list(sender: str, message: Message, name: str, text: str) -> list[Level]:
    """A JSON list of different levels or classes: all texts, or all finite numbers."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) > MOST_LEVELS:
        raise refuse(sender, message, f"with {name} that is not a list of at most {MOST_LEVELS} values")
    texts = sum(isinstance(value, str) for value in values)
    usable = texts == len(values) or (texts == 0 and all(map(_is_number, values)))
    if not usable or len(set(values)) < len(values):
        raise refuse(sender, message, f"with {name} that are not all texts or all numbers, without repetition")
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def check_description(sender: str, message: TableDescription, *, has_classes: bool) -> None:
    """Names, kinds, levels and classes as a table can have them."""
    if len(set(message.columns)) < len(message.columns):
        raise refuse(sender, message, "with two columns of one name")
    _check_columns(sender, message)
    if bool(message.classes) != has_classes:
        raise refuse(sender, message, "with classes where there are none, or without where there are")
    if message.classes and not read_list(sender, message, "classes", message.classes):
        raise refuse(sender, message, "without a single class")


def _check_columns(sender: str, message: TableDescription | Agreement) -> None:
    for kind, levels in zip(message.kinds, message.levels, strict=True):
        if kind not in (*KINDS, LEVELS) or bool(levels) != (kind == LEVELS):
            raise refuse(sender, message, f"with a column of kind {kind[:32]!r} that has levels, or none where it must")
        if levels:
            read_list(sender, message, "levels", levels)


def check_agreement(sender: str, message: Agreement, mine: TableDescription) -> None:
    """It must leave room for everything in this owner's own description."""
    _check_columns(sender, message)
    if bool(message.classes) != bool(mine.classes):
        raise refuse(sender, message, "with classes where there are none, or without where there are")
    pairs = [("classes", message.classes, mine.classes, MOST_LEVELS)] if mine.classes else []
    for kind, own_kind, levels, own in zip(message.kinds, mine.kinds, message.levels, mine.levels, strict=True):
        if (kind == LEVELS) != (own_kind == LEVELS):
            raise refuse(sender, message, f"that takes a column for {kind!r}, which is {own_kind!r} here")
        if kind == LEVELS:
            pairs.append(("levels", levels, own, MAX_BINS - 1))
    for name, text, own, most in pairs:
        common = read_list(sender, message, name, text)
        if len(common) > most or not set(json.loads(own)) <= set(common):
            raise refuse(sender, message, f"with {name} that lack some of this owner's, or too many")
    if message.classes and len(json.loads(message.classes)) < 2:
        raise refuse(sender, message, "with one class only")


def check_label_range(sender: str, message: OwnLabelRange) -> None:
    """Low before high."""
    if message.low > message.high:
        raise refuse(sender, message, f"with low = {message.low} above high = {message.high}")


# --- totals, probes, edges -------------------------------------------------------------------------------------------


def check_totals(loss: Loss, n_rows: int, label_totals: Ints, n_present: Ints) -> None:
    """Sums over all owners that no rows can have: whoever sent wrong numbers cannot be told."""
    rows, *parts = (int(total) for total in label_totals)
    fits = 1 <= n_rows <= MOST_ROWS and rows == n_rows * LABEL_STEPS and all(0 <= part <= rows for part in parts)
    if loss.name == "softmax":
        fits = fits and sum(parts) == rows
    if not fits or not bool(((n_present >= 0) & (n_present <= n_rows)).all()):
        raise ProtocolError("the totals of all owners do not belong to any rows: one of them sent wrong numbers")


def probe_ranges(n_numeric: int) -> dict[str, Any]:
    """Symbols of `Probes`."""
    return {"n_numeric": n_numeric, "most_points": n_numeric * PROBES_PER_COLUMN}


def check_increasing(sender: str, message: Message, points: Floats, ends: Ints, most: int) -> None:
    """The numbers of each column, `most` at most, in strictly increasing order."""
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if bool((ends - starts > most).any()):
        raise refuse(sender, message, f"with more than {most} numbers for a column")
    rising = points[1:] > points[:-1]
    first = starts[(starts > 0) & (starts < len(points))]
    rising[first - 1] = True  # from one column to the next they may fall
    if not bool(rising.all()):
        raise refuse(sender, message, "with numbers of a column that do not increase")


def possible_base_scores(loss: Loss, base_score: float | None) -> tuple[float, float]:
    """From the lowest to the highest."""
    if base_score is not None:
        return float(base_score), float(base_score)
    low, high = loss.label_range if loss.name == "squared" else (-LARGEST_LOG, LARGEST_LOG)
    rounding = 1e-9 * max(abs(low), abs(high))
    return low - rounding, high + rounding


def start_ranges(n_numeric: int, scores: tuple[float, float], n_outputs: int, rows: tuple[int, int]) -> dict[str, Any]:
    """Symbols of `Start`: base scores and the number of rows may be anything between two limits."""
    return {
        "n_numeric": n_numeric, "most_edges": n_numeric * (MAX_BINS - 2), "n_outputs": n_outputs,
        "lowest_score": scores[0], "highest_score": scores[1], "fewest_rows": rows[0], "most_rows": rows[1],
    }  # fmt: skip


# --- steps of training -----------------------------------------------------------------------------------------------


class Nodes:
    """The active nodes of the growing tree and the leaves it has so far, as the coordinator's steps make them."""

    def __init__(self, n_features: int, n_outputs: int, n_trees: int, n_cells: int, max_depth: int | None) -> None:
        self._n_features, self._n_outputs = n_features, n_outputs
        deepest = min(max_depth or DEEPEST, DEEPEST)
        self._highest = np.array(Plan(LATEST_ROUND, 1, n_outputs - 1, n_trees - 1, deepest + 1, 2**16 - 1), np.int64)
        self._most_built = max(1, HISTOGRAM_BYTES // (8 * n_cells))
        self.n_active = self.n_leaves = 0

    def follow(self, sender: str, step: NextStep) -> None:
        """Refuse a step that cannot follow on the last."""
        n_active, n_leaves = _after(
            self.n_active, self.n_leaves, self._n_features, self._n_outputs, self._highest, self._most_built,
            step.plan, step.feature, len(step.leaf_values), step.build,
        )  # fmt: skip
        if n_active < 0:
            raise refuse(sender, step, self._what_is_wrong(step)[-n_active])
        self.n_active, self.n_leaves = n_active, n_leaves

    def _what_is_wrong(self, step: NextStep) -> dict[int, str]:
        plan, highest = step.plan.tolist(), self._highest.tolist()
        return {
            _BEYOND: f"with the plan {plan}, which is beyond {highest}",
            _SPLITS: f"with splits of {len(step.feature)} nodes, there are {self.n_active}",
            _FEATURE: f"with feature = {step.feature.tolist()[:8]}, there are {self._n_features} features",
            _LEAVES: f"with {len(step.leaf_values)} leaf values, which is not how many leaves the tree has",
            _BEGINS: f"that begins tree {Plan(*plan).tree} before the last one has ended",
            _BUILD: f"that asks for sums of nodes {step.build.tolist()[:8]}, which are not among those there are",
            _ENDS: "that ends training in the middle of a tree",
        }


_BEYOND, _SPLITS, _FEATURE, _LEAVES, _BEGINS, _BUILD, _ENDS = range(1, 8)


@kernel
def _after(
    n_active: int, n_leaves: int, n_features: int, n_outputs: int, highest: Ints, most_built: int,
    plan: Ints, feature: Ints, n_values: int, build: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Active nodes and leaves after a step; or minus what is wrong with it. Compiled, since every level has a step."""
    for i in range(6):
        if plan[i] < (-1 if i == 2 else 0) or plan[i] > highest[i]:  # start is -1 for no tree
            return -_BEYOND, 0
    new_round, last, start, tree = plan[0], plan[1], plan[2], plan[3]
    if len(feature):
        if len(feature) != n_active:
            return -_SPLITS, 0
        n_split = 0
        for node_feature in feature:
            if node_feature < -1 or node_feature >= n_features:
                return -_FEATURE, 0
            n_split += node_feature >= 0
        n_leaves += n_active - n_split + 2 * n_split * last
        n_active = 0 if last else 2 * n_split
    if n_values:
        if n_active or n_values != n_leaves:
            return -_LEAVES, 0
        n_leaves = 0
    if start >= 0:
        again = new_round > 0 and n_active == 1  # a root whose sum was lost
        if n_leaves or (n_active and not again) or start != tree % n_outputs:
            return -_BEGINS, 0
        n_active = 1
    previous = -1
    for node in build[: most_built + 1]:
        if node <= previous or node >= n_active or len(build) > most_built:
            return -_BUILD, 0
        previous = node
    if not len(build) and (n_active or n_leaves):
        return -_ENDS, 0
    return n_active, n_leaves


# --- the private recipe ----------------------------------------------------------------------------------------------


def request_ranges(n_columns: int, n_cells: int) -> dict[str, Any]:
    """Symbols of `SumWanted`."""
    return {
        "n_columns": n_columns,
        "most_sums": 2 * max(n_cells, MAX_BINS),
        "most_update_values": n_columns * MAX_BINS,
    }


def read_request(sender: str, wanted: SumWanted, n_columns: int) -> SumRequest:
    """The request in a message; whether it fits the rows is for `PrivateRows` to say."""
    if wanted.kind not in get_args(Kind) or wanted.update not in get_args(Update):
        raise refuse(sender, wanted, f"with kind {wanted.kind!r} and update {wanted.update!r}")
    values: dict[str, Any] = {name: getattr(wanted, name) for name in SumRequest.__dataclass_fields__}
    if wanted.update == "tables":
        if wanted.update_values.size != n_columns * MAX_BINS:
            raise refuse(sender, wanted, f"with {wanted.update_values.size} values of tables")
        values["update_values"] = wanted.update_values.reshape(n_columns, MAX_BINS)
    return SumRequest(**values)


def write_request(request: SumRequest) -> SumWanted:
    """The message of a request."""
    values: Mapping[str, Any] = {name: getattr(request, name) for name in SumRequest.__dataclass_fields__}
    return SumWanted(**{**values, "update_values": request.update_values.ravel()})
