"""One tree of a model, from left to right: yes is up, no is down.

                    ┌── +0.12
        ┌─ age < 40 ┤
        │           └── -0.03          a leaf: what it adds to the score
        income < 3000
        │                    ┌── +0.31
        └─ split of shop     ┤         another party's split: the reader knows that it is there
                             └── -0.07

Leaves have a line each, and a new figure is made as large as the tree needs, so that 64 of them can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hedgerow.engine.binning import FeatureBins
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.plot.canvas import PALE, axes_or_new, figure_of, model_of
from hedgerow.protocols.vertical.common.parts import LabelHolderPart, OwnerPart, Part
from hedgerow.protocols.vertical.common.shared_parts import LEAF, SharedLeavesPart
from hedgerow.report.charts import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE, _LETTER, _BEND = 0.26, 0.068, 0.12
"""Inches: the height of a leaf's line, the width of a letter at the largest size, and of the bend before a node."""
_LARGEST, _SMALLEST = 8.0, 3.0
"""Sizes of letters, in points."""
_MOST_LEVELS, _LONGEST_LEVEL, _LONGEST_NAME = 3, 12, 24
_UP, _DOWN = "#9CCBE8", "#F5C396"
"""Leaves that raise the score and leaves that lower it."""


class _Picture(NamedTuple):
    """What is drawn of each node; nodes are breadth-first, the k-th inner one has children 2k + 1 and 2k + 2."""

    texts: list[str]
    is_leaf: Bools
    is_own: Bools  # splits that the reader knows
    values: Floats  # of leaves, NaN where nobody knows them
    title: str


