"""Fixtures for tests of more than one folder."""

from __future__ import annotations

import gc
import os
from functools import cache

import pytest
from hypothesis import settings

# The same examples every time, so that a red run is the fault of the change it belongs to. To look for new ones:
# make test ARGS='--hypothesis-profile=searching'. Neither has a deadline: how long an example takes depends on what
# else the machine is doing.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("searching", max_examples=1000, deadline=None)
settings.load_profile("steady")

# Tests start more than a hundred processes. Bytecode is kept for them where kernels are kept, beside the sources;
# without it each would translate all of the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.setdefault("HEDGEROW_QUIET", "1")  # some tests read all of stderr, whether kernels are compiled or not

gc.disable()  # until all is loaded: next to nothing of it is garbage


def pytest_collection_finish():
    """What is loaded by now stays to the end, so the garbage collector need not walk it again and again.

    Without this and with the collector's usual patience, it takes a good part of the time of all tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


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


@pytest.fixture(scope="module")
def remembered_deltas():
    """Two ways of saying the same end in one loss distribution, which need not be asked the same things twice."""
    from hedgerow.privacy import privacy_loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy_loss.Deltas, "delta", cache(privacy_loss.Deltas.delta))
        yield
