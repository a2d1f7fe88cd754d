"""What the red team measured is part of statements, and never above the claim."""

from __future__ import annotations

import math

import pytest

from hedgerow.protocols.central.released import LOWER_BOUNDS, audit_of


@pytest.mark.parametrize("protocol", LOWER_BOUNDS)
def test_no_measurement_refutes_its_claim(protocol):
    """Each lower bound is above 0, below its claim, and grows with it."""
    bounds = LOWER_BOUNDS[protocol]
    assert all(0.0 < lower < claim for claim, lower in bounds.items())
    assert sorted(bounds.values()) == [bounds[claim] for claim in sorted(bounds)]


def test_the_nearest_claim_below_is_told():
    """Never one above: its bound might exceed what is claimed here."""
    assert audit_of("central.dpboost", 1.5)["claim"] == 1.0
    assert audit_of("central.dpboost", 100.0)["claim"] == 8.0
    assert audit_of("central.dpboost", 0.1) is None
    assert audit_of("central.dpboost", math.inf) is None
    assert audit_of("central.sequential", 1.0) is None