def tree(model: Any, i: int = 0, *, party: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw tree `i` of a model: each split as a question, each leaf as what it adds to the raw score.

    Of a model in parts it is drawn as the label holder knows it: its own splits with their values, those of others as
    "split of shop" with the number of the question, which is all it asks by. A feature holder knows questions and no
    trees. Where leaf values are shared, `party` says whose picture it is: all know the shape, each its own splits.
    `ax` should have about a quarter of an inch of height for each leaf; letters shrink to fit.
    """
    drawn = _picture(model_of(model, "plot.tree"), i, party)
    depth, height = _places(drawn.is_leaf)
    n_leaves = int(np.count_nonzero(drawn.is_leaf))
    starts = _columns(drawn.texts, depth)
    left, width = starts[depth], float(starts[-1])
    ax = axes_or_new(ax, (max(4.0, width + 0.3), max(1.8, 0.7 + _LINE * n_leaves)))
    ax.set_axis_off()
    ax.set(xlim=(-0.05, width), ylim=(n_leaves - 0.3, -0.7), title=drawn.title)
    size = _letters(ax, n_leaves, width)
    parents = np.flatnonzero(~drawn.is_leaf)
    for k, parent in enumerate(parents.tolist()):
        for child in (2 * k + 1, 2 * k + 2):
            turn = left[child] - _BEND
            ways = ([left[parent], turn, turn, left[child]], [height[parent]] * 2 + [height[child]] * 2)
            ax.plot(*ways, color="#8C8C8C", linewidth=0.8, zorder=1)
    for node, text in enumerate(drawn.texts):
        ax.text(
            float(left[node]),
            float(height[node]),
            text,
            fontsize=size,
            verticalalignment="center",
            bbox={"boxstyle": "round,pad=0.25", "linewidth": 0.8, **_box(drawn, node)},
            zorder=2,
        )
    ax.annotate("yes is up, no is down", (0.0, 0.0), xycoords="axes fraction", fontsize=8, color="#595959")
    return ax


def _places(is_leaf: Bools) -> tuple[Ints, Floats]:
    """By node: how deep it is, and at what height: leaves in order, a split in the middle of its children."""
    n_nodes = len(is_leaf)
    first = np.full(n_nodes, -1)
    first[~is_leaf] = 2 * np.arange(np.count_nonzero(~is_leaf)) + 1
    depth, height = np.zeros(n_nodes, np.int64), np.zeros(n_nodes)
    for node in np.flatnonzero(first >= 0).tolist():
        depth[first[node]] = depth[first[node] + 1] = depth[node] + 1
    ahead, n_leaves = [0], 0
    while ahead:  # the left child of a node, all of it, comes before the right one
        node = ahead.pop()
        if first[node] >= 0:
            ahead += [int(first[node]) + 1, int(first[node])]
        else:
            height[node] = n_leaves
            n_leaves += 1
    for node in np.flatnonzero(first >= 0)[::-1].tolist():
        height[node] = (height[first[node]] + height[first[node] + 1]) / 2
    return depth, height


def _columns(texts: list[str], depth: Ints) -> Floats:
    """Where each depth begins, in inches, and where the last one ends: as wide as the longest line in it."""
    widest = np.zeros(int(depth.max()) + 1)
    for text, level in zip(texts, depth.tolist(), strict=True):
        widest[level] = max(widest[level], *(len(line) for line in text.splitlines()))
    return np.concatenate([[0.0], np.cumsum(_LETTER * widest + 0.15 + 2 * _BEND)])


def _letters(ax: Axes, n_leaves: int, width: float) -> float:
    """The size of letters with which the tree fits the Axes."""
    inches = figure_of(ax).get_size_inches() * ax.get_position().size
    fits = min(1.0, float(inches[1]) / (_LINE * n_leaves), 1.15 * float(inches[0]) / width)
    return max(_SMALLEST, _LARGEST * fits)


def _box(drawn: _Picture, node: int) -> dict[str, Any]:
    """Leaves by what they add, splits of others dashed."""
    if not drawn.is_leaf[node]:
        own = bool(drawn.is_own[node])
        return {"facecolor": "white" if own else PALE, "edgecolor": "black", "linestyle": "-" if own else "--"}
    value = drawn.values[node]
    colour = PALE if np.isnan(value) or value == 0 else _UP if value > 0 else _DOWN
    return {"facecolor": colour, "edgecolor": "none"}


# --- what a reader knows of a tree -----------------------------------------------------------------------------------


def _picture(model: Any, i: int, party: str | None) -> _Picture:
    part = _part_of(model, party)
    if isinstance(part, OwnerPart):
        raise InvalidInput(
            f"{part.party} has questions about its own columns and no tree: trees are with {part.label_holder}. "
            f"plot.importances shows how many questions there are about each column of {part.party}"
        )
    if isinstance(part, SharedLeavesPart):
        return _of_shared(part, _checked(i, part.n_trees))
    if isinstance(part, LabelHolderPart):
        return _of_ensemble(part.ensemble, _checked(i, part.n_trees), part)
    if party is not None:
        raise InvalidParameter(f"party={party!r}: this model is whole, and all who have it see the same; leave it out")
    return _of_ensemble(model.ensemble_, _checked(i, len(model.ensemble_.trees)), None)


def _part_of(model: Any, party: str | None) -> Part | None:
    """Whose picture it is; None of a model that is whole."""
    parts = model.parts if isinstance(model, VerticalModel) else {model.party: model} if isinstance(model, Part) else {}
    if not parts:
        return None
    default = model.label_holder if isinstance(model, VerticalModel) else model.party
    if party is not None and party not in parts:
        raise InvalidParameter(f"party={party!r} has no part of this model here; there are {', '.join(parts)}")
    found: Part = parts[party or default]
    return found


def _checked(i: Any, n_trees: int) -> int:
    if isinstance(i, bool) or not isinstance(i, int | np.integer) or not 0 <= i < n_trees:
        raise InvalidParameter(f"i must be the number of a tree, 0 to {n_trees - 1}, got {i!r}")
    return int(i)


def _of_ensemble(ensemble: Ensemble, i: int, part: LabelHolderPart | None) -> _Picture:
    one = ensemble.trees[i]
    n_own = len(ensemble.features) if part is None else part.n_own
    texts = []
    for node, column in enumerate(one.feature.tolist()):
        if column < 0:
            texts.append(f"{one.value[node]:+.3g}")
        elif part is not None and column >= n_own:
            texts.append(_asked(part, column))
        else:
            texts.append(question(ensemble.features[column], one, node))
    title = f"Tree {i} of {len(ensemble.trees)}"
    if ensemble.n_outputs > 1:
        classes = ensemble.classes or tuple(range(ensemble.n_outputs))
        title += f", for class {classes[i % ensemble.n_outputs]!r}"
    if part is not None:
        title += f", as {part.party} knows it"
    values = np.where(one.is_leaf, one.value.astype(np.float64), np.nan)
    return _Picture(texts, one.is_leaf, one.feature < n_own, values, title)


def _asked(part: LabelHolderPart, column: int) -> str:
    """A split of another party, by the number under which it is asked."""
    owner = next(party for party in reversed(list(part.handles)) if part.first_column(party) <= column)
    return f"split of {owner}\n(question {column - part.first_column(owner)})"


def question(feature: FeatureBins, one: Tree, node: int) -> str:
    """A split in words; what is true of a row sends it left."""
    name, missing = short(feature.name, _LONGEST_NAME), bool(one.missing_left[node])
    if feature.levels is not None:
        goes_left = one.left_levels[one.level_set[node], : len(feature.levels)]
        return _by_levels(
            name, [str(level) for level, left in zip(feature.levels, goes_left, strict=True) if left], missing
        )
    return _by_threshold(name, float(one.threshold[node]), missing)


def _by_threshold(name: str, threshold: float, missing: bool) -> str:
    if np.isinf(threshold):
        return f"{name}: any" if missing else f"{name} not missing"
    return f"{name} < {threshold:.6g}" + ("\nor missing" if missing else "")


def _by_levels(name: str, levels: list[str], missing: bool) -> str:
    if not levels:
        return f"{name} missing"
    shown = [short(level, _LONGEST_LEVEL) for level in levels[:_MOST_LEVELS]]
    more = f", {len(levels) - _MOST_LEVELS} more" if len(levels) > _MOST_LEVELS else ""
    return f"{name} in\n{{{', '.join(shown)}{more}}}" + (" or missing" if missing else "")


def _of_shared(part: SharedLeavesPart, i: int) -> _Picture:
    """Everybody knows the shape; values of leaves are known to nobody."""
    one = part.trees[i]
    others = [party for party in part.holders if party != part.party]
    elsewhere = f"split of {others[0]}" if len(others) == 1 else "split of another party"
    texts, n_leaves = [], 0
    for node, column in enumerate(one.column.tolist()):
        if column == LEAF:
            texts.append(f"leaf {n_leaves}, value shared")
            n_leaves += 1
        elif column < 0:
            texts.append(elsewhere)
        else:
            feature = part.features[column]
            edges = np.append(feature.edges if feature.edges is not None else [], np.inf)
            texts.append(
                _by_threshold(
                    short(feature.name, _LONGEST_NAME), float(edges[one.bin[node]]), bool(one.missing_left[node])
                )
            )
    title = f"Tree {i} of {part.n_trees}, as {part.party} knows it"
    return _Picture(texts, one.is_leaf, one.column >= 0, np.full(one.n_nodes, np.nan), title)
