"""From nothing to a model and its scores, with the commands that people type, in processes of their own."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from hedgerow.estimators.plain import load_model
from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node.home import Home
from hedgerow.node.papers import Papers
from hedgerow.protocols.vertical.common.parts import load_part
from twins.offices import Office, agree, ended, pair, run_all, wait_for_trees
from twins.organisations import HOLDERS, bank_and_shop, customers, free_port, job_text
from twins.stories import (
    COLUMNS,
    OWNERS,
    SCHEMA,
    STORIES,
    VERTICAL_POLICY,
    Story,
    check_same_model,
    new_rows,
    rows_of_owner,
)

pytestmark = pytest.mark.timeout(600)  # several commands each, which start slowly on a busy machine


def opened(folder, tables, listening, policy=""):
    """Offices with their tables and homes, made and paired with the commands; the first is paired with all others.

    Beside it, all others that listen are paired with those after them.
    """
    offices = {name: Office(folder / name) for name in tables}
    addresses = {name: f"127.0.0.1:{free_port()}" for name in listening}
    making = []
    for name, office in offices.items():
        words = ["--bind", addresses[name]] if name in addresses else []
        if (table := tables[name]) is not None:
            pq.write_table(table, office.folder / "customers.parquet")
            words += ["--data", "customers.parquet"]
            words += ["--id", "customer"] if "customer" in table.column_names else []
            words += ["--label", "bad"] if "bad" in table.column_names else []
        making.append(office.start("init", name, *words))
        SCHEMA.save(office.folder / "schema.json")
    for process in making:
        Office.finish(process)
    for name, office in offices.items():
        party_toml = office.home / "party.toml"
        text = party_toml.read_text().replace("[data.main]", "[data.customers]")
        text = text.replace("minimum_rows = 100\n", "minimum_rows = 10\n")
        party_toml.write_text(text.replace("[policy]", f"[policy]\n{policy}"))
        if tables[name] is not None:  # where the twin of one program looks for it
            (office.home / "customers.parquet").symlink_to(office.folder / "customers.parquet")
    names = list(offices)
    for k, name in enumerate(names):
        for other in names[k + 1 :] if name in addresses else ():
            pair(offices[name], offices[other], addresses[name])
    return offices


@pytest.fixture
def offices(tmp_path):
    """A bank and a shop."""
    return opened(tmp_path, bank_and_shop(customers()), ["bank"])


@pytest.fixture(scope="module")
def vertical_offices(tmp_path_factory):
    """A bank, a notary who deals and a shop, who let every vertical story happen."""
    tables = bank_and_shop(customers())
    tables = {"bank": tables["bank"], "notary": None, "shop": tables["shop"]}
    return opened(tmp_path_factory.mktemp("vertical"), tables, ["bank", "notary"], VERTICAL_POLICY)


@pytest.fixture(scope="module")
def owners(tmp_path_factory):
    """Three owners of rows, of whom the first listens; the others do not know each other."""
    tables = {name: rows_of_owner(customers(), name) for name in OWNERS}
    return opened(tmp_path_factory.mktemp("owners"), tables, OWNERS[:1])


def trained(offices, story):
    """The run of a story from its proposal on: the homes of its parties, what was agreed on, and what each said."""
    taking_part = {name: offices[name] for name in story.parties}
    first, *others = taking_part.values()
    agreed = agree(first, others, story.job)
    said = run_all(taking_part, "run", agreed["hash"])
    assert {each["run_id"] for each in said.values()} == {agreed["run_id"]}
    assert {each["attempts"] for each in said.values()} == {1}
    homes = {name: Home(office.home) for name, office in taking_part.items()}
    return homes, Papers(homes[next(iter(homes))]).find(agreed["hash"]).proposal, said


def verified(offices):
    """What `hedgerow audit verify` finds in the trails of all offices, beside each other."""
    trails = [str(office.home / "audit.jsonl") for office in offices]
    command = [sys.executable, "-m", "hedgerow.cli", "audit", "verify", *trails, "--json"]
    return json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)["findings"]


@pytest.mark.long
def test_from_nothing_to_a_model(offices):
    """init, pair, propose or accept, run: both have their parts, and a trail that a third person can check."""
    bank, shop = offices.values()
    job = job_text("vertical.noised_gradients", {"n_estimators": 3, "epsilon": 4.0, "delta": 1e-6}, HOLDERS)
    agreed = agree(bank, [shop], job, inspect=True)
    results = run_all(offices, "run")
    for name, office in offices.items():
        result = results[name]
        assert (result["run_id"], result["n_matched"]) == (agreed["run_id"], customers().num_rows)
        assert load_part(office.home / "runs" / result["run_id"] / "part.json").run_id == result["run_id"]
        status = json.loads(office.say("status", "--json"))
        assert [each["run"]["state"] for each in status["proposals"]] == ["over"]
    assert verified(offices.values()) == []
    again = bank.say("run", agreed["hash"][:12], "--json", code=2)
    assert "is over" in json.loads(again)["error"]["message"]


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, story in STORIES.items() if story.is_vertical])
def test_the_story_of_columns_that_are_divided(vertical_offices, name):
    """propose, accept, run, predict, in each protocol: the model of one program, and the bank gets its scores."""
    story = STORIES[name]
    homes, proposal, _ = trained(vertical_offices, story)
    if story.is_exact:
        check_same_model(homes, proposal, story)
    ids = customers(seed=6).select(["customer"])
    is_closed = name in ("mp_fedxgb", "private_histograms")
    asked = {}
    for party in homes:
        office, words = vertical_offices[party], ["predict", proposal.run_id[:12]]
        if party in new_rows():
            table = new_rows()[party].append_column("customer", ids.column("customer"))
            pq.write_table(table, office.folder / "new.parquet")
            words += ["new.parquet", *(["--out", "scores.csv"] if party == "bank" else [])]
        if party in new_rows() or is_closed:
            asked[party] = office.start(*words, "--json")
        else:
            assert "is not needed" in json.loads(office.say(*words, "--json", code=2))["error"]["message"]
    assert ended(asked)["bank"]["scored"] == ids.num_rows
    parts = {party: load_part(homes[party].runs / proposal.run_id / "part.json") for party in new_rows()}
    with (vertical_offices["bank"].folder / "scores.csv").open() as file:
        scores = [[float(row["probability_0"]), float(row["probability_1"])] for row in csv.DictReader(file)]
    here = VerticalModel(parts).predict_proba(new_rows())
    np.testing.assert_allclose(scores, here, rtol=0.0, atol=1e-6 if is_closed else 0.0)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, story in STORIES.items() if not story.is_vertical])
def test_the_story_of_rows_that_are_divided(owners, name):
    """propose, accept, run, predict: every owner has the whole model, which is that of one program without noise."""
    story = STORIES[name]
    homes, proposal, _ = trained(owners, story)
    models = {party: home.runs / proposal.run_id / "model.json" for party, home in homes.items()}
    rows = customers(seed=6).select(COLUMNS)
    scores = [load_model(path).predict_proba(rows) for path in models.values()]
    assert all(np.array_equal(each, scores[0]) for each in scores)
    if story.is_exact:
        check_same_model(homes, proposal, story)
    pq.write_table(rows, owners["ben"].folder / "new.parquet")
    command = ["predict", models["ben"], "new.parquet", "--out", "scores.csv", "--proba", "--json"]
    assert json.loads(owners["ben"].say(*command))["rows"] == rows.num_rows
    with (owners["ben"].folder / "scores.csv").open() as file:
        written = [[float(row["probability_0"]), float(row["probability_1"])] for row in csv.DictReader(file)]
    assert np.array_equal(written, scores[1])


@pytest.mark.long
def test_a_refusal_reaches_the_proposer_as_a_code(offices):
    """The shop's own reasons stay in the shop."""
    bank, shop = offices.values()
    (bank.folder / "job.toml").write_text(
        job_text("vertical.noised_gradients", {"n_estimators": 2, "epsilon": 1.0, "delta": 1e-6}, HOLDERS)
    )
    proposing = bank.start("propose", "job.toml", "--json")
    party_toml = shop.home / "party.toml"
    party_toml.write_text(party_toml.read_text().replace("[policy]", '[policy]\nprotocols = ["vertical.bucket_rr"]'))
    said = json.loads(shop.say("accept", "--json", "--wait", "60", code=2))
    assert "vertical.noised_gradients" in said["error"]["message"]
    shop.say("refuse")
    told = json.loads(Office.finish(proposing))
    assert told["state"] == "refused by shop"
    assert told["refused"]["shop"] == {"code": 1, "words": "its policy does not allow this protocol"}
    bank.say("run", told["hash"][:12], code=2)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["bank", "shop"])
def test_a_party_that_is_killed_is_resumed(offices, victim):
    """kill -9 of one of them: both take it up again, and have the model of a run that never broke off."""
    bank, shop = offices.values()
    trees = {"n_estimators": 400, "max_depth": 3, "random_state": 5}
    story = Story("vertical.noised_gradients", HOLDERS, {"epsilon": "inf"}, trees)
    agreed = agree(bank, [shop], story.job)
    running = {name: office.start("run") for name, office in offices.items()}
    wait_for_trees(bank.home / "runs" / agreed["run_id"], 3)
    running[victim].send_signal(signal.SIGKILL)
    for name, process in running.items():
        process.communicate(timeout=120)
        assert process.returncode != 0, name
    results = run_all(offices, "resume")
    assert {each["attempts"] for each in results.values()} == {2}
    homes = {name: Home(office.home) for name, office in offices.items()}
    check_same_model(homes, Papers(homes["bank"]).find(agreed["hash"]).proposal, story)
