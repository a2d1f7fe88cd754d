"""Two organisations from nothing to a model, with the commands that people type, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from hedgerow.federation.vertical_model import VerticalModel
from hedgerow.node.home import Home
from hedgerow.node.papers import Papers
from hedgerow.protocols.vertical.common.parts import load_part
from twins.organisations import as_one_program, bank_and_shop, customers, free_port, job_text

HOLDERS = {"bank": "label holder", "shop": "feature holder"}


class Office:
    """The working directory of one organisation, and its commands."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("HEDGEROW_")}

    def start(self, *words, home=True):
        """A command that goes on in the background."""
        where = ["--home", str(self.folder / "home")] if home else []
        command = [sys.executable, "-m", "hedgerow.cli", *map(str, words), *where]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, **pipes)

    def say(self, *words, told="", code=0):
        """A command to its end; what it printed."""
        return self.finish(self.start(*words), told=told, code=code)

    @staticmethod
    def finish(process, told="", code=0):
        """The end of a command that was started."""
        out, problems = process.communicate(told, timeout=170)
        assert process.returncode == code, out + problems
        return out


def pair(listening, dialling, port):
    """By the code that the one shows and the other types."""
    waiting = listening.start("pair")
    code = next(found[1] for line in waiting.stderr if (found := re.search(r"Code: (\S+)", line)))
    dialling.say("pair", f"127.0.0.1:{port}", told=f"{code}\n")
    Office.finish(waiting)


@pytest.fixture
def offices(tmp_path):
    """A bank and a shop with their tables, made and paired with the commands."""
    port = free_port()
    bank, shop = Office(tmp_path / "bank"), Office(tmp_path / "shop")
    for office, name in ((bank, "bank"), (shop, "shop")):
        pq.write_table(bank_and_shop(customers())[name], office.folder / "customers.parquet")
    address = f"127.0.0.1:{port}"
    bank.say("init", "bank", "--data", "customers.parquet", "--id", "customer", "--label", "bad", "--bind", address)
    shop.say("init", "shop", "--data", "customers.parquet", "--id", "customer")
    pair(bank, shop, port)
    return bank, shop


def agree(bank, shop, protocol, options):
    """The bank proposes, the shop reads and accepts; the hash."""
    (bank.folder / "job.toml").write_text(job_text(protocol, options, HOLDERS))
    proposing = bank.start("propose", "job.toml", "--json")
    inspected = shop.say("inspect", "--wait", "60")
    assert "What would leave your house" in inspected
    accepted = shop.say("accept", told="y\n")
    assert "is agreed" in accepted
    result = json.loads(Office.finish(proposing))
    assert result["state"] == "agreed"
    return result


def test_from_nothing_to_a_model(offices):
    """init, pair, propose or accept, run: both have their parts, and a trail that a third person can check."""
    bank, shop = offices
    options = {"n_estimators": 3, "max_depth": 3, "epsilon": 4.0, "delta": 1e-6}
    agreed = agree(bank, shop, "vertical.noised_gradients", options)
    running = [office.start("run", "--json") for office in offices]
    results = [json.loads(Office.finish(process)) for process in running]
    assert [result["run_id"] for result in results] == [agreed["run_id"]] * 2
    assert all(result["n_matched"] == customers().num_rows for result in results)
    for office, result in zip(offices, results, strict=True):
        assert load_part(office.folder / "home" / "runs" / result["run_id"] / "part.json").run_id == result["run_id"]
        status = json.loads(office.say("status", "--json"))
        assert [each["run"]["state"] for each in status["proposals"]] == ["over"]
    trails = [str(office.folder / "home" / "audit.jsonl") for office in offices]
    verified = subprocess.run(
        [sys.executable, "-m", "hedgerow.cli", "audit", "verify", *trails, "--json"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(verified.stdout)["findings"] == []
    again = bank.say("run", agreed["hash"][:12], "--json", code=2)
    assert "is over" in json.loads(again)["error"]["message"]


def test_a_refusal_reaches_the_proposer_as_a_code(offices):
    """The shop's own reasons stay in the shop."""
    bank, shop = offices
    (bank.folder / "job.toml").write_text(
        job_text("vertical.noised_gradients", {"n_estimators": 2, "epsilon": 1.0, "delta": 1e-6}, HOLDERS)
    )
    proposing = bank.start("propose", "job.toml", "--json")
    party_toml = shop.folder / "home" / "party.toml"
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
    bank, shop = offices
    options = {"n_estimators": 400, "max_depth": 3, "epsilon": "inf", "random_state": 5}
    agreed = agree(bank, shop, "vertical.noised_gradients", options)
    running = {"bank": bank.start("run"), "shop": shop.start("run")}
    progress = bank.folder / "home" / "runs" / agreed["run_id"] / "progress.json"
    until = time.monotonic() + 120.0
    while time.monotonic() < until:
        about = json.loads(progress.read_text()) if progress.exists() else {"done": 0, "total": 0}
        if about["total"] == options["n_estimators"] and about["done"] >= 3:
            break
        time.sleep(0.02)
    running[victim].send_signal(signal.SIGKILL)
    for name, process in running.items():
        process.communicate(timeout=120)
        assert process.returncode != 0, name
    resumed = [office.start("resume", "--json") for office in offices]
    results = [json.loads(Office.finish(process)) for process in resumed]
    assert [result["attempts"] for result in results] == [2, 2]
    homes = {name: Home(office.folder / "home") for name, office in zip(HOLDERS, offices, strict=True)}
    for home in homes.values():  # where the twin looks for it
        (home.path / "customers.parquet").symlink_to(home.path.parent / "customers.parquet")
    proposal = Papers(homes["bank"]).find(agreed["hash"]).proposal
    folders = {name: home.runs / proposal.run_id for name, home in homes.items()}
    expected = as_one_program(homes, proposal, folders)
    parts = {name: load_part(folder / "part.json") for name, folder in folders.items()}
    more = customers(seed=6)
    rows = {"bank": more.select(["x0", "x1"]), "shop": more.select(["x2", "x3", "x4"])}
    scores = [VerticalModel(each).decision_function(rows) for each in (parts, {n: expected[n] for n in parts})]
    assert np.array_equal(*scores)
