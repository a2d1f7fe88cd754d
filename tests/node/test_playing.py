"""A run across nodes: the same roles, the same model as on one machine; and who is not let into one."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from hedgerow.errors import ClusterError, InvalidInput, JobError, PeerFailed, PeerRefused
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.ledger import Ledger, reconcile
from hedgerow.node import commitments
from hedgerow.node.commitments import Opening
from hedgerow.node.home import Home
from hedgerow.node.inputs import Inputs
from hedgerow.node.papers import Papers, answer
from hedgerow.node.playing import check_may_begin, play
from hedgerow.node.policy import RefusalCode
from hedgerow.protocols.services.align import on_ray
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.runtime import running
from twins.organisations import (
    HOLDERS,
    LEAKS,
    TREES,
    VERTICAL,
    agreed_by_all,
    as_one_program,
    at_every_node,
    customers,
    job_text,
    make_home,
    proposed,
    trained,
    two_organisations,
)
from twins.stories import STORIES, check_same_model, homes_of_owners, vertical_homes


@pytest.mark.parametrize("protocol", VERTICAL)
def test_the_model_is_that_of_one_program(tmp_path, protocol):
    """Bit for bit: trees, thresholds and leaves of every party's part, whoever dials whom."""
    parties, options = VERTICAL[protocol]
    others = [name for name in parties if name not in HOLDERS]
    homes = two_organisations(tmp_path, *others)
    for home in homes.values():
        if protocol == "vertical.mp_fedxgb":
            home.party_toml.write_text(home.party_toml.read_text().replace("[policy]", f"[policy]\n{LEAKS}"))
    homes = {name: Home(home.path) for name, home in homes.items()}
    proposal = proposed(homes["bank"], job_text(protocol, {**TREES, **options}, parties))
    folders = trained(homes, proposal)
    results = as_one_program(homes, proposal, folders)
    first = proposal.chosen.protocol.parties(proposal.job)[0]
    proposal.chosen.sign(results[first], proposal.job, has_names=True)
    parts = {name: load_part(folders[name] / "part.json") for name in proposal.owners_of_data}
    for name, part in parts.items():
        assert _comparable(part) == _comparable(results[name])
    more = customers(seed=6)
    rows = {"bank": more.select(["x0", "x1"]), "shop": more.select(["x2", "x3", "x4"])}
    here, there = ({name: each[name] for name in parts} for each in (parts, results))
    scores = [VerticalModel(each).decision_function(rows) for each in (here, there)]
    # Where leaf values are shares, quotients are rounded up or down at random in their last bit.
    np.testing.assert_allclose(*scores, rtol=0.0, atol=1e-6 if protocol == "vertical.mp_fedxgb" else 0.0)
    assert json.loads((folders["bank"] / "run.json").read_text())["n_matched"] == customers().num_rows


def _comparable(part):
    """A part without what differs between two runs of the same training: shares of leaves are drawn anew."""
    document = part.to_dict()
    for tree in document.get("trees", ()):
        tree.pop("leaves")
        document["meta"].pop("rounds", None)
    return document


def test_rows_split_between_owners(tmp_path):
    """Every owner has the model of the pooled rows' federation, although only one of them is paired with the others."""
    story, homes = STORIES["secure_sum"], homes_of_owners(tmp_path)
    assert [home.peers.names() for home in homes.values()] == [["ben", "carla"], ["anna"], ["anna"]]
    proposal = proposed(homes["anna"], story.job)
    trained(homes, proposal)
    check_same_model(homes, proposal, story)


