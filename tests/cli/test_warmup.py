"""`hedgerow warmup`: kernels are compiled before anybody waits for them."""

from __future__ import annotations

import pytest

from hedgerow.runtime.protocol import names, services


def test_named_kernels_are_compiled(run):
    """Those that are named, with the seconds that it took; progress is on stderr."""
    found = run("warmup", "plain", "vertical.aligning", "--json").json
    assert list(found["seconds"]) == ["plain", "vertical.aligning"]
    told = run("warmup", "vertical.aligning")
    assert told.stdout.startswith("vertical.aligning: ready after ")


def test_an_unknown_name_is_refused(run):
    """Before anything is compiled, with the names that there are."""
    refused = run("warmup", "plain", "vertical.nonsense", code=2)
    assert "there are no kernels of 'vertical.nonsense'; there are plain, central.gaussian" in refused.stderr


@pytest.mark.long
def test_everything_can_be_compiled(run):
    """Without a name: the estimators, every protocol and every service."""
    found = run("warmup", "--json").json["seconds"]
    assert list(found) == ["plain", "central.gaussian", "central.dpboost", *names(), *services()]
