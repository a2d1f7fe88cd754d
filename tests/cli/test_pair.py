"""`hedgerow pair`, as the shell sees it: two real processes with a code, and invitation files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hedgerow
from hedgerow.cli import app
from hedgerow.node.home import Home
from twins.homes import simplify

WAIT = 100.0
LOCAL = "127.0.0.1"


@pytest.fixture(autouse=True)
def _simple(monkeypatch, tmp_path):
    """Homes are cheap to make, in a folder of their own."""
    simplify(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bank(tmp_path):
    """The home of a party."""
    return Home.create(tmp_path / "bank", "bank")


@pytest.fixture
def shop(tmp_path):
    """The home of another party."""
    return Home.create(tmp_path / "shop", "shop")


# --- a code, between two processes -----------------------------------------------------------------------------------


def start(home, *arguments):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hedgerow.cli", "pair", "--home", home.path, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(hedgerow.__file__).parents[1])},
    )


class Waiting:
    """A process that listens, and what it shows."""

    def __init__(self, home, *arguments):
        self.process = start(home, "--listen", f"{LOCAL}:0", "--advertise", "bank.example.org:7341", *arguments)
        self.port = self._shown(r"Listening on port (\d+)")
        self.code = self._shown(r"Code: (\d{4}-\d{4})")
        self.wrong = "0000-0000" if self.code != "0000-0000" else "0000-0001"

    def _shown(self, pattern):
        for line in self.process.stderr:
            found = re.search(pattern, line)
            if found:
                return found[1]
        raise AssertionError(pattern)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=WAIT)

    def end(self, code):
        """What it said in the end."""
        out, err = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == code, err
        return out, err


def call(home, listener, code, *arguments, expect=0):
    """Dial it, and type the code."""
    process = start(home, f"{LOCAL}:{listener.port}", "--advertise", "shop.example.org:7341", *arguments)
    out, err = process.communicate(f"{code}\n", timeout=WAIT)
    assert process.returncode == expect, err
    return out, err


def test_two_processes_pair_with_a_code(bank, shop):
    """One mistake is forgiven; then both have the other's certificate and address, and say so."""
    with Waiting(bank, "--json") as listener:
        assert "somebody sits between you" in call(shop, listener, listener.wrong, expect=8)[1]
        dialled, _ = call(shop, listener, listener.code.replace("-", " "))
        out, err = listener.end(0)
    assert "attempts left: 2" in err
    assert json.loads(out) == {
        "command": "pair",
        "way": "code",
        "peer": "shop",
        "address": "shop.example.org:7341",
        "fingerprint": shop.certificate.fingerprint,
    }
    assert "Paired with bank (bank.example.org:7341)" in dialled
    assert bank.peers.get("shop").certificate == shop.certificate
    assert shop.peers.get("bank").certificate == bank.certificate
    for home in (bank, shop):
        assert "PRIVATE" not in out + err + dialled
        assert not list(home.path.rglob("*.partial"))


def test_three_wrong_codes_end_the_listening_process(bank, shop):
    """With exit code 8, and nothing pinned."""
    with Waiting(bank) as listener:
        for _ in range(3):
            call(shop, listener, listener.wrong, expect=8)
        assert "3 wrong codes were tried" in listener.end(8)[1]
    assert bank.peers.names() == shop.peers.names() == []


def test_a_listening_process_ends_by_itself(bank):
    """After its minutes, with exit code 8."""
    with Waiting(bank, "--minutes", "0.001") as listener:
        assert "the code is dead" in listener.end(8)[1]


# --- invitations -----------------------------------------------------------------------------------------------------


def answer(text, *arguments):
    """The command with something typed into it."""
    return CliRunner().invoke(app, ["pair", *map(str, arguments)], input=text)


def test_invitations_are_exchanged(run, bank, shop, tmp_path):
    """Both write, both accept: one by answering the question, one by giving the fingerprint."""
    for home in (bank, shop):
        address = f"{home.name}.example.org:7341"
        file = tmp_path / f"{home.name}.json"
        made = run("pair", "--write-invitation", file, "--advertise", address, "--home", home.path, "--json").json
        assert made["fingerprint"] == home.certificate.fingerprint
        assert made["address"] == address
    done = answer("y\n", "--accept-invitation", tmp_path / "shop.json", "--home", bank.path)
    assert done.exit_code == 0, done.stderr
    assert "Did shop read you exactly this fingerprint" in done.stderr
    given = ("--accept-invitation", tmp_path / "bank.json", "--fingerprint", bank.certificate.fingerprint)
    assert run("pair", *given, "--home", shop.path, "--json").json["peer"] == "bank"
    assert bank.peers.get("shop").certificate == shop.certificate
    assert shop.peers.get("bank").address == "bank.example.org:7341"


def test_an_invitation_is_not_accepted_without_a_word(run, bank, shop, tmp_path):
    """No, no answer, or another fingerprint pins nothing."""
    file = tmp_path / "shop.json"
    run("pair", "--write-invitation", file, "--advertise", "shop.example.org:7341", "--home", shop.path)
    arguments = ("--accept-invitation", file, "--home", bank.path)
    assert answer("n\n", *arguments).exit_code == 8
    assert answer("", *arguments).exit_code == 2
    wrong = ("--fingerprint", bank.certificate.fingerprint)
    assert "not sha256:" in run("pair", *arguments, *wrong, code=8).stderr
    assert "64 hexadecimal digits" in run("pair", *arguments, "--fingerprint", "1234", code=2).stderr
    assert bank.peers.names() == []
    file.write_text("{}", encoding="utf-8")
    assert "is not a hedgerow invitation" in run("pair", *arguments, code=3).stderr


# --- what party.toml says --------------------------------------------------------------------------------------------


def test_the_address_comes_from_the_party_file(run, bank, shop, tmp_path):
    """--advertise beats party.toml, and without either the invitation has no address."""
    shown = tmp_path / "i.json"
    bank.party_toml.write_text('name = "bank"\n[network]\nadvertise = "b.example.org:1"\n', encoding="utf-8")
    for home, more, address in ((bank, (), "b.example.org:1"), (bank, ("--advertise", "c:2"), "c:2"), (shop, (), None)):
        made = run("pair", "--write-invitation", shown, *more, "--home", home.path, "--json").json
        assert made["address"] == address


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say where to listen"),
        (["a:1", "--listen", "b:2"], "HOST:PORT and --listen do not go together"),
        (["a:1", "--fingerprint", "12"], "--fingerprint goes with"),
        (["--listen", "nowhere"], "an address is HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--advertise", "0.0.0.0:80"], "nobody can dial"),
        (["--listen", "127.0.0.1:0", "--minutes", "0"], "minutes must be"),
        (["--write-invitation", "i.json", "--days", "0"], "days"),
    ],
)
def test_wrong_usage_is_told(arguments, words, run, bank):
    """Exit code 2, with what to do."""
    assert words in run("pair", *arguments, "--home", bank.path, code=2).stderr
