"""Pictures of models, drawn by matplotlib: pip install 'hedgerow[plot]'.

    from hedgerow import plot

    plot.importances(model)                                 # at the end of a notebook's cell: shown
    plot.tree(model, 3).figure.savefig("tree.svg")
    plot.learning_curves(model, ax=axes[0, 1])              # into a figure of one's own

Every function takes the Axes to draw on, or makes new ones, and returns them. None opens a window, none changes
matplotlib's settings or its current figure. Models may be estimators, private or not, runs, models in parts, or the one
part that a party has at home; a picture for a party shows what that party knows and no more.

A guarantee of the training covers a model, and what is drawn from the model alone: importances and trees. It does not
cover what is computed from rows: those functions take the rows of whoever calls them, and say so.
"""

from __future__ import annotations

from hedgerow.plot.columns import importances
from hedgerow.plot.curves import learning_curves
from hedgerow.plot.dependence import partial_dependence
from hedgerow.plot.sweeps import epsilon_against_auc
from hedgerow.plot.trees import tree

__all__ = ["epsilon_against_auc", "importances", "learning_curves", "partial_dependence", "tree"]