def computing(home, *lines):
    """The same party, which says how it computes."""
    said = "\n".join(["[compute]", *lines, "", "[policy]"])
    home.party_toml.write_text(home.party_toml.read_text().replace("[policy]", said))
    return Home(home.path)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(['backend = "local"'], id="files"),
        pytest.param(['backend = "ray"', "actors = 2"], id="ray", marks=pytest.mark.long),
    ],
)
def test_how_a_party_computes_is_its_own_affair(tmp_path, monkeypatch, lines):
    """The others do not see it in the model, and what is committed to is the table whoever reads it."""
    if any("ray" in line for line in lines):
        pytest.importorskip("ray")
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    story, homes = STORIES["secure_sum"], homes_of_owners(tmp_path)
    table = pq.read_table(homes["ben"].path / "customers.parquet")
    (homes["ben"].path / "customers.parquet").unlink()
    (homes["ben"].path / "customers.parquet").mkdir()
    for part in range(4):
        pq.write_table(table.slice(20 * part, 20), homes["ben"].path / "customers.parquet" / f"{part}.parquet")
    homes["ben"] = computing(homes["ben"], *lines)
    proposal = proposed(homes["anna"], story.job)
    folders = trained(homes, proposal)
    check_same_model(homes, proposal, story)
    opening = Opening.read(folders["ben"] / commitments.FILE)
    in_memory = Inputs.again(opening.how, homes["ben"])
    assert opening.with_inputs(in_memory).inputs == opening.inputs


def test_a_cluster_that_is_not_there_is_found_before_the_others_are_met(tmp_path):
    """Whether it would match ids or hold rows: nothing has left the house. Who has no work for it does not look."""
    pytest.importorskip("ray")
    homes = two_organisations(tmp_path)
    homes["shop"] = computing(homes["shop"], 'backend = "127.0.0.1:1"')
    proposal = proposed(homes["bank"], job_text("vertical.homomorphic", TREES, HOLDERS))
    owners = homes_of_owners(tmp_path / "owners")
    owners["ben"] = computing(owners["ben"], 'backend = "127.0.0.1:1"')
    of_rows = proposed(owners["anna"], STORIES["secure_sum"].job)
    for all_of_them, name, paper in ((homes, "shop", proposal), (owners, "ben", of_rows)):
        agreed_by_all(all_of_them, paper)
        with pytest.raises(ClusterError, match=r"backend: nobody answers at 127\.0\.0\.1:1"):
            check_may_begin(all_of_them[name], Papers(all_of_them[name]).get(paper.hash))
    unmatched = proposed(homes["bank"], job_text("vertical.homomorphic", TREES, HOLDERS, matching=False))
    agreed_by_all(homes, unmatched)
    check_may_begin(homes["shop"], Papers(homes["shop"]).get(unmatched.hash))


