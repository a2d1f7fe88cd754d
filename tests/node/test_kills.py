"""kill -9 of random parties at random points, and resume: nothing is lost, nothing is spent twice, the same model."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from hedgerow.aborts import ABORT
from hedgerow.ledger import Ledger
from hedgerow.node.audit import verify
from hedgerow.node.audit_cross import cross_check
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.runtime.checkpoint import GoOnFrom
from hedgerow.transport.frames import decode
from twins.killed_nodes import Death, Nodes
from twins.organisations import agreed_by_all, proposed
from twins.stories import DP, STORIES, check_same_model, homes_of_owners, vertical_homes

N_KILLS = 50
KILLS_PER_RUN = 5
MOST_STEPS = 190  # of one process in one attempt, more or less
EXACT = ("noised_gradients", "bucket_rr", "secret_shared", "mp_fedxgb", "secure_sum")
NOISED = ("noised_gradients, noised", "bucket_rr, noised", "private_histograms", "secure_sum, dp")
FRESH = {
    "vertical.on_shares.dealt",
    "vertical.on_shares.masked_words",
    "vertical.on_shares.seed",
    "vertical.shared_rows.masked_bins",
    "vertical.secret_shared.masked_columns",
    "vertical.blinded_ids",
    "horizontal.masked_histogram",
    "horizontal.masked_totals",
    "horizontal.noisy_sum",
    "horizontal.mask_key",
}
"""Messages that are uniform to their receivers: under fresh masks, or seeds for them."""
DRAWN_ONCE = {"vertical.noised_gradients.noisy_gradients": 3, "vertical.bucket_rr.buckets": 1}
"""Messages with noise of which there are so many different ones in a run, however often they are sent."""


def random_deaths(rng, parties):
    """Most before a step, some by the clock."""
    deaths = []
    for _ in range(KILLS_PER_RUN):
        party = parties[rng.integers(len(parties))]
        by_clock = rng.random() < 0.2
        deaths.append(
            Death(party, after=float(rng.random() * 2.5))
            if by_clock
            else Death(party, int(rng.integers(1, MOST_STEPS)))
        )
    return deaths


def play(folder, name, deaths):
    """The run of a story with these deaths; its nodes, its proposal, and how many were killed."""
    folder.mkdir()
    story = STORIES[name]
    make = vertical_homes if story.is_vertical else homes_of_owners
    homes = make(folder, story.payers)
    homes = {party: homes[party] for party in story.parties}
    proposal = proposed(next(iter(homes.values())), story.job)
    agreed_by_all(homes, proposal)
    nodes = Nodes(homes, folder)
    return nodes, proposal, nodes.play(proposal, deaths)


@pytest.mark.long
@pytest.mark.timeout(1800)  # a few minutes on quiet cores
def test_fifty_kills(tmp_path):
    """Whoever is killed wherever, and again while others resume: all have their results, as if nothing had happened."""
    rng, n_killed, number = np.random.default_rng(2024), 0, 0
    while n_killed < N_KILLS:
        name = (*EXACT, *NOISED)[number % len(EXACT + NOISED)]
        number += 1
        assert number <= 2 * N_KILLS // KILLS_PER_RUN, f"only {n_killed} were killed"
        deaths = random_deaths(rng, list(STORIES[name].parties))
        nodes, proposal, more = play(tmp_path / str(number), name, deaths)
        n_killed += more
        check(nodes, proposal, STORIES[name])


def check(nodes, proposal, story):
    """All that must hold of a run, however often it was broken off."""
    folders = {name: home.runs / proposal.run_id for name, home in nodes.homes.items()}
    about = [json.loads((folder / "run.json").read_text()) for folder in folders.values()]
    assert len({each["attempts"] for each in about}) == 1
    assert not any((folder / "checkpoints").exists() for folder in folders.values())
    if story.is_exact:
        check_same_model(nodes.homes, proposal, story)
    else:
        check_charges(nodes.homes, proposal, story)
    check_lost_work(nodes.acts)
    check_secrets(nodes.acts)
    for home in nodes.homes.values():
        check_books(home, proposal, nodes)
    trails = [home.audit for home in nodes.homes.values()]
    assert [verify(trail).findings for trail in trails] == [()] * len(trails)
    assert cross_check(trails).findings == ()


def check_charges(homes, proposal, story):
    """Whoever pays has paid once, what was agreed on, and wrote it down."""
    for name in story.payers:
        books = BudgetFile(homes[name].budget)
        (entry,) = (entry for dataset in books.datasets() for entry in books.dataset(dataset).entries())
        assert proposal.run_id in entry.what
        assert 0.0 < entry.epsilon <= DP["epsilon"] * (1 + 1e-6)
        kinds = [json.loads(line)["kind"] for line in homes[name].audit.read_text().splitlines()]
        assert kinds.count("charged") == 1


def check_lost_work(acts):
    """Who goes on begins again at most one tree that anybody had kept."""
    most_kept = 0
    for act in acts:
        if act.what == "replace" and act.name.endswith(".kept"):
            most_kept = max(most_kept, int(act.name.rpartition("trees-")[2].removesuffix(".kept")))
        if act.name == GoOnFrom.NAME:
            go_on_from = decode(bytes.fromhex(act.frame), GoOnFrom).n_trees
            assert go_on_from >= most_kept - 1
            most_kept = go_on_from


def check_books(home, proposal, nodes):
    """Whatever a party sent in any attempt is in its book; beside it, what it wrote down right before it was killed."""
    folder = home.runs / proposal.run_id
    kept = [path for name in ("matching", "ledger") if (path := folder / f"{name}.jsonl").exists()]
    books = [Ledger.from_json_lines(home.name, path.read_text()) for path in kept]
    written = Counter((line.peer, line.message) for book in books for line in book.lines("disclosed"))
    sent = Counter((act.to, act.name) for act in nodes.acts if (act.what, act.party) == ("send", home.name))
    missing = {key: (times, sent[key]) for key, times in written.items() if times < sent[key] and key[1] != ABORT}
    assert missing == {}
    more = sum(times - sent[key] for key, times in written.items() if key[1] != ABORT)
    assert more <= nodes.n_killed[home.name]


def check_secrets(acts):
    """No mask covers the same words twice, and noise that is drawn once goes out as it was."""
    sent = [act for act in acts if act.what == "send"]
    fresh = Counter((a.party, a.to, a.name, a.digest) for a in sent if a.name in FRESH and not a.frame)
    assert [key for key, times in fresh.items() if times > 1] == []
    for name, n_different in DRAWN_ONCE.items():
        assert len({act.digest for act in sent if act.name == name}) in (0, n_different)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_kill_in_every_gap_of_the_end_and_the_beginning(tmp_path):
    """Before rows are kept, after the charge, before noise is kept, and when one is done and the other is not yet."""
    deaths = [
        Death("shop", before="rows.npy"),
        Death("bank", before="vertical.go_ahead"),  # charged, and nothing kept
        Death("bank", before="trees-0.kept"),
        Death("bank", before="run.json"),
        Death("shop", before="run.json"),
    ]
    nodes, proposal, n_killed = play(tmp_path / "run", "noised_gradients, noised", deaths)
    assert n_killed == len(deaths)
    check(nodes, proposal, STORIES["noised_gradients, noised"])
