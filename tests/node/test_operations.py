"""The operations guide: its commands are typed in the order of the page, and its tables are true."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request

import pytest
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.cli.outcome import ExitCode
from hedgerow.ledger import Kind, Ledger
from hedgerow.node.audit import Trail
from hedgerow.node.metrics import Metrics
from twins.documented import DOCS, blocks, commands_of
from twins.homes import introduce
from twins.offices import Office, typed_in, wait_for_trees
from twins.organisations import HOLDERS, agreed_by_all, free_port, job_text, proposed, two_organisations

PAGE = "operations.md"
TEXT = (DOCS / PAGE).read_text(encoding="utf-8")


@pytest.fixture
def typed(monkeypatch):
    """Types a command in a folder; it has to end well."""

    def type_in(folder, words):
        monkeypatch.chdir(folder)
        if words[0] == "hedgerow":
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, (words, result.stdout, result.stderr, result.exception)
            return result.stdout
        assert words[0] == "tar"
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=folder).stdout

    return type_in


def test_its_commands_work_in_their_order(bank, shop, tmp_path, typed):
    """Encrypted, rotated, followed, revoked, backed up and restored; the restored home is the same party."""
    introduce(bank, shop)
    passphrase = bank.path / "passphrase.txt"
    passphrase.write_text("correct horse battery\n")
    passphrase.chmod(0o600)
    Trail(bank.audit, bank.identity()).append("init")
    restored = tmp_path / "restored"
    restored.mkdir(mode=0o700)
    folders = {None: bank.path, "with a trail": bank.path, "restored": restored}
    said = []
    for block in blocks(PAGE):
        if block.language != "console" or block.remark in ("with a partner", "after a run"):
            continue  # the latter are typed in test_replay.py
        folder = shop.path if block.party == "shop" else folders[block.remark]
        for words in block.commands:
            said.append(typed(folder, words))
            if words[1:3] == ["keys", "rotate"]:
                (succession,) = (bank.path / "old-keys").glob("*/succession.json")
                shutil.copy(succession, shop.path)
    assert len(said) > 15
    assert (restored / "key.pem").read_bytes() == bank.key.read_bytes()
    assert b"ENCRYPTED" in bank.key.read_bytes()
    assert [entry["name"] for entry in shop.peers.revoked()] == ["bank"]
    assert not (restored / "audit.jsonl").exists()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_needs_a_partner_works_as_well(tmp_path):
    """doctor, run with metrics, cancel and resume, typed at the bank as printed, while the shop does its part."""
    shown = {words[1]: words for block in blocks(PAGE) if block.remark == "with a partner" for words in block.commands}
    assert sorted(shown) == ["cancel", "doctor", "resume", "run"]
    homes = two_organisations(tmp_path)
    bank, shop = homes["bank"].path, homes["shop"].path

    def both(words, partners, *codes):
        started = [typed_in(bank, words), typed_in(shop, ["hedgerow", *partners])]
        return [Office.finish(process, code=code) for process, code in zip(started, codes, strict=True)]

    assert "shop" in both(shown["doctor"], ["doctor", "bank"], 0, 0)[0]
    options = {"n_estimators": 400, "max_depth": 2, "epsilon": "inf"}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
    agreed_by_all(homes, proposal)
    address = f"127.0.0.1:{free_port()}"
    words = [address if word == "127.0.0.1:9101" else word for word in shown["run"]]
    assert words != shown["run"]
    running = [typed_in(bank, words), typed_in(shop, ["hedgerow", "run"])]
    wait_for_trees(homes["bank"].runs / proposal.run_id, 3)
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        assert b'hedgerow_run_steps{party="bank"} 400' in answer.read()
    Office.finish(typed_in(bank, shown["cancel"]))
    for process, code in zip(running, (ExitCode.INTERRUPTED, ExitCode.PEER), strict=True):
        Office.finish(process, code=code)
    assert "The run is over" in both(shown["resume"], ["resume"], 0, 0)[0]


def test_all_of_its_commands_are_typed():
    """Here, or, after a run, in test_replay.py: no block is left out for want of a party or a remark that is known."""
    known = {None, "with a trail", "restored", "with a partner", "after a run"}
    shown = [block for block in blocks(PAGE) if block.language == "console"]
    assert {block.remark for block in shown} == known
    assert all(block.party in ("bank", "shop", "auditor") for block in shown)
    ours = [words for block in shown for words in block.commands if words[0] == "hedgerow"]
    assert ours == commands_of(f"docs/{PAGE}")


def test_every_exit_code_is_explained():
    """Those of the command, and no others."""
    table = TEXT.split("## Exit codes\n")[1].split("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)] == [int(c) for c in ExitCode]


def test_every_metric_is_explained():
    """Names of the table are those that are answered."""
    table = TEXT.split("## Metrics\n")[1]
    with Metrics(("127.0.0.1", 0), party="bank", run_id="3f9a") as metrics:
        metrics.books["ledger"] = Ledger("bank")
        metrics.books["ledger"].write("disclosed", "shop", Kind("a", 1, "b", "c"), 1)
        answered = re.findall(r"^# TYPE (\w+)", metrics.text(), flags=re.MULTILINE)
    rows = "".join(re.findall(r"^\| `.*", table, flags=re.MULTILINE))
    assert sorted(re.findall(r"`(hedgerow_\w+)`", rows)) == sorted(answered)


def test_every_file_of_a_home_has_a_row(bank):
    """The table of files names each path of a home, and says what may be put back."""
    table = TEXT.split("## A home\n")[1].split("\n## ")[0]
    for path in (
        bank.party_toml,
        bank.key,
        bank.certificate_file,
        bank.peers_folder,
        bank.revoked,
        bank.proposals,
        bank.runs,
        bank.budget,
        bank.audit,
    ):
        assert f"`{path.name}" in table, path.name
    never = [line for line in table.splitlines() if "**never**" in line]
    assert any("`budget.sqlite`" in line and "`audit.jsonl`" in line for line in never)
