"""Which columns matter: bars, the longest on top."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hedgerow.errors import InvalidParameter
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.plot.canvas import COLOURS, axes_or_new, label, model_of
from hedgerow.protocols.vertical.common.parts import Part
from hedgerow.report.charts import number, short
from hedgerow.report.of_run import of_part, ranked_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST_NAME = 32


class _Bars(NamedTuple):
    """What is drawn: a caption, its unit, a remark, and numbers by party and column; a whole model is of party ""."""

    caption: str
    unit: str
    note: str
    values: Mapping[tuple[str, str], float]


def importances(model: Any, *, party: str | None = None, most: int = 20, ax: Axes | None = None) -> Axes:
    """Bars of the `most` important columns: each one's share of the gain of all splits, as in a report.

    Of a model in parts, `party` shows what that party knows: its own columns by name, and at the label holder each
    other party's columns as one bar; a feature holder knows how many questions the model asks about each of its
    columns, and not what they gain. Without `party` the columns of all parties, for whoever has all parts: this asks
    the service that explains models, as `VerticalModel.importances` does. A single part is shown as its party's.
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InvalidParameter(f"most must be a whole number of at least 1, got {most!r}")
    found = _bars(model_of(model, "plot.importances"), model, party)
    ranked = sorted(found.values.items(), key=lambda item: -item[1])
    shown = ranked[:most]
    ax = axes_or_new(ax, (6.4, max(2.2, 1.5 + 0.28 * len(shown))))
    parties = sorted({owner for owner, _ in found.values})
    for number_, owner in enumerate(parties):
        places = [k for k, (key, _) in enumerate(shown) if key[0] == owner]
        colour = COLOURS[number_ % len(COLOURS)]
        bars = ax.barh(places, [shown[k][1] for k in places], color=colour, label=owner or None)
        ax.bar_label(bars, [number(shown[k][1], found.unit) for k in places], padding=3, fontsize=8)
    names = [f"{owner}: {column}" if owner else column for (owner, column), _ in shown]
    ax.set_yticks(range(len(shown)), [short(name, _LONGEST_NAME) for name in names])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    title, _, measured = found.caption.partition(": ")
    left_out = f" ({len(shown)} of {len(ranked)})" if len(shown) < len(ranked) else ""
    label(ax, title + left_out, "\n".join([measured, *textwrap.wrap(found.note, 52)]), "")
    ax.grid(visible=False, axis="y")
    if len(parties) > 1:
        ax.legend(title="party", loc="lower right")
    return ax


def _bars(model: Any, given: Any, party: str | None) -> _Bars:
    """As the report has it; of everybody's columns one list."""
    if isinstance(model, VerticalModel) and party is None:
        return _of_all(model)
    if isinstance(model, Part):
        if party not in (None, model.party):
            raise InvalidParameter(
                f"party={party!r}: this is the part of {model.party}, which knows no other's columns"
            )
        found = of_part(model)[0]
    elif isinstance(model, VerticalModel) and party not in model.parts:
        raise InvalidParameter(f"party={party!r} has no part of this model; there are {', '.join(model.parts)}")
    elif not isinstance(model, VerticalModel) and party is not None:
        raise InvalidParameter(f"party={party!r}: this model is whole, and all who have it see the same; leave it out")
    else:
        found = ranked_of(model, given.job if isinstance(given, Run) else None, party)[0]
    values = {("", name): value for name, value in found.values.items()}
    return _Bars(found.caption, found.unit, found.note, values)


def _of_all(model: VerticalModel) -> _Bars:
    """Everybody's columns, by the service; where nobody knows leaf values, the splits that each party counts."""
    counts = _Bars("Columns of all parties: number of splits", "", "", {})
    if model.is_shared:
        return counts._replace(values=_flat({party: of_part(part)[0].values for party, part in model.parts.items()}))
    gains = _flat(model.importances("gain"))
    total = sum(gains.values())
    if not total > 0:
        return counts._replace(values=_flat(model.importances("count")))
    shares = {name: gain / total for name, gain in gains.items()}
    return _Bars("Columns of all parties: share of the gain of all splits", "share", "", shares)


def _flat(values: Mapping[str, Mapping[str, float]]) -> dict[tuple[str, str], float]:
    return {(party, name): value for party, own in values.items() for name, value in own.items()}
