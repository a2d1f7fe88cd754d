"""Columns with more thresholds than a byte can tell apart, as models trained elsewhere may have them.

Prediction runs on bytes, one for each row and feature. So a column of 600 thresholds is looked at through three
features of at most 254 each: a split asks the one that has its threshold. Where rows go does not change.

    thresholds of the column    t0 ... t253 | t254 ... t507 | t508 ... t599
    features                         0      |       1       |       2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hedgerow.engine.binning import FeatureBins, WideBins
from hedgerow.engine.dtypes import Ints

if TYPE_CHECKING:
    from hedgerow.engine.ensemble import Tree


def narrowed(
    trees: Sequence[Tree], features: Sequence[FeatureBins]
) -> tuple[list[Tree], tuple[FeatureBins, ...], Ints]:
    """The trees over features of few edges each, those features, and the column that each looks at."""
    most = FeatureBins.MOST_EDGES
    narrow: list[FeatureBins] = []
    column_of_feature: list[int] = []
    first = np.zeros(len(features), np.int64)  # feature of the first thresholds of each column
    last_piece = np.zeros(len(features), np.int64)  # how many features of the column come after it
    for column, feature in enumerate(features):
        first[column] = len(narrow)
        if isinstance(feature, WideBins) and feature.edges is not None:
            starts = range(0, len(feature.edges), most)
            narrow += [FeatureBins(f"{feature.name} #{s // most}", feature.edges[s : s + most]) for s in starts]
        else:
            narrow.append(feature)
        last_piece[column] = len(narrow) - 1 - first[column]
        column_of_feature += [column] * (len(narrow) - int(first[column]))
    renamed = []
    for tree in trees:
        inner = tree.feature >= 0
        asked = np.where(inner, tree.feature, 0)
        # A split after the last bin, where every value goes left, stays one after the last bin of the last piece.
        piece = np.minimum(np.maximum(tree.bin, 0) // most, last_piece[asked])
        feature_of_node = np.where(inner, first[asked] + piece, -1)
        renamed.append(replace(tree, feature=feature_of_node, bin=tree.bin - most * piece))
    return renamed, tuple(narrow), np.array(column_of_feature, np.int64)
