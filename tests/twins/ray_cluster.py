"""A small Ray cluster for a module's tests, and actors that all of them share: starting those takes longest."""

from __future__ import annotations

import gc
import warnings
from contextlib import contextmanager

import pytest

from hedgerow.engine.rows_ray.actors import Crew

TRIES = 3


def start(ray, n_processors):
    """A new cluster on this machine. Ray gives up after 30 seconds, which a busy machine may need."""
    how = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 100 * 2**20}
    for left in reversed(range(TRIES)):
        try:
            ray.init(address="local", num_cpus=n_processors, **how)
        except Exception:
            if not left:
                raise
            ray.shutdown()
            gc.collect()  # what is left of it warns here, and not in somebody else's test
        else:
            return


@contextmanager
def small_cluster(n_processors):
    """The package `ray`, connected to a cluster of its own."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # Ray's own, about its plans and about files that it leaves open
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        start(ray, n_processors)
        try:
            yield ray
        finally:
            ray.shutdown()


@contextmanager
def lent(crew, *places):
    """Let whoever makes a `Crew`, in these modules, get as many actors of this one as it asks for."""
    everybody = list(crew.actors)

    def borrow(_ray, _backend, n_actors):
        everybody[: len(crew.actors)] = crew.actors  # some may have been replaced
        crew.actors = everybody[:n_actors]
        return crew

    with pytest.MonkeyPatch.context() as patch:
        for place in places:
            patch.setattr(f"{place}.Crew", borrow)
        patch.setattr(Crew, "close", lambda _crew: None)
        yield crew
    everybody[: len(crew.actors)] = crew.actors
    crew.actors = everybody
