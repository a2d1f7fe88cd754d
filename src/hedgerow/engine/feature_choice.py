"""Which features the nodes of a tree may ask about: drawn at random, and kept apart by interaction constraints.

    draw         colsample_bytree of all features, colsample_bylevel of those, colsample_bynode of those
    path         a node may ask about a feature if some group holds it and all features asked about on the way there

Both are functions of public things alone: the rules, the number of features and of the tree, the nodes of each level,
and, for groups, the features that nodes were split on. So every party of a job can repeat them, in any place:

    choice = FeatureChoice(rules, n_features, tree_number)
    choice.for_nodes(n_nodes)       level by level: what its nodes may ask about
    choice.split(feature)           by which features they were split; their children are the next level's nodes
"""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Bools, Ints
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidParameter


class FeatureDraw:
    """The features that are drawn for one tree: a function of rules, features, tree, and the nodes of its levels.

    The levels are asked for in order, each with all its nodes, those included that will not be split: the draws of
    nodes follow each other.
    """

    def __init__(self, rules: BoostingParams, n_features: int, tree_number: int) -> None:
        self._rules, self._tree, self._level = rules, tree_number, 0
        self._of_tree = np.ones(n_features, np.bool_)
        if rules.colsample_bytree < 1.0:
            self._of_tree = _drawn(self._rng(0), self._of_tree, rules.colsample_bytree)
        self._of_nodes = self._rng(1) if rules.colsample_bynode < 1.0 else None

    def for_nodes(self, n_nodes: int) -> Bools:
        """The features of the nodes of the next level: [nodes, features], or [1, features] for all nodes alike."""
        of_level = self._of_tree
        if self._rules.colsample_bylevel < 1.0:
            of_level = _drawn(self._rng(2, self._level), of_level, self._rules.colsample_bylevel)
        self._level += 1
        if self._of_nodes is None:
            return of_level[None]
        rng, share = self._of_nodes, self._rules.colsample_bynode
        return np.stack([_drawn(rng, of_level, share) for _ in range(n_nodes)])

    def _rng(self, *purpose: int) -> np.random.Generator:
        return np.random.default_rng((self._rules.seed, self._tree, *purpose))


class InteractionPaths:
    """Which features the nodes of the newest level may ask about, given groups that may interact.

    Features in no group are a group of their own, as in scikit-learn. What is needed to go on to the next level is the
    feature that each node was split on, by its number among all features of the groups. Where a party knows only whose
    split it is, groups of whole parties can be kept with one number for each of them; groups that divide the columns
    of a party need its word for the column.
    """

    def __init__(self, groups: tuple[tuple[int, ...], ...], n_features: int) -> None:
        grouped = {feature for group in groups for feature in group}
        ungrouped = set(range(n_features)) - grouped
        if not grouped <= set(range(n_features)):
            raise InvalidParameter(f"interaction names feature {max(grouped)}, but there are {n_features} features")
        every = [*groups, tuple(sorted(ungrouped))] if ungrouped else list(groups)
        self._open = [(every, np.ones(n_features, np.bool_))]  # by node: groups that hold all of its path, their union

    @property
    def allowed(self) -> Bools:
        """[nodes, features]."""
        return np.stack([union for _, union in self._open])

    def split(self, feature: Ints) -> None:
        """The feature of each node of the newest level, -1 for a leaf; two children of each other one come next."""
        children = []
        for (groups, union), asked in zip(self._open, feature.tolist(), strict=True):
            if asked >= 0:
                holding = [group for group in groups if asked in group]
                narrower = np.zeros_like(union)
                narrower[[member for group in holding for member in group]] = True
                children += [(holding, narrower)] * 2
        self._open = children


class FeatureChoice:
    """Both together for one tree."""

    def __init__(self, rules: BoostingParams, n_features: int, tree_number: int) -> None:
        self._draw = FeatureDraw(rules, n_features, tree_number)
        self._paths = None if rules.interaction is None else InteractionPaths(rules.interaction, n_features)

    def for_nodes(self, n_nodes: int) -> Bools:
        """What the nodes of the next level may ask about: [nodes, features], or [1, features] for all alike."""
        drawn = self._draw.for_nodes(n_nodes)
        return drawn if self._paths is None else drawn & self._paths.allowed

    def split(self, feature: Ints) -> None:
        """The feature that each node of the newest level was split on, -1 for a leaf."""
        if self._paths is not None:
            self._paths.split(feature)


def _drawn(rng: np.random.Generator, allowed: Bools, share: float) -> Bools:
    """A share of the allowed features, at least one."""
    candidates = np.flatnonzero(allowed)
    chosen = np.zeros_like(allowed)
    chosen[rng.permutation(candidates)[: max(1, round(share * len(candidates)))]] = True
    return chosen
