"""Every message says what its numbers may be, so that `recv` can check them."""

from __future__ import annotations

import pytest

from hedgerow.runtime.protocol import find, names, services
from hedgerow.transport.frames import registered
from twins.unstated import unstated


def messages():
    """The message classes of all protocols and services."""
    for name in (*names(), *services()):
        find(name)
    return [kind for kind in registered().values() if kind.__module__.startswith("hedgerow.")]


@pytest.mark.parametrize("kind", messages(), ids=lambda kind: kind.NAME)
def test_every_field_of_every_message_states_its_range(kind):
    """No number without limits, no array, bytes or texts without a size."""
    assert unstated(kind) == []
