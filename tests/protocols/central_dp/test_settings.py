"""Settings: what is refused, and what follows from what is accepted."""

from __future__ import annotations

import math

import pytest

from hedgerow.errors import InvalidParameter
from hedgerow.protocols.central.dpboost.settings import DPBoostSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": "1"},
        {"epsilon": True},
        {"epsilon": 1e7},
        {"epsilon": 1e-5},
        {"protocol": "central.magic"},
        {"loss": "poisson"},
        {"assignment": "random"},
        {"binning": "from_data"},
        {"selection": "best"},
        {"gain": "newton"},
        {"n_trees": 0},
        {"n_trees": 2.0},
        {"trees_per_ensemble": 0},
        {"max_depth": 0},
        {"max_depth": 11},
        {"max_bins": 1},
        {"max_bins": 255},
        {"learning_rate": 0.0},
        {"learning_rate": 1.0},
        {"learning_rate": 0.999},
        {"l2": -0.1},
        {"l2": math.inf},
        {"leaf_share": 0.0},
        {"leaf_share": 1.0},
        {"binning_share": 0.0},
        {"clipped_count_share": 1.0},
        {"binning": "private", "binning_share": 0.6, "clipped_count_share": 0.5},
        {"filtering": 1},
        {"leaf_clipping": None},
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong):
    """With the parameter's name and value, before there is any data."""
    with pytest.raises(InvalidParameter, match=next(iter(wrong))):
        DPBoostSettings(**({"epsilon": 1.0} | wrong))


def test_plain_cannot_have_an_epsilon():
    """Nobody gets a model without noise who asked for some."""
    with pytest.raises(InvalidParameter, match="not private"):
        DPBoostSettings(epsilon=1.0, protocol="central.plain")


@pytest.mark.parametrize(
    ("options", "ensembles"),
    [
        ({"n_trees": 50}, (50,)),
        ({"n_trees": 120}, (50, 50, 20)),
        ({"n_trees": 20}, (20,)),
        ({"n_trees": 3, "protocol": "central.sequential"}, (1, 1, 1)),
        ({"n_trees": 120, "protocol": "central.parallel"}, (120,)),
    ],
)
def test_ensembles(options, ensembles):
    """Trees that share an ensemble, ensemble by ensemble."""
    assert DPBoostSettings(epsilon=1.0, **options).ensembles == ensembles


def test_budget_is_shared_out():
    """Levels and leaves of a tree, ensembles, bins and the count add up to epsilon, never more."""
    settings = DPBoostSettings(epsilon=2.0, n_trees=100, binning="private", leaf_share=0.3, max_depth=4)
    per_tree = 4 * settings.epsilon_per_level + settings.epsilon_of_leaves
    assert per_tree == pytest.approx(2.0 * 0.94 / 2)
    assert settings.epsilon_of_leaves == pytest.approx(0.3 * per_tree)
    total = 2 * per_tree + settings.epsilon_of_bins + settings.epsilon_of_count
    assert 2.0 * (1 - 1e-9) < total <= 2.0


def test_leaf_clip_shrinks_within_an_ensemble_only_for_dpboost():
    """tau = g* (1 - eta)^place."""
    settings = DPBoostSettings(epsilon=1.0, learning_rate=0.2, loss="logistic")
    assert settings.leaf_clip(0) == 0.5
    assert settings.leaf_clip(2) == pytest.approx(0.32)
    assert math.isinf(DPBoostSettings(epsilon=1.0, leaf_clipping=False).leaf_clip(3))
    assert math.isinf(DPBoostSettings(epsilon=1.0, protocol="central.parallel").leaf_clip(3))


def test_infinite_epsilon_is_infinite_everywhere():
    """No share of it is anything else."""
    settings = DPBoostSettings(epsilon=math.inf, binning="private")
    shares = (
        settings.epsilon_of_bins,
        settings.epsilon_of_count,
        settings.epsilon_per_level,
        settings.epsilon_of_leaves,
    )
    assert all(math.isinf(share) for share in shares)
