"""A run between nodes that breaks off goes on: the same model, nothing matched, charged or grown twice."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hedgerow.errors import JobError, PeerFailed, ProtocolError
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node import playing
from hedgerow.node.audit import verify
from hedgerow.node.audit_cross import cross_check
from hedgerow.node.home import Home
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.runtime.party import Party
from hedgerow.runtime.running import run_together
from twins.organisations import (
    HOLDERS,
    LEAKS,
    TREES,
    VERTICAL,
    Interrupted,
    agreed_by_all,
    as_one_program,
    attempted,
    customers,
    data_of,
    job_text,
    or_raise,
    proposed,
    two_organisations,
)
from twins.stories import STORIES, homes_of_owners, vertical_homes

FIVE_TREES = {**TREES, "n_estimators": 5}
NOISED = [name for name, story in STORIES.items() if story.payers]


def begin(tmp_path, protocol):
    """Organisations that have agreed on a run."""
    parties, options = VERTICAL[protocol]
    homes = two_organisations(tmp_path, *(name for name in parties if name not in HOLDERS))
    if protocol == "vertical.mp_fedxgb":
        for home in homes.values():
            home.party_toml.write_text(home.party_toml.read_text().replace("[policy]", f"[policy]\n{LEAKS}"))
    homes = {name: Home(home.path) for name, home in homes.items()}
    proposal = proposed(homes["bank"], job_text(protocol, {**FIVE_TREES, **options}, parties))
    agreed_by_all(homes, proposal)
    return homes, proposal


@pytest.mark.parametrize("protocol", [name for name in VERTICAL if name != "vertical.mp_fedxgb"])
def test_the_model_is_that_of_a_run_that_never_broke_off(tmp_path, protocol):
    """Bit for bit, after two interruptions."""
    homes, proposal = begin(tmp_path, protocol)
    for stop_after, resume in ((2, False), (4, True)):
        broken = attempted(homes, proposal, stop_after=stop_after, resume=resume)
        assert isinstance(broken["bank"], Interrupted)
        assert all(isinstance(problem, Exception) for problem in broken.values())
    folders = or_raise(attempted(homes, proposal, resume=True))
    results = as_one_program(homes, proposal, folders)
    parts = {name: load_part(folders[name] / "part.json") for name in proposal.owners_of_data}
    more = customers(seed=6)
    rows = {"bank": more.select(["x0", "x1"]), "shop": more.select(["x2", "x3", "x4"])}
    there = {name: results[name] for name in parts}
    assert np.array_equal(VerticalModel(parts).decision_function(rows), VerticalModel(there).decision_function(rows))
    about = json.loads((folders["bank"] / "run.json").read_text())
    assert about["attempts"] == 3
    assert not (folders["bank"] / "checkpoints").exists()


def test_trails_of_all_attempts_agree(tmp_path):
    """Each party's trail is whole, and they tell the same of every attempt."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    attempted(homes, proposal, stop_after=2)
    attempted(homes, proposal, resume=True)
    trails = [home.audit for home in homes.values()]
    for path in trails:
        assert verify(path).findings == ()
    assert cross_check(trails).findings == ()
    kinds = [json.loads(line)["kind"] for line in homes["bank"].audit.read_text().splitlines()]
    assert kinds.count("run_started") == 2
    assert kinds.count("run_failed") == kinds.count("run_ended") == 1


def test_rows_are_matched_once(tmp_path):
    """A later attempt uses the rows that the first one found."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    attempted(homes, proposal, stop_after=1)
    folder = homes["shop"].runs / proposal.run_id
    before = (folder / "matching.jsonl").read_text()
    attempted(homes, proposal, resume=True)
    assert (folder / "matching.jsonl").read_text() == before
    assert (folder / "run.json").exists()


def test_a_run_that_was_begun_is_resumed_and_not_run(tmp_path):
    """Who says run is told what to say."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    attempted(homes, proposal, stop_after=1)
    found = attempted({"bank": homes["bank"]}, proposal)
    assert isinstance(found["bank"], JobError)
    assert "hedgerow resume" in str(found["bank"])


