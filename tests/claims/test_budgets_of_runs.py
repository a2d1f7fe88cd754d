"""A party's budget is charged before anything is released, and stays charged when a run fails."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from hedgerow import Federation, Schema
from hedgerow.errors import BudgetExceeded, HedgerowError, InvalidParameter, ProtocolError
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.runtime.party import Party

DELTA = 1e-5
SCHEMA = Schema.from_public(bounds={"x0": (-3, 3), "x1": (-3, 3)}, classes=[False, True])


def horizontal(n_rows=60):
    """Three owners of rows."""
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(n_rows, 2)) for name in ("a", "b", "c")}
    return Federation.horizontal({name: (X, X[:, 0] > 0) for name, X in data.items()})


def vertical(n_rows=60):
    """Two parties with two columns each."""
    rng = np.random.default_rng(0)
    bank, shop = rng.normal(size=(n_rows, 2)), rng.normal(size=(n_rows, 2))
    return Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", bank[:, 0] + shop[:, 1] > 0))


SMALL = {"n_estimators": 1, "max_depth": 1}
WAYS = {
    "horizontal.secure_sum": (horizontal, {"dp": (1.0, DELTA), "schema": SCHEMA}, "a", "coordinator", "add_remove"),
    "vertical.bucket_rr": (vertical, {"epsilon": 0.5, "schema": SCHEMA, **SMALL}, "shop", "bank", "replace_one"),
    "vertical.noised_gradients": (vertical, {"epsilon": 1.0, "delta": DELTA, **SMALL}, "bank", "shop", "replace_one"),
    "vertical.private_histograms": (
        vertical, {"epsilon": 1.0, "delta": DELTA, "schema": SCHEMA, **SMALL}, "shop", "bank", "add_remove"
    ),
    "vertical.private_histograms, histogram": (
        vertical,
        {"epsilon": 1.0, "delta": DELTA, "schema": SCHEMA, "reveal": "histogram", **SMALL},
        "shop",
        "bank",
        "add_remove",
    ),
    "vertical.private_histograms, smooth": (
        vertical,
        {"epsilon": 1.0, "delta": DELTA, "schema": SCHEMA, "policy": "smooth_then_trees"},
        "shop",
        "bank",
        "add_remove",
    ),
}  # fmt: skip
"""Way -> federation, options of a run that costs epsilon 1, a party with a budget, a peer of it, adjacency."""


@contextmanager
def failing(peer):
    """The peer fails as soon as something noisy was sent; yields the ledgers of all parties of the runs."""
    send, recv, seen, ledgers = Party.send, Party.recv, set(), []

    def watched(self, to, message, *, event=None):
        send(self, to, message, event=event)
        if event is not None and self.on_charge is not None:  # not in the rehearsal
            seen.add(peer)
            ledgers.append(self.ledger)

    def refused(self, sender, kind, **how):
        if self.name in seen:
            seen.clear()
            raise ProtocolError(f"{self.name} has had enough")
        return recv(self, sender, kind, **how)

    with patch.object(Party, "send", watched), patch.object(Party, "recv", refused):
        yield ledgers


@pytest.mark.parametrize("way", WAYS)
def test_runs_that_fail_after_a_noisy_release_stay_charged(way, tmp_path):
    """Of forty runs that a peer breaks off, a budget for three lets three begin: noise is not averaged away."""
    make, options, party, peer, adjacency = WAYS[way]
    budget = BudgetFile(tmp_path / "budget").open("rows", 3.0, 4 * DELTA, adjacency)
    federation, protocol = make(), way.split(",")[0]
    with failing(peer) as ledgers:
        for number in range(1, 41):
            with pytest.raises(HedgerowError) as raised:
                federation.fit(protocol, budget={party: budget}, **options)
            assert isinstance(raised.value, BudgetExceeded) == (number > 3), raised.value
    entries = budget.entries()
    assert [entry.state for entry in entries] == ["kept"] * 3
    assert all(entry.what.startswith(f"{protocol}, run ") for entry in entries)
    assert 3.0 * (1 - 1e-8) <= budget.spent().epsilon <= 3.0 * (1 + 1e-9)
    assert any(line.event is not None for ledger in ledgers for line in ledger)


@pytest.mark.parametrize("way", WAYS)
def test_finished_runs_are_charged_what_they_cost(way, tmp_path):
    """What is charged is no less than what the model says about its training, and the next run does not fit."""
    make, options, party, _, adjacency = WAYS[way]
    budget = BudgetFile(tmp_path / "budget").open("rows", 1.5, 4 * DELTA, adjacency)
    run = make().fit(way.split(",")[0], budget={party: budget}, **options)
    (entry,) = budget.entries()
    assert entry.state == "settled"
    assert run.job.run_id in entry.what
    assert 1.0 - 1e-8 <= entry.epsilon <= 1.0 + 1e-9
    if "privacy" in run.meta:
        assert run.meta["privacy"]["epsilon"] <= entry.epsilon * (1 + 1e-8)
    sent = []
    with patch.object(Party, "send", lambda *_, **__: sent.append(1)), pytest.raises(BudgetExceeded, match="epsilon"):
        make().fit(way.split(",")[0], budget={party: budget}, **options)
    assert not sent


def test_a_budget_is_charged_in_the_process_of_its_party(tmp_path):
    """With gRPC each party has its own file; who has none is not charged; a second run is refused for all."""
    files = {name: BudgetFile(tmp_path / name).open("rows", 1.0, DELTA) for name in ("bank", "shop")}
    own = WAYS["vertical.private_histograms"][1]
    run = vertical().fit("vertical.private_histograms", budget=files, transport="grpc", **own)
    for dataset in files.values():
        (entry,) = dataset.entries()
        assert (entry.state, run.job.run_id in entry.what) == ("settled", True)
    with pytest.raises(BudgetExceeded):
        vertical().fit("vertical.private_histograms", budget={"shop": files["shop"]}, transport="grpc", **own)


def test_buckets_that_were_kept_cost_nothing_again(tmp_path):
    """The budget and the book of transfers agree: one entry for each line of the book, none where nothing was sent."""
    budget = BudgetFile(tmp_path / "budget").open("rows", 1.0, 0.0, "replace_one")
    federation = vertical()
    how = {"epsilon": 0.5, "schema": SCHEMA, "cache": str(tmp_path / "kept"), "budget": {"shop": budget}, **SMALL}
    for _ in range(3):
        run = federation.fit("vertical.bucket_rr", **how)
    assert [entry.epsilon for entry in budget.entries()] == [1.0]
    assert run.meta["transfers"]["shop"]["history"]["per_record"] == budget.spent().epsilon
    book = (tmp_path / "kept" / "shop").glob("*.jsonl")
    assert sum(len(path.read_text().splitlines()) for path in book) == 1
    with pytest.raises(BudgetExceeded):
        federation.fit("vertical.bucket_rr", transfer="again", **how)
    assert len(budget.entries()) == 1


def test_a_record_of_several_parties_is_charged_by_each(tmp_path):
    """A budget too small for one party stops the run before another one is charged."""
    small = BudgetFile(tmp_path / "a").open("rows", 0.5, DELTA)
    large = BudgetFile(tmp_path / "b").open("rows", 5.0, DELTA)
    options = WAYS["horizontal.secure_sum"][1]
    with pytest.raises(BudgetExceeded):
        horizontal().fit("horizontal.secure_sum", budget={"b": large, "a": small}, **options)
    assert not large.entries()


@pytest.mark.parametrize(
    ("protocol", "options", "party", "words"),
    [
        ("vertical.noised_gradients", {"epsilon": 1.0, "delta": DELTA, "per": "message"}, "bank", "without guarantee"),
        ("vertical.noised_gradients", {"epsilon": 1.0, "delta": DELTA}, "shop", "without guarantee"),
        ("vertical.bucket_rr", {"epsilon": 1.0, "schema": SCHEMA}, "bank", "without guarantee"),
        ("vertical.bucket_rr", {"epsilon": 1.0, "edges": "quantile"}, "shop", "without guarantee"),
        ("vertical.private_histograms", {"epsilon": np.inf, "schema": SCHEMA}, "shop", "without guarantee"),
        ("vertical.secret_shared", {}, "shop", "without guarantee"),
    ],
)
def test_what_has_no_guarantee_cannot_be_charged(protocol, options, party, words, tmp_path):
    """A budget is a promise: runs that give none for this party are refused."""
    budget = BudgetFile(tmp_path / "budget").open("rows", 100.0, DELTA, "replace_one")
    with pytest.raises(BudgetExceeded, match=words):
        vertical().fit(protocol, budget={party: budget}, **options, **SMALL)
    assert not budget.entries()


def test_wrong_budgets_are_refused(tmp_path):
    """Who is not there, and what is no budget."""
    budget = BudgetFile(tmp_path / "budget").open("rows", 1.0, DELTA)
    options = WAYS["vertical.private_histograms"][1]
    for wrong, words in (
        ({"dealer": budget}, "budget names 'dealer'"),
        ({"bank": 1.0}, "the budget of bank must be"),
        (budget, "budget must be a dict"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            vertical().fit("vertical.private_histograms", budget=wrong, **options)
