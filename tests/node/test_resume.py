"""A run between nodes that breaks off goes on: the same model, nothing matched, charged or grown twice."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hedgerow.errors import JobError
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node.audit import verify
from hedgerow.node.audit_cross import cross_check
from hedgerow.node.home import Home
from hedgerow.protocols.vertical.common.parts import load_part
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
    job_text,
    or_raise,
    proposed,
    two_organisations,
)

FIVE_TREES = {**TREES, "n_estimators": 5}


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
