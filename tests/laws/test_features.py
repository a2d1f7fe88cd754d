"""One law: what the table says a protocol offers trains, and what it says a protocol lacks is refused with the reason.

Lossless protocols train the pooled engine's trees, bit for bit, with every feature, alone and in pairs, in threads and
in processes that talk over mutual TLS. The others must score about as well as the pooled engine does.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError
from hedgerow.runtime import features
from twins.features import CHANGES, LOSSLESS, OPTIONS, Case, fit_together, pooled, trained

CELLS = [(protocol, feature) for protocol in OPTIONS for feature in CHANGES]
LEFT = 20
"""How many cells of the table may still say "not yet". This number only goes down."""


def offered(protocol: str) -> list[str]:
    """Features that a protocol offers, and that a training can have."""
    return [feature for feature in CHANGES if features.offered(protocol, feature) is None]


def pairs(protocol: str) -> list[tuple[str, str]]:
    """Of offered features that one training can have both of."""
    return [both for both in itertools.combinations(offered(protocol), 2) if fit_together(*both)]


def check(case: Case, protocol: str, **how: object) -> None:
    """Equal to the pooled engine, or much like it where trees are the protocol's own."""
    found, wanted = trained(case, protocol, **how), pooled(case, protocol)
    if protocol in LOSSLESS:
        np.testing.assert_array_equal(found, wanted)
        return
    assert found.shape == wanted.shape
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.5


def refused(protocol: str, feature: str, reason: str, **how: object) -> None:
    """A training with this feature ends before it begins, and says why."""
    said = None if reason.startswith("not yet") else re.escape(reason)
    with pytest.raises(HedgerowError, match=said):
        trained(Case.of(feature), protocol, **how)


@pytest.mark.parametrize(("protocol", "feature"), CELLS)
def test_a_feature_trains_or_is_refused_with_the_reason(protocol: str, feature: str) -> None:
    """Each cell of the table is what happens."""
    reason = features.offered(protocol, feature)
    if reason is not None:
        refused(protocol, feature, reason)
    else:
        check(Case.of(feature), protocol)


DEBIASED = ("sample_weight", "class_weight", "early_stopping", "subsample", "classes", "poisson", "interaction_cst")


@pytest.mark.parametrize("feature", DEBIASED)
def test_features_train_on_randomised_buckets(feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees that allow for noise, which are not the pooled engine's, learn about the same with a feature."""
    randomised = {"epsilon": 8.0, "edges": "quantile", "buckets": 16, "debias": True}
    monkeypatch.setitem(OPTIONS, "vertical.bucket_rr", randomised)
    case = Case.of(feature)
    found, wanted = trained(case, "vertical.bucket_rr"), pooled(case, "vertical.bucket_rr")
    assert np.corrcoef(found.ravel(), wanted.ravel())[0, 1] > 0.5


@pytest.mark.long
@pytest.mark.timeout(900)  # some twenty runs, each with processes of its own
@pytest.mark.parametrize("protocol", OPTIONS)
def test_features_train_between_processes(protocol: str) -> None:
    """The same over mutual TLS: processes change nothing."""
    for feature in offered(protocol):
        check(Case.of(feature), protocol, transport="grpc")


@settings(max_examples=12)
@given(st.sampled_from([(name, both) for name in sorted(LOSSLESS) for both in pairs(name)]), st.integers(0, 3))
def test_random_pairs_of_features_train(where: tuple[str, tuple[str, str]], seed: int) -> None:
    """Two features at once are still the pooled engine's trees."""
    protocol, both = where
    check(Case.of(*both, seed=seed), protocol)


@pytest.mark.long
@pytest.mark.timeout(1800)  # about two hundred trainings
@pytest.mark.parametrize("protocol", OPTIONS)
def test_all_pairs_of_features_train(protocol: str) -> None:
    """Every pair of features that a protocol offers."""
    for both in pairs(protocol):
        check(Case.of(*both), protocol)


def test_every_feature_has_a_training() -> None:
    """No row of the table is without a case that trains with it, cross-validation aside."""
    assert set(CHANGES) == set(features.FEATURES) - {"cross_validation"}
    assert set(OPTIONS) == set(features.everywhere()) - {features.PLAIN, features.GAUSSIAN, features.DPBOOST}
    for name in features.everywhere():
        assert set(features.lacking(name)) <= set(features.FEATURES), name


def test_the_page_is_what_the_protocols_declare() -> None:
    """docs/reference/features.md is `features.page()`."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "features.md"
    assert page.read_text(encoding="utf-8") == "\n".join(features.page()) + "\n"


def test_what_is_left_goes_down() -> None:
    """The table has no more cells that say "not yet" than it had."""
    left = [
        (name, feature)
        for name in features.everywhere()
        for feature, reason in features.lacking(name).items()
        if reason.startswith("not yet")
    ]
    print(f"{len(left)} cells of the table say 'not yet': {left}")  # noqa: T201 - for whoever lowers LEFT
    assert len(left) <= LEFT