def test_lost_rows_are_not_matched_anew_behind_a_training(tmp_path):
    """If one party has lost its matched rows, who has trained on them does not go on with others."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    attempted(homes, proposal, stop_after=2)
    (homes["bank"].runs / proposal.run_id / "rows.npy").unlink()
    found = attempted(homes, proposal, resume=True)
    assert "propose it again" in str(found["shop"])


# --- the end, which all reach or none --------------------------------------------------------------------------------


def test_who_is_gone_before_it_hears_that_all_are_done_is_told_when_it_comes_back(tmp_path, monkeypatch):
    """The bank's run is over and the shop's is not: the shop has its result, and asks; nothing is played again."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    end = playing._end

    def gone(node, *args, **facts):
        if node.name == "shop":
            raise Interrupted
        end(node, *args, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(playing, "_end", gone)
        found = attempted(homes, proposal)
    folders = {name: home.runs / proposal.run_id for name, home in homes.items()}
    assert found["bank"] == folders["bank"]
    assert isinstance(found["shop"], Interrupted)
    before = (folders["shop"] / "part.json").read_bytes()
    assert not (folders["shop"] / "run.json").exists()
    assert attempted(homes, proposal, resume=True) == folders
    assert json.loads((folders["shop"] / "run.json").read_text())["attempts"] == 1
    assert (folders["shop"] / "part.json").read_bytes() == before
    assert not (folders["shop"] / "checkpoints").exists()
    trails = [home.audit for home in homes.values()]
    assert cross_check(trails).findings == ()


def test_nobody_is_done_before_all_have_their_results(tmp_path, monkeypatch):
    """If one cannot keep its result, the other one is not done either, and both go on together."""
    homes, proposal = begin(tmp_path, "vertical.noised_gradients")
    save = playing._save

    def full_disk(node, *args):
        if node.name == "shop":
            raise OSError("no space left")
        save(node, *args)

    with monkeypatch.context() as patch:
        patch.setattr(playing, "_save", full_disk)
        found = attempted(homes, proposal)
    assert isinstance(found["shop"], OSError)
    assert isinstance(found["bank"], PeerFailed)
    folders = {name: home.runs / proposal.run_id for name, home in homes.items()}
    assert not any((folder / "run.json").exists() for folder in folders.values())
    assert attempted(homes, proposal, resume=True) == folders


# --- budgets ---------------------------------------------------------------------------------------------------------


def broken_off_at_once(tmp_path, monkeypatch):
    """The bank was charged, has kept nothing, and the run broke off."""
    story = STORIES["noised_gradients, noised"]
    homes = vertical_homes(tmp_path, story.payers)
    homes = {name: homes[name] for name in story.parties}
    proposal = proposed(homes["bank"], story.job)
    agreed_by_all(homes, proposal)

    def breaks(*_):
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr("hedgerow.protocols.vertical.noised_gradients.label_holder.begin_as_label_holder", breaks)
        assert isinstance(attempted(homes, proposal)["bank"], Interrupted)
    return homes, proposal, homes["bank"].runs / proposal.run_id / "checkpoints"


def test_who_was_charged_and_has_released_nothing_goes_on(tmp_path, monkeypatch):
    """What is released is kept before: an empty folder says that nothing was, and the charge is for what comes now."""
    homes, proposal, kept = broken_off_at_once(tmp_path, monkeypatch)
    assert list(kept.iterdir()) == []
    found = attempted(homes, proposal, resume=True)
    assert found["bank"] == kept.parent
    kinds = [json.loads(line)["kind"] for line in homes["bank"].audit.read_text().splitlines()]
    assert kinds.count("charged") == 1


def test_who_was_charged_and_has_lost_its_folder_does_not_go_on(tmp_path, monkeypatch):
    """Nobody could tell what it has released, and it would draw its noise a second time."""
    homes, proposal, kept = broken_off_at_once(tmp_path, monkeypatch)
    kept.rmdir()
    found = attempted(homes, proposal, resume=True)
    assert isinstance(found["bank"], ProtocolError)
    assert "a second time" in str(found["bank"])


@pytest.mark.parametrize("name", NOISED)
def test_what_is_released_with_noise_is_kept_before(tmp_path, monkeypatch, name):
    """In every protocol with a budget: nothing with noise leaves a party that has kept nothing."""
    story, sent = STORIES[name], []
    homes = (vertical_homes if story.is_vertical else homes_of_owners)(tmp_path)
    proposal = proposed(next(iter(homes.values())), story.job)
    send = Party._send

    def checked(me, to, message, frame, event):
        if event is not None and me.checkpoints is not None:  # not in the warm-up
            sent.append(me.name)
            assert me.checkpoints.trees, f"{me.name} sends {message.NAME}"
        send(me, to, message, frame, event)

    monkeypatch.setattr(Party, "_send", checked)
    data = data_of(homes, proposal)
    kept = {each: Checkpoints() for each in proposal.chosen.protocol.parties(proposal.job)}
    run_together(proposal.chosen.protocol, proposal.job, data, checkpoints=kept)
    assert sent
    assert set(sent) <= set(story.payers)  # a coordinator's own part goes to nobody
