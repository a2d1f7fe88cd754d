"""Fixtures for tests of more than one folder."""

from __future__ import annotations

import pytest
from hypothesis import settings

# The same examples every time, so that a red run is the fault of the change it belongs to. To look for new ones:
# make test ARGS='--hypothesis-profile=searching'
settings.register_profile("steady", derandomize=True)
settings.register_profile("searching", max_examples=1000, deadline=None)
settings.load_profile("steady")


@pytest.fixture(scope="module")
def threads_for_small_data():
    """Threads take part although the data of a test are far too small to need them."""
    from hedgerow.engine import growth, rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "CODES_WORTH_THREADS", 0)
        patch.setattr(rows, "UPDATES_WORTH_A_THREAD", 0)
        patch.setattr(rows, "CHUNK", 16)
        patch.setattr(growth, "CELLS_WORTH_A_THREAD", 0)
        yield