@pytest.mark.long
def test_ids_are_matched_on_the_cluster_that_a_party_has(tmp_path, monkeypatch):
    """Its role in the training works on this machine; the other party, rows and model know nothing of it."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    story, homes = STORIES["homomorphic"], vertical_homes(tmp_path)
    del homes["notary"]
    homes["shop"] = computing(homes["shop"], 'backend = "ray"', "actors = 2")
    crews, start = [], on_ray.Crew.__init__
    monkeypatch.setattr(on_ray.Crew, "__init__", lambda *args: (crews.append(args), start(*args))[1])
    proposal = proposed(homes["bank"], story.job)
    trained(homes, proposal)
    check_same_model(homes, proposal, story)
    assert len(crews) == 1


def test_books_of_both_sides_agree(tmp_path):
    """What one node wrote down as disclosed, the other wrote down as learned; in the matching too."""
    homes = two_organisations(tmp_path)
    options = {**TREES, "epsilon": 4.0, "delta": 1e-6}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
    folders = trained(homes, proposal)
    for book in ("ledger", "matching"):
        texts = {name: (folder / f"{book}.jsonl").read_text() for name, folder in folders.items()}
        ledgers = {name: Ledger.from_json_lines(name, text) for name, text in texts.items()}
        reconcile(ledgers)
        assert all(len(ledger) for ledger in ledgers.values())
    stated = json.loads((folders["bank"] / "statement.json").read_text())
    assert "epsilon = 4" in stated["words"]
    assert not (folders["shop"] / "statement.json").exists()  # the shop has no record of what the labels cost


def test_a_node_says_that_kernels_are_compiled(tmp_path, monkeypatch):
    """Whoever waits is told, once for the matching and once for the training, if it takes long; else nobody is."""
    homes = two_organisations(tmp_path)
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    agreed_by_all(homes, proposal)
    prepared, told = running.warm_up, []
    monkeypatch.setattr(running, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(running, "warm_up", lambda *given: (time.sleep(0.2), prepared(*given))[1])
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=60.0, tell=told.append))
    assert all((folder / "run.json").exists() for folder in found.values())
    assert told == [running.GETTING_READY] * 4


def test_a_run_that_is_over_does_not_run_again(tmp_path):
    """Its result is where it was put, and the second attempt says so."""
    homes = two_organisations(tmp_path)
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    trained(homes, proposal)
    with pytest.raises(JobError, match=r"is over; its result is in"):
        trained({"bank": homes["bank"]}, proposal)


def test_only_what_all_have_signed_runs(tmp_path):
    """Without an answer of everybody, or with a refusal, nobody begins."""
    homes = two_organisations(tmp_path)
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    Papers(homes["shop"]).keep(proposal, [answer(proposal, homes["bank"].identity(), "accept")])
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=30.0))
    for problem in found.values():
        assert isinstance(problem, JobError)
        assert "waiting for shop" in str(problem)
    assert not (homes["bank"].runs / proposal.run_id).exists()
    no = answer(proposal, homes["shop"].identity(), "refuse", RefusalCode.BY_HAND)
    Papers(homes["bank"]).keep(proposal, [no])
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash)), ["bank"])
    assert "refused by shop" in str(found["bank"])


def test_another_certificate_than_the_signed_one_is_refused(tmp_path):
    """A peer that has a new key since the proposal has to be proposed to again."""
    homes = two_organisations(tmp_path)
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    agreed_by_all(homes, proposal)
    homes["bank"].peers.revoke("shop")
    other = make_home(tmp_path / "other", "shop", None, listens=False)
    homes["bank"].peers.add("shop", other.certificate, None, how="a test")
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash)), ["bank"])
    assert isinstance(found["bank"], PeerRefused)
    assert "propose it again" in str(found["bank"])


def test_too_few_matches_end_the_run_at_both(tmp_path):
    """The party whose policy asks for more says why at home; the other hears a code."""
    homes = two_organisations(tmp_path, policy="minimum_matched = 100000")
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    agreed_by_all(homes, proposal)
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=8.0))
    assert isinstance(found["bank"], InvalidInput)
    assert "minimum_matched" in str(found["bank"])
    assert not isinstance(found["shop"], InvalidInput)
    assert "minimum" not in str(found["shop"])
    failed = json.loads((homes["bank"].runs / proposal.run_id / "failed.json").read_text())
    assert "minimum_matched" in failed["message"]


def test_who_fails_tells_the_others(tmp_path):
    """The error is at home in words, elsewhere as a code, and both keep what was disclosed until then."""
    homes = two_organisations(tmp_path)
    table = pq.read_table(homes["shop"].path / "customers.parquet")
    empty = table.set_column(1, "x2", [[None] * table.num_rows])
    pq.write_table(empty, homes["shop"].path / "customers.parquet")
    options = {**TREES, "epsilon": math.inf, "edges": "quantile"}
    proposal = proposed(homes["bank"], job_text("vertical.bucket_rr", options, HOLDERS))
    agreed_by_all(homes, proposal)
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=60.0))
    assert "column 'x2' is empty" in str(found["shop"])
    assert isinstance(found["bank"], PeerFailed)
    assert "x2" not in str(found["bank"])
    for home in homes.values():
        folder = home.runs / proposal.run_id
        assert (folder / "failed.json").exists()
        assert (folder / "ledger.jsonl").read_text()


def test_an_expired_proposal_does_not_run(tmp_path):
    """Signatures are for the time that was signed for."""
    homes = two_organisations(tmp_path)
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", {**TREES, "epsilon": math.inf}, HOLDERS))
    old = replace(proposal, made="2020-01-01T00:00:00+00:00", expires="2020-01-02T00:00:00+00:00")
    agreed_by_all(homes, old)
    found = at_every_node(homes, lambda node: play(node, node.papers.get(old.hash)), ["bank"])
    assert isinstance(found["bank"], JobError)
    assert "expired" in str(found["bank"])
