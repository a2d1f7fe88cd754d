"""Small helpers of the tables: means, Markdown, plots."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

LARGEST_PLOT = 60_000
"""Bytes of a PNG."""

COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#4a4a4a", "#3c8d5a", "#8e5ea2", "#8c6d46", "#5fb3b3")


class Summary(NamedTuple):
    """Mean and standard deviation over folds or seeds."""

    mean: float
    sd: float
    n: int

    @property
    def error(self) -> float:
        """Of the mean, as if folds or seeds were independent."""
        return self.sd / self.n**0.5

    def __str__(self) -> str:
        if self.n == 1:
            return _short(self.mean)
        digits = _digits(self.mean)
        return f"{self.mean:.{digits}f} ± {self.sd:.{digits}f}"


def summary(values: Sequence[float]) -> Summary:
    return Summary(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


def _digits(value: float) -> int:
    return 4 if abs(value) < 1 else 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1


def _short(value: float) -> str:
    return f"{value:.{_digits(value)}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def bold_best(row_of: dict[str, dict[Any, Summary]], column: Any, names: Sequence[str], *, lowest: bool) -> str | None:
    """Which of the names has the best mean in a column."""
    present = [name for name in names if column in row_of.get(name, {})]
    if not present:
        return None
    return (min if lowest else max)(present, key=lambda name: row_of[name][column].mean)


@dataclass
class Line:
    """One curve of a panel."""

    label: str
    x: list[float]
    y: list[float]
    spread: list[float] | None = None
    dashed: bool = False


@dataclass
class Panel:
    """One small picture."""

    title: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    x_label: str = "epsilon"
    log_x: bool = False
    log_y: bool = False
    lowest: float | None = None
    """Nothing below this is shown: a method that fails would flatten all others."""


def plot(panels: Sequence[Panel], path: Path, columns: int = 3) -> None:
    """All panels in one PNG below the size limit; the same label has the same colour everywhere."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(columns, len(panels))
    n_rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(n_rows, columns, figsize=(3.6 * columns, 2.7 * n_rows + 0.4), squeeze=False)
    labels = list(dict.fromkeys(line.label for panel in panels for line in panel.lines))
    handles: dict[str, Any] = {}
    for panel, axis in zip(panels, axes.flat, strict=False):
        for line in panel.lines:
            colour = COLOURS[labels.index(line.label) % len(COLOURS)]
            style = "--" if line.dashed else "-"
            marker = None if len(line.x) > 12 or line.dashed else "o"
            handles[line.label] = axis.errorbar(
                line.x, line.y, line.spread, color=colour, linestyle=style, marker=marker, markersize=3, linewidth=1.3,
                capsize=2,
            )  # fmt: skip
        axis.set_title(panel.title, fontsize=9)
        axis.set_xlabel(panel.x_label, fontsize=8)
        axis.set_ylabel(panel.y_label, fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25)
        if panel.log_x:
            ticks = panel.lines[0].x if len(panel.lines[0].x) <= 8 else [1, 10, 100, 1000]
            axis.set_xscale("log")
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
            axis.minorticks_off()
        if panel.log_y:
            axis.set_yscale("log")
        if panel.lowest is not None:
            axis.set_ylim(bottom=panel.lowest)
    for axis in list(axes.flat)[len(panels) :]:
        axis.axis("off")
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=min(5, len(handles)), fontsize=8)
    legend_rows = -(-len(handles) // 5)
    figure.tight_layout(rect=(0, 0.08 * (1 + legend_rows) / (n_rows + 0.4), 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_small_png(figure))
    plt.close(figure)


def _small_png(figure: Any) -> bytes:
    """Fewer colours, then fewer points per inch, until it is small."""
    from PIL import Image

    for dpi in (110, 90, 70, 50):
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi)
        image = Image.open(drawn).convert("RGB").quantize(48)
        out = io.BytesIO()
        image.save(out, format="png", optimize=True)
        if out.tell() <= LARGEST_PLOT:
            break
    return out.getvalue()
