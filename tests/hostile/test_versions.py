"""Programs and files of another version: refused in words, at both ends, before anything is read or sent."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest

from hedgerow.cli.outcome import ExitCode
from hedgerow.errors import HedgerowError, InvalidInput, VersionMismatch
from hedgerow.node.audit import Trail, verify
from hedgerow.node.home import Home
from hedgerow.node.papers import Papers
from hedgerow.node.playing import read_run
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.runtime import checkpoint
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.grpc import Gateway, GrpcEndpoint
from hedgerow.transport.grpc_envelope import HELLO_KEY, WIRE_VERSION, Hello
from hedgerow.transport.grpc_streams import METHOD
from twins.organisations import HOLDERS, TREES, agreed_by_all, job_text, proposed, two_organisations
from twins.parties import make_identities, trust_in
from twins.trained_homes import trained_homes

# --- two nodes -------------------------------------------------------------------------------------------------------

START = "from hedgerow.cli import main; main()"
OTHERS = {
    "wire before": "from hedgerow.transport import grpc_envelope; grpc_envelope.WIRE_VERSION -= 1;",
    "wire after": "from hedgerow.transport import grpc_envelope; grpc_envelope.WIRE_VERSION += 1;",
    "papers after": "from hedgerow.node import proposal; proposal.VERSION += 1;",
    "training after": (
        "from hedgerow.transport.frames import Message;"
        "from hedgerow.protocols.vertical.noised_gradients import messages;"
        "[setattr(kind, 'VERSION', 2) for kind in vars(messages).values()"
        " if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message];"
    ),
}
"""What makes the program of one party one of another version."""
SAID = {
    "wire before": (rf"version {WIRE_VERSION - 1} .* version {WIRE_VERSION}, .*shop needs a newer hedgerow",) * 2,
    "wire after": (rf"version {WIRE_VERSION + 1} .* version {WIRE_VERSION}, .*bank needs a newer hedgerow",) * 2,
    "papers after": (
        "node.papers: the peer speaks version 2, this is version 1; this side needs a newer hedgerow",
        "node.papers: the peer speaks version 1, this is version 2; the peer needs a newer hedgerow",
    ),
    "training after": ("differ in messages; bring both to one version of hedgerow",) * 2,
}
"""What the bank and the shop say then."""


@pytest.mark.long
@pytest.mark.parametrize("other", OTHERS)
def test_two_nodes_of_different_versions_part_in_words(tmp_path, other):
    """Both end with the code for another party and a sentence that says who has to upgrade; no row was sent."""
    homes = two_organisations(tmp_path, shuffled=False)
    text = job_text("vertical.noised_gradients", {**TREES, "epsilon": 1.0, "delta": 1e-6}, HOLDERS, matching=False)
    proposal = proposed(homes["bank"], text)
    agreed_by_all(homes, proposal)
    if other == "papers after":  # each has the proposal as its own program writes it; there is none that both read
        (homes["shop"].proposals / proposal.hash).rename(homes["shop"].path / "aside")
        verb = ["doctor", "{peer}", "--wait", "20"]
    else:
        verb = ["run", "--wait", "20"]
    processes = {}
    for (name, home), change in zip(homes.items(), ("", OTHERS[other]), strict=True):
        words = [word.format(peer="shop" if name == "bank" else "bank") for word in verb]
        command = [sys.executable, "-c", change + START, *words, "--home", str(home.path)]
        processes[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for (name, process), said in zip(processes.items(), SAID[other], strict=True):
        out, told = process.communicate(timeout=120)
        expected = ExitCode.DOCTOR if verb[0] == "doctor" else ExitCode.PEER
        assert process.returncode == expected, (name, out, told)
        assert re.search(said, " ".join((out + told).split())), (name, out, told)
        assert "Traceback" not in told
    for home in homes.values():
        for book in home.runs.glob("*/ledger.jsonl"):
            assert not book.read_text()


# --- the first bytes of a connection ---------------------------------------------------------------------------------

PARTIES = make_identities(["hub", "bank", "shop"])
TRUST = trust_in(PARTIES.values())
VERSIONS = (1, WIRE_VERSION - 1, WIRE_VERSION + 1, 65535)


@pytest.fixture
def gateway():
    """The hub's port."""
    with closing(Gateway("127.0.0.1:0", PARTIES["hub"], TRUST, ["bank", "shop"])) as made:
        yield made


def opened(gateway, *peers, run_id="test"):
    """The hub's end of a run."""
    return GrpcEndpoint("hub", PARTIES["hub"], TRUST, run_id=run_id, peers=peers, listen=gateway)


def refused(gateway, hello, speaker="bank"):
    """How a call with these bytes for a HELLO ends."""
    credentials = grpc.ssl_channel_credentials(
        PARTIES["hub"].certificate.pem, PARTIES[speaker].key_pem, PARTIES[speaker].certificate.pem
    )
    options = [("grpc.ssl_target_name_override", "hub"), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{gateway.port}", credentials, options) as channel:
        call = channel.stream_stream(METHOD)(iter(()), metadata=[(HELLO_KEY, hello)], timeout=20)
        with pytest.raises(grpc.RpcError):
            list(call)
        return call.code().name, call.details()


def hello_of(version, rest):
    """The first eight bytes are the same in every version; what follows is its own matter."""
    return struct.pack("<B4sxH", 1, b"HDGR", version) + rest


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "rest", [b"", bytes(24), b"a layout that nobody knows yet" * 9], ids=["short", "zeros", "text"]
)
def test_a_hello_of_any_version_is_answered_with_both(gateway, version, rest):
    """Whatever stands behind its version, and whichever run it is for: both sides name both, and who is older."""
    with opened(gateway, "shop", run_id="another") as other, opened(gateway, "bank") as hub:
        code, details = refused(gateway, hello_of(version, rest))
        older = "bank" if version < WIRE_VERSION else "hub"
        assert code == "FAILED_PRECONDITION"
        assert f"bank speaks version {version} of the wire format, hub speaks version {WIRE_VERSION}" in details
        assert f"{older} needs a newer hedgerow" in details
        with pytest.raises(VersionMismatch, match=f"{older} needs a newer hedgerow"):
            hub.wait_connected(20)
        with pytest.raises(HedgerowError, match="still waiting for shop"):
            other.wait_connected(0.05)


