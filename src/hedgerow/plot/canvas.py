"""What all pictures share: matplotlib, loaded when something is drawn; Axes; colours; which model is meant."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Any

from hedgerow.engine.dtypes import Floats
from hedgerow.errors import HedgerowError, InvalidParameter, InvalidType
from hedgerow.federation.run import Run
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.protocols.vertical.common.parts import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people with any kind of colour vision can tell apart; the darker ones first."""
DASHES = ("-", "--", "-.", ":")
"""Lines differ by these too, so that they can be told apart in print."""
GREY, PALE = "#595959", "#F2F2F2"
DEFAULT_SIZE = (6.4, 4.8)


class PlotNeedsMatplotlib(HedgerowError, ImportError):
    """matplotlib is not installed."""


@cache
def _shown_axes() -> type[Axes]:
    """Axes that a notebook shows as a picture, whatever its backend is and without one."""
    try:
        from matplotlib.axes import Axes
    except ImportError as missing:
        raise PlotNeedsMatplotlib(
            "hedgerow.plot draws with matplotlib, which is not installed: pip install 'hedgerow[plot]'; "
            "model.report('report.html') shows importances and curves without it"
        ) from missing

    class ShownAxes(Axes):
        def _repr_png_(self) -> bytes:
            target = io.BytesIO()
            figure_of(self).savefig(target, format="png")
            return target.getvalue()

    return ShownAxes


def axes_or_new(ax: Axes | None, size: tuple[float, float] = DEFAULT_SIZE) -> Axes:
    """The given Axes, or those of a figure that pyplot knows nothing of: nothing has to be closed."""
    kind = _shown_axes()
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    return Figure(size, layout="constrained").add_subplot(axes_class=kind)


def figure_of(ax: Axes) -> Figure:
    """The figure that the Axes are on."""
    found = ax.get_figure(root=True)
    if found is None:
        raise InvalidParameter("these Axes have been removed from their figure; give others, or none")
    return found


def model_of(given: Any, what: str) -> Any:
    """The fitted estimator, model in parts or part that is meant; of a run its model."""
    model = given.model if isinstance(given, Run) else given
    if isinstance(model, VerticalModel | Part) or hasattr(model, "ensemble_"):
        return model
    if hasattr(model, "fit"):
        raise InvalidType(f"{what} needs a fitted model, and this {type(model).__name__} is not: call fit first")
    raise InvalidType(f"{what} needs a model, a run or a part of a model in parts, got {type(given).__name__}")


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the n-th line."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number % len(DASHES)]}


def label(ax: Axes, title: str, x: str, y: str) -> None:
    """Names of the axes, and as little ink around the picture as it needs."""
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, alpha=0.3)
    ax.set_axisbelow(True)


def whole_numbers(ax: Axes) -> None:
    """Ticks of the x axis: rounds are not halved."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def predictions_of(model: Any, X: Any) -> Floats:
    """Probabilities of classes [rows, classes], or numbers [rows]."""
    predicted: Floats = model.predict_proba(X) if hasattr(model, "classes_") else model.predict(X)
    return predicted
