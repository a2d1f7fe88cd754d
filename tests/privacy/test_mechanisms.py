from __future__ import annotations

import numpy as np
import pytest

from hedgerow.errors import FixedPointOverflow, InvalidParameter
from hedgerow.privacy.events import DiscreteGaussian, NonPrivate
from hedgerow.privacy.mechanisms import discrete_gaussian


def test_value_and_event_are_born_together():
    """The noise has the scale that the event states, in the shape of the values, around the values."""
    values = np.full((300, 100), 10**12)
    released = discrete_gaussian(values, sensitivity=3.0, sigma=500.0, random=np.random.default_rng(0), parties=4)
    assert released.event == DiscreteGaussian(3.0, 500.0, coordinates=30_000, parties=4)
    noise = released.values - values
    assert noise.shape == (300, 100)
    assert abs(noise.std() / 500 - 1) < 0.02
    assert abs(noise.mean()) < 15
    assert (values == 10**12).all()


def test_no_noise_is_named():
    """Sigma 0 gives a copy of the values, and an event that says so."""
    values = np.arange(3)
    released = discrete_gaussian(values, sensitivity=1.0, sigma=0.0, random=np.random.default_rng(0))
    assert isinstance(released.event, NonPrivate)
    assert released.values.tolist() == [0, 1, 2]
    assert released.values is not values


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros(3, np.int32), [1, 2]])
def test_only_whole_numbers_of_64_bits(values):
    """Floats are refused: rounding them here would change their sensitivity unseen."""
    with pytest.raises(InvalidParameter, match="int64"):
        discrete_gaussian(values, sensitivity=1.0, sigma=1.0, random=np.random.default_rng(0))


@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_sums_leave_room_for_noise(value):
    """A sum near the end of 64 bits is refused, so that noise never wraps round."""
    with pytest.raises(FixedPointOverflow, match="room for noise"):
        discrete_gaussian(np.array([value]), sensitivity=1.0, sigma=1.0, random=np.random.default_rng(0))
