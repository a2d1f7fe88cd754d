from __future__ import annotations

import math

import pytest

from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.privacy.calibrate import Budget, sigma_for_mu
from hedgerow.privacy.events import Composed, DiscreteGaussian, Gaussian, NonPrivate, Repeated


def test_all_of_it_can_be_spent_but_no_more():
    """A hundred releases calibrated to the budget pass; the next one, however small, is refused and leaves no trace."""
    budget = Budget(1.0, 1e-6)
    event = DiscreteGaussian(5.0, sigma_for_mu(5.0, budget.mu_squared / 100), 3)
    for _ in range(100):
        budget.spend(event)
    budget.check()
    assert 0.999999 < budget.spent <= 1.0
    with pytest.raises(ProtocolError, match=r"would go beyond epsilon = 1.0 at delta = 1e-06"):
        budget.spend(Gaussian(1.0, 1e3))
    assert 0.999999 < budget.spent <= 1.0


@pytest.mark.parametrize("event", [NonPrivate("?"), Composed((Gaussian(1.0, 1e3), NonPrivate("?")))])
def test_a_release_without_guarantee_is_for_infinite_budgets(event):
    """It is refused by any finite budget, also as a part; an infinite one allows all and knows it."""
    with pytest.raises(ProtocolError):
        Budget(5.0, 1e-6).spend(event)
    free = Budget(math.inf, 1e-6)
    free.spend(event)
    free.check()
    assert free.spent == math.inf


def test_what_is_not_understood_is_refused():
    """An event that the accountant cannot price is not let through, whatever the budget."""
    budget = Budget(math.inf, 1e-6)
    with pytest.raises(InvalidParameter):
        budget.spend(Gaussian(1.0, 1.0, "replace_one"))
    assert budget.spent == 0.0


def test_repetitions_are_paid_for():
    """Nine at once are nine."""
    budget = Budget(1.0, 1e-6)
    event = DiscreteGaussian(5.0, sigma_for_mu(5.0, budget.mu_squared / 10), 3)
    budget.spend(Repeated(event, 9))
    budget.spend(event)
    with pytest.raises(ProtocolError):
        budget.spend(event)


def test_the_final_check_looks_at_the_events():
    """Even if something got past `spend`, the sum over all events decides."""
    budget = Budget(1.0, 1e-6)
    budget.accountant.compose(Gaussian(1.0, 1.0))
    with pytest.raises(ProtocolError, match=r"more than 1\.0"):
        budget.check()