def test_a_version_is_told_also_where_the_party_is_not_expected(gateway):
    """Coming again would not help, so the party is not asked to."""
    with opened(gateway, "shop"):
        code, details = refused(gateway, hello_of(WIRE_VERSION + 1, b""))
    assert code == "FAILED_PRECONDITION"
    assert f"version {WIRE_VERSION + 1} of the wire format, hub speaks version {WIRE_VERSION}" in details


def test_whoever_comes_before_anybody_is_at_home_comes_again(gateway):
    """Of another version too: if it were sent away for good, the party that begins later would never hear of it."""
    assert refused(gateway, hello_of(WIRE_VERSION + 1, b""))[0] == "OUT_OF_RANGE"


def test_a_second_program_of_a_party_does_not_end_the_first(gateway):
    """Another version, or another job, shown with the certificate of a party that is connected: the run goes on."""
    dial = {"hub": f"127.0.0.1:{gateway.port}"}
    with (
        opened(gateway, "bank") as hub,
        GrpcEndpoint("bank", PARTIES["bank"], TRUST, run_id="test", peers=["hub"], dial=dial) as bank,
    ):
        hub.wait_connected(20)
        bank.wait_connected(20)
        assert refused(gateway, hello_of(WIRE_VERSION + 1, b""))[0] == "FAILED_PRECONDITION"
        other_job = Hello(WIRE_VERSION, 9, 0, "test", "bank", "hub", Agreed.of({"epsilon": 1}))
        assert refused(gateway, other_job.encode())[0] == "NOT_FOUND"
        bank.send("hub", b"still here")
        assert hub.recv("bank", 20) == b"still here"


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """The home of a party that has trained."""
    return trained_homes(tmp_path_factory.mktemp("trained")).homes["bank"]


def in_version(path: Path, version, *, and_more: bool = True):
    """The same file as a program of another version would write it, with a field that only that one knows."""
    document = json.loads(path.read_text())
    return {**document, "version": version, **({"a new field": 1} if and_more else {})}


@pytest.mark.parametrize("version", [0, 3, 10**30])
def test_files_of_another_version_are_refused_by_name_and_version(bank, version):
    """Proposals, answers, peers, parts: the sentence names the file, its version and ours, and no new field."""
    (proposal,) = bank.proposals.glob("*/proposal.json")
    (part,) = bank.runs.glob("*/part.json")
    reading = {
        proposal: lambda: Papers(bank).all(),
        proposal.parent / "answers" / "shop.json": lambda: Papers(bank).all(),
        bank.peers_folder / "shop.json": lambda: bank.peers.get("shop"),
        part: lambda: load_part(part),
    }
    for path, read in reading.items():
        whole = path.read_text()
        path.write_text(json.dumps(in_version(path, version)))
        ours = 2 if path == part else 1
        with pytest.raises(HedgerowError, match=rf"(?s){re.escape(path.name)}.*version {version}\b.*\b{ours}\b"):
            read()
        path.write_text(whole)
        read()


def test_a_run_of_another_version_is_refused(tmp_path):
    """run.json says its version."""
    (tmp_path / "run.json").write_text(json.dumps({"format": "hedgerow run of one party", "version": 7}))
    with pytest.raises(InvalidInput, match=r"version 7"):
        read_run(tmp_path)


def test_a_key_of_party_toml_that_came_later_is_named(bank):
    """party.toml has no number: what this program does not know is refused with its line."""
    whole = bank.party_toml.read_text()
    bank.party_toml.write_text(whole + "\n[weather]\nforecast = true\n")
    with pytest.raises(HedgerowError, match=r"party.toml.*weather"):
        _ = Home(bank.path).party_file
    bank.party_toml.write_text(whole)


def test_a_line_of_a_trail_that_came_later_is_a_finding(bank):
    """A trail has kinds of lines in place of a number."""
    trail = Trail(bank.path / "later.jsonl", bank.identity())
    trail.append("revoked", fingerprint=bank.certificate.fingerprint)
    text = trail.path.read_text().replace('"kind":"revoked"', '"kind":"forgiven"')
    trail.path.write_text(text)
    report = verify(trail.path, bank.certificate.pem)
    assert any("no lines of kind 'forgiven'" in str(finding) for finding in report.findings)
    with pytest.raises(InvalidInput, match=r"later\.jsonl"):
        trail.append("revoked", fingerprint=bank.certificate.fingerprint)


def test_a_checkpoint_of_another_version_is_refused(monkeypatch):
    """And it says with which program the run can go on."""
    about = {"trees": 3}
    monkeypatch.setattr(checkpoint, "_VERSION", 2)
    data = checkpoint.packed(State(np.arange(3)), about)
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match=r"tree-3 is of version 2, and this program reads version 1: .* began it"):
        checkpoint.unpacked(data, State, about, "tree-3")


@dataclass
class State:
    """Something that a role keeps."""

    scores: np.ndarray
