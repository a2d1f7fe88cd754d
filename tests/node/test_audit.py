"""A party's trail: what is written, by how many at a time, after which crash; and every tampering is found."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.node import audit, keys
from hedgerow.node.audit import Trail, verify
from hedgerow.node.audit_lines import KINDS, MAX_LINE, checked_facts, read_line
from hedgerow.transport.mtls import Identity
from twins.damage import as_often

# what the parser still reads but says it will refuse one day, such as a serial number below zero
pytestmark = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")

BANK, NEW, SHOP = Identity.create("bank"), Identity.create("bank"), Identity.create("shop")
HASH = "ab" * 32


@pytest.fixture
def path(tmp_path):
    """Where the trail is."""
    return tmp_path / "audit.jsonl"


@pytest.fixture
def trail(path):
    """One of five lines."""
    trail = Trail(path, BANK)
    trail.append("paired", peer="shop", fingerprint=SHOP.fingerprint, how="code")
    trail.append("received", proposal=HASH, peer="shop", protocol="vertical.secret_shared", parties=["bank", "shop"])
    trail.append("accepted", proposal=HASH, party="bank")
    trail.append("charged", run_id="r1", limits=["all", "peer:shop"], epsilon=0.5, delta=1e-6)
    return trail


def sentences(path, pem=None):
    """What is wrong, with its line."""
    return [f"{finding.line}: {finding.sentence}" for finding in verify(path, pem).findings]


# --- what is written -------------------------------------------------------------------------------------------------


def test_a_trail_is_what_its_page_says(path, trail):
    """Seven members in order, numbered, chained, signed with the key of the certificate in the first line."""
    lines = path.read_bytes().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5]
    assert [entry["kind"] for entry in entries] == ["init", "paired", "received", "accepted", "charged"]
    assert entries[0]["facts"]["certificate"] == BANK.certificate.pem.decode()
    assert entries[0]["prev"] == "0" * 64
    for before, line, entry in zip(lines, lines[1:], entries[1:], strict=False):
        assert tuple(entry) == ("seq", "at", "kind", "facts", "prev", "certificate", "signature")
        assert entry["prev"] == hashlib.sha256(before).hexdigest()
        unsigned = re.sub(rb',"signature":"[0-9a-f]+"}$', b"}", line)
        signed = b"hedgerow audit trail, version 1\0" + unsigned
        BANK.certificate.verify(bytes.fromhex(entry["signature"]), signed)
    assert path.stat().st_mode & 0o777 == 0o600
    assert trail.head == f"5:{hashlib.sha256(lines[-1]).hexdigest()}"


def test_what_append_gives_is_what_is_written(path, trail):
    """The entry as a dict; facts are sorted, and texts of peers made harmless and cut."""
    entry = trail.append("refused", proposal=HASH, party="shop", codes=[4], why="\x1b[31mno\n" + "x" * 500)
    assert json.loads(path.read_bytes().splitlines()[-1]) == entry
    assert entry["facts"]["why"].startswith("\N{REPLACEMENT CHARACTER}[31mno\N{REPLACEMENT CHARACTER}xxx")
    assert len(entry["facts"]["why"]) == 200
    assert list(entry["facts"]) == sorted(entry["facts"])
    assert verify(path).ok


@pytest.mark.parametrize(
    ("kind", "facts", "sentence"),
    [
        ("gossip", {}, r"no lines of kind 'gossip'; there are init, paired"),
        ("accepted", {"proposal": HASH}, "lacks party; it may have proposal, party"),
        ("accepted", {"proposal": HASH, "party": "bank", "age": 7}, "has no fact 'age'"),
        ("accepted", {"proposal": "no hash", "party": "bank"}, "proposal in a line 'accepted' .* a digest .*'no hash'"),
        ("accepted", {"proposal": HASH, "party": "a b"}, "party in a line 'accepted' .* a party's name is"),
        ("accepted", {"proposal": HASH, "party": "bank", "unattended": 1}, "unattended .* must be True or False"),
        ("accepted", {"proposal": HASH, "party": "bank", "heads": {"shop": "5"}}, "heads .* the head of a trail"),
        ("accepted", {"proposal": HASH, "party": "bank", "heads": ["5"]}, "heads .* must have a party's name"),
        ("proposed", {"proposal": HASH, "protocol": "x", "parties": ["a"] * 101}, "at most 100 entries, got"),
        ("proposed", {"proposal": HASH, "protocol": 3, "parties": []}, "protocol .* must be a text, got 3"),
        ("charged", {"run_id": "r", "limits": [], "epsilon": float("nan"), "delta": 0.0}, "finite number, or None"),
        ("refused", {"proposal": HASH, "party": "bank", "codes": [True]}, "whole number of at least 0"),
        ("rotated", {"certificate": "PEM"}, "certificate in a line 'rotated' of a trail this is not a certificate"),
        ("rotated", {"certificate": BANK.certificate.pem.decode() + "\n"}, "one certificate in PEM form and nothing"),
        ("rotated", {"certificate": "x" * 9000}, "must be a certificate in PEM form"),
    ],
)  # fmt: skip
def test_what_is_not_declared_is_refused(path, trail, kind, facts, sentence):
    """Kinds, names of facts and what they hold; nothing is written."""
    before = path.read_bytes()
    with pytest.raises(InvalidParameter, match=sentence):
        trail.append(kind, **facts)
    assert path.read_bytes() == before


def test_every_kind_can_be_written(path):
    """With all of its facts, and again without those that may be missing; each is read as it was written."""
    values = {
        "party": "bank", "peer": "shop", "version": "1", "fingerprint": SHOP.fingerprint, "how": "code", "why": "lost",
        "address": "host:1", "proposal": HASH, "protocol": "p", "parties": ["bank"], "run_id": "r1", "codes": [1],
        "unattended": True, "heads": {"shop": f"3:{HASH}"}, "signers": {"bank": BANK.fingerprint}, "attempt": 1,
        "dataset": "d", "n_rows": 5, "model": HASH, "ledger": HASH, "inputs": HASH, "rows": HASH,
        "seconds": 1.5, "reason": "lost", "sent": HASH,
        "received": HASH, "n_sent": 1, "n_received": 1, "limits": ["all"], "epsilon": None, "delta": 0.0,
        "peers": ["shop"], "n_batches": 2, "n_bytes": 1, "sha256": HASH,
    }  # fmt: skip
    trail = Trail(path, BANK)
    for kind in [kind for kind in KINDS if kind not in ("init", "rotated")]:
        names = KINDS[kind]
        trail.append(kind, **{name.removesuffix("?"): values[name.removesuffix("?")] for name in names})
        trail.append(kind, **{name: values[name] for name in names if not name.endswith("?")})
    assert verify(path, BANK.certificate.pem).ok
    with pytest.raises(InvalidInput, match="a trail begins once"):
        trail.append("init")


def test_lines_have_an_end(path):
    """A line that is longer than readers accept is not written."""
    heads = {f"party-number-{k}{'x' * 45}": f"1:{HASH}" for k in range(100)}
    signers = dict.fromkeys(heads, BANK.fingerprint)
    facts = {"run_id": "r", "proposal": HASH, "protocol": "p", "version": "1", "signers": signers, "heads": heads}
    Trail(path, BANK).append("run_started", **facts)
    assert verify(path).ok
    assert len(path.read_bytes().splitlines()[-1]) < MAX_LINE


def test_the_checker_of_the_documentation_needs_no_hedgerow(path, trail):
    """The few lines of the page check a trail by what the page says, and nothing of ours is imported there."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "audit.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert "import hedgerow" not in code
    assert "from hedgerow" not in code
    names = {}
    exec(compile(code, "audit.md", "exec"), names)  # noqa: S102 - our own documentation
    trail.append("rotated", certificate=NEW.certificate.pem.decode())
    after = Trail(path, NEW)
    after.append("accepted", proposal=HASH, party="bank")
    assert "{}:{}".format(*names["check"](path)) == after.head
    path.write_bytes(path.read_bytes().replace(b'"epsilon":0.5', b'"epsilon":0.4'))
    with pytest.raises(InvalidSignature):
        names["check"](path)


def test_every_kind_and_fact_is_documented():
    """The table of the page is what the code declares."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "audit.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (`.*) \|$", page, flags=re.MULTILINE))
    for kind, facts in KINDS.items():
        told = re.findall(r"\[`(\w+)`\]|(?<!\[)`(\w+)`", rows[kind].split(":")[0])
        assert {f"{maybe}?" if maybe else needed for maybe, needed in told} == set(facts), kind


# --- keys ------------------------------------------------------------------------------------------------------------


def test_a_new_key_is_entered_with_the_old_one(path, trail):
    """From there on the old key cannot go on, the new one can, and either certificate vouches for all of it."""
    with pytest.raises(InvalidInput, match="a new key is entered with the old one"):
        Trail(path, NEW).append("accepted", proposal=HASH, party="bank")
    trail.append("rotated", certificate=NEW.certificate.pem.decode())
    with pytest.raises(InvalidInput, match="a new key is entered with the old one"):
        trail.append("accepted", proposal=HASH, party="bank")
    Trail(path, NEW).append("accepted", proposal=HASH, party="bank")
    for identity in (BANK, NEW):
        report = verify(path, identity.certificate.pem)
        assert report.ok
        assert report.trails[0].vouched
        assert report.trails[0].certificates == (BANK.fingerprint, NEW.fingerprint)
    assert "it was not signed with the certificate" in sentences(path, SHOP.certificate.pem)[0]


def test_a_certificate_of_somebody_else_is_found(path, trail):
    """A trail of the bank cannot go on as the shop's."""
    trail.append("rotated", certificate=SHOP.certificate.pem.decode())
    assert sentences(path) == ["6: its certificate is made for shop, and the trail is that of bank"]


def test_without_a_certificate_it_is_the_partys_own_word(path, trail):
    """The report says what could not be seen."""
    report = verify(trail.path)
    assert report.ok
    assert report.notes == (f"{path}: no certificate was given, so it is the party's own word whose it is",)
    (path.parent / "audit.jsonl.head").unlink()
    assert "lines that were cut off at its end would not show" in verify(path).notes[0]
    assert json.dumps(report.to_dict())


# --- tampering -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two trails of the same party, each with a change of keys, as lines with their ends."""
    found = []
    for number in range(2):
        place = tmp_path_factory.mktemp("trails") / "audit.jsonl"
        trail = Trail(place, BANK)
        for k in range(3):
            trail.append("accepted", proposal=f"{number}{k}" * 32, party="bank")
        trail.append("rotated", certificate=NEW.certificate.pem.decode())
        Trail(place, NEW).append("scored", peers=["shop"], n_rows=7)
        Trail(place, NEW).append("scored", peers=["shop"], n_rows=8)
        assert verify(place, NEW.certificate.pem).ok
        found.append((place.read_bytes().splitlines(keepends=True), place.with_name("audit.jsonl.head").read_bytes()))
    return found


def is_broken(folder, contents, head=None):
    """Whether these contents are found to be wrong, even with the head that there was, or without one."""
    place = folder / "audit.jsonl"
    place.write_bytes(contents)
    beside = folder / "audit.jsonl.head"
    beside.unlink(missing_ok=True)
    if head is not None:
        beside.write_bytes(head)
    return not verify(place, BANK.certificate.pem).ok


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place for changed trails."""
    return tmp_path_factory.mktemp("changed")


@given(data=st.data())
def test_every_changed_byte_is_found(whole, folder, data):
    """Any byte, any other value, anywhere, also without the file that says how long the trail is."""
    contents = bytearray(b"".join(whole[0][0]))
    place = data.draw(st.integers(0, len(contents) - 1))
    contents[place] ^= data.draw(st.integers(1, 255))
    assert is_broken(folder, bytes(contents))


@given(data=st.data())
def test_every_byte_left_out_or_put_in_is_found(whole, folder, data):
    """One byte fewer or one more."""
    contents = b"".join(whole[0][0])
    place = data.draw(st.integers(0, len(contents) - 1))
    more = data.draw(st.sampled_from([b"", b" ", b"\n", b"0", contents[place : place + 1] * 2]))
    other = contents[:place] + more + contents[place + (data.draw(st.booleans()) or not more) :]
    assert other == contents or is_broken(folder, other)


@given(data=st.data())
def test_every_cut_is_found(whole, folder, data):
    """At any byte: within a line by itself, after a line by what the head says; also cut off at the front."""
    lines, head = whole[0]
    contents = b"".join(lines)
    place = data.draw(st.integers(0, len(contents) - 1) | st.sampled_from([len(b"".join(lines[:k])) for k in range(6)]))
    assert is_broken(folder, contents[:place], head)
    assert place == 0 or is_broken(folder, contents[place:])


@given(data=st.data())
def test_lines_in_another_order_are_found(whole, folder, data):
    """Moved, left out, doubled."""
    lines, head = whole[0]
    order = data.draw(st.permutations(range(len(lines))) | st.lists(st.sampled_from(range(len(lines))), max_size=8))
    other = b"".join(lines[k] for k in order)
    assert other == b"".join(lines) or is_broken(folder, other, head)


@given(data=st.data())
def test_two_trails_of_one_key_cannot_be_spliced(whole, folder, data):
    """Lines of another trail of the same party, with the same numbers and keys, do not fit into this one."""
    (lines, head), (others, _) = whole
    chosen = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    mixed = b"".join(other if take else line for line, other, take in zip(lines, others, chosen, strict=True))
    if not any(chosen):
        assert not is_broken(folder, mixed, head)
    elif not all(chosen):
        assert is_broken(folder, mixed)
    assert not any(chosen) or is_broken(folder, mixed, head)


def test_a_line_signed_with_another_key_is_found(path, trail):
    """Made in all forms but with a key of one's own, also if it names its own certificate."""
    last = read_line(path.read_bytes().splitlines()[-1])
    prev = hashlib.sha256(last.line).hexdigest()
    for fingerprint, sentence in [
        (BANK.fingerprint, "6: the signature is not that of this line by this key"),
        (SHOP.fingerprint, f"6: it names the certificate {SHOP.fingerprint}; the trail is at {BANK.fingerprint}"),
    ]:
        forged = last._replace(seq=6, prev=prev, certificate=fingerprint)
        forged = forged._replace(signature=SHOP.sign(forged.signed).hex())
        whole = path.read_bytes()
        path.write_bytes(whole + forged.line + b"\n")
        assert sentences(path) == [sentence]
        with pytest.raises(InvalidInput, match=r"nothing is added|a new key is entered with the old one"):
            trail.append("accepted", proposal=HASH, party="bank")
        path.write_bytes(whole)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_file_is_judged(folder, contents):
    """Whatever bytes are in a trail or beside it, the answer is a report."""
    assert is_broken(folder, contents, contents)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=10,
    ),
    st.sampled_from(sorted(KINDS)),
    st.data(),
)
def test_any_fact_is_judged(value, kind, data):
    """Whatever a caller passes is written as declared, or refused in words."""
    name = data.draw(st.sampled_from(sorted(KINDS[kind]))).removesuffix("?")
    try:
        found = checked_facts(kind, {name: value})
    except InvalidParameter:
        return
    assert checked_facts(kind, found) == found


def test_a_key_holder_who_signs_a_lie_is_not_found_by_the_trail_alone(path, trail):
    """What the page says a trail does not prove: a trail written anew from the start is in order by itself."""
    assert trail.head.startswith("5:")
    path.unlink()
    path.with_name("audit.jsonl.head").unlink()
    trail.append("accepted", proposal="00" * 32, party="bank")
    assert verify(path, BANK.certificate.pem).ok


def test_certificates_that_no_library_reads_are_findings(path, trail, folder):
    """Every changed byte of a certificate in its binary form is judged, whatever the parser makes of it."""
    text = json.dumps(BANK.certificate.pem.decode()).encode()
    assert trail.head
    assert text in path.read_bytes()
    der = BANK.certificate.der
    for place in range(len(der)):
        changed = der[:place] + bytes([der[place] ^ 0x41]) + der[place + 1 :]
        lines = textwrap.wrap(base64.b64encode(changed).decode(), 64)
        pem = "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
        assert is_broken(folder, path.read_bytes().replace(text, json.dumps(pem).encode())), place


def test_every_byte_of_a_small_trail_counts(path, folder):
    """One after the other, each changed to the other case or the next number, all are found."""
    Trail(path, BANK).append("scored", peers=["shop"], n_rows=7)
    contents = path.read_bytes()
    for place in range(len(contents)):
        for flip in (1, 0x20):
            other = contents[:place] + bytes([contents[place] ^ flip]) + contents[place + 1 :]
            assert is_broken(folder, other), (place, flip)


# --- crashes and company ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bytes", [1, 40, 200])
def test_a_torn_line_is_put_aside(path, trail, n_bytes):
    """What was written of it is kept, the trail says so, and goes on."""
    whole = path.read_bytes()
    torn = whole.splitlines()[-1][:n_bytes]
    path.write_bytes(whole + torn)
    assert sentences(path) == ["6: the trail ends in the middle of a line"]
    trail.append("accepted", proposal=HASH, party="bank")
    assert path.with_name("audit.jsonl.torn-6").read_bytes() == torn
    told = [json.loads(line) for line in path.read_bytes().splitlines()[5:]]
    assert [entry["kind"] for entry in told] == ["torn", "accepted"]
    assert told[0]["facts"] == {"n_bytes": n_bytes, "sha256": hashlib.sha256(torn).hexdigest()}
    assert verify(path).ok
    trail.append("accepted", proposal=HASH, party="bank")
    assert len(path.read_bytes().splitlines()) == 8


def test_torn_twice_at_the_same_place(path, trail):
    """A crash while the line about the first crash is written: both parts are kept, one line tells of them."""
    for part in (b"{one", b"{two"):
        path.write_bytes(path.read_bytes() + part)
        assert trail.head.startswith("5:")  # whoever looks puts it aside, and is stopped before the line is written
    trail.append("accepted", proposal=HASH, party="bank")
    assert path.with_name("audit.jsonl.torn-6").read_bytes() == b"{one\n{two"
    assert [json.loads(line)["kind"] for line in path.read_bytes().splitlines()[5:]] == ["torn", "accepted"]
    assert verify(path).ok


@given(st.lists(st.binary(min_size=1, max_size=300).map(lambda part: part.replace(b"\n", b"")), min_size=1, max_size=3))
@as_often(25)
def test_anything_that_is_torn_is_put_aside(tmp_path_factory, parts):
    """Whatever a crash left of a line, once or several times: it is kept byte for byte, and the trail goes on."""
    path, parts = tmp_path_factory.mktemp("torn") / "audit.jsonl", [part for part in parts if part]
    trail = Trail(path, BANK)
    trail.append("accepted", proposal=HASH, party="bank")
    for part in parts:
        path.write_bytes(path.read_bytes() + part)
        assert trail.head.startswith("2:")
    trail.append("accepted", proposal=HASH, party="bank")
    told = [json.loads(line) for line in path.read_bytes().splitlines()[2:]]
    assert [entry["kind"] for entry in told] == ["torn", "accepted"][not parts :]
    if parts:
        kept = path.with_name("audit.jsonl.torn-3").read_bytes()
        assert kept == b"\n".join(parts)
        assert told[0]["facts"] == {"n_bytes": len(kept), "sha256": hashlib.sha256(kept).hexdigest()}
    assert verify(path).ok


def test_torn_in_the_first_line(path):
    """A trail that never had a whole line begins anew, and its second line tells of it."""
    path.write_bytes(b'{"seq":1')
    Trail(path, BANK).append("accepted", proposal=HASH, party="bank")
    assert [json.loads(line)["kind"] for line in path.read_bytes().splitlines()] == ["init", "torn", "accepted"]
    assert verify(path).ok


def test_a_trail_that_was_cut_is_not_gone_on_with(path, trail):
    """A node whose trail is shorter than it was stops and says so, rather than hide it under new lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    for contents, sentence in [
        (b"".join(lines[:4]), "its last line has the number 4, but audit.jsonl.head knows another line 5"),
        (b"", "it has no line, but audit.jsonl.head says that it had"),
        (b"\n", "it does not end in a line"),
        (b"".join(lines[:4]) + b"{}\n", "in its last line: it must be an object"),
    ]:
        path.write_bytes(contents)
        with pytest.raises(InvalidInput, match=sentence):
            trail.append("accepted", proposal=HASH, party="bank")
        assert path.read_bytes() == contents


def test_a_full_disk_leaves_no_half_line(path, trail, monkeypatch):
    """What was written of the line is taken back, and the caller hears of it."""
    before, write = path.read_bytes(), os.write

    def full(file, data):
        write(file, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InvalidInput, match=r"cannot be written: .*No space left"):
        trail.append("accepted", proposal=HASH, party="bank")
    assert path.read_bytes() == before


def test_a_head_that_is_behind_is_no_harm(path, trail):
    """Stopped between the line and the head: the next line goes on, and the trail is in order."""
    head = path.with_name("audit.jsonl.head")
    old = head.read_bytes()
    trail.append("accepted", proposal=HASH, party="bank")
    head.write_bytes(old)
    assert verify(path).ok
    trail.append("accepted", proposal=HASH, party="bank")
    assert verify(path).ok
    head.write_bytes(b"{")
    assert "cannot be read" in sentences(path)[0]


def test_a_clock_that_goes_back_is_noted(path, trail, monkeypatch):
    """It is no proof of anything, so it is a note and not a finding."""

    class Early(audit.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2001, 1, 1, tzinfo=tz)

    monkeypatch.setattr(audit, "datetime", Early)
    trail.append("accepted", proposal=HASH, party="bank")
    report = verify(path, BANK.certificate.pem)
    assert report.ok
    assert report.notes == (f"{path}, line 6: the clock went back, to 2001-01-01T00:00:00.000+00:00",)


def test_links_and_missing_files(tmp_path):
    """A link is not followed when writing; a trail that is not there is told so when reading."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="cannot be opened"):
        Trail(tmp_path / "link", BANK).append("init")
    with pytest.raises(InvalidInput, match="cannot be read"):
        verify(tmp_path / "missing")
    assert Trail(tmp_path / "missing", BANK).head is None


WRITER = textwrap.dedent(
    """
    import sys
    from hedgerow.node.audit import Trail
    from pathlib import Path
    from hedgerow.node import keys
    trail = Trail(sys.argv[1], keys.load(Path(sys.argv[2])))
    print("ready", flush=True)
    sys.stdin.readline()
    for k in range(int(sys.argv[4])):
        seq = trail.append("scored", peers=["shop"], n_rows=k, run_id=sys.argv[3])["seq"]
        print(seq, k, flush=True)
    """
)


def writers(path, n_writers, n_lines):
    """Processes that append to one trail, started together."""
    keys.save(BANK, path.parent / "keys")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(path.parent / "keys"), f"w{number}", str(n_lines)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(n_writers)
    ]  # fmt: skip
    for writer in started:
        assert writer.stdout.readline() == "ready\n"
    for writer in started:
        writer.stdin.write("\n")
        writer.stdin.flush()
    return started


def test_several_processes_write_one_trail(path):
    """Nothing is lost, nothing is written twice, each one's lines are in its order, and the chain holds."""
    for writer in (started := writers(path, 4, 25)):
        assert len(writer.communicate()[0].splitlines()) == 25
    assert verify(path, BANK.certificate.pem).ok
    entries = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    for number in range(len(started)):
        mine = [entry["facts"]["n_rows"] for entry in entries if entry["facts"]["run_id"] == f"w{number}"]
        assert mine == list(range(25))


def test_processes_that_are_killed_leave_a_trail_in_order(path):
    """Whatever `append` returned is in the trail, under the number that it gave, and others go on."""
    started = writers(path, 4, 10_000)
    told = []
    for number, writer in enumerate(started):
        lines = [writer.stdout.readline() for _ in range(5)]
        os.kill(writer.pid, signal.SIGKILL)
        lines += writer.communicate()[0].splitlines(keepends=True)
        told += [(f"w{number}", *map(int, line.split())) for line in lines if line.endswith("\n")]
    Trail(path, BANK).append("accepted", proposal=HASH, party="bank")
    assert verify(path, BANK.certificate.pem).ok
    entries = {entry["seq"]: entry["facts"] for entry in map(json.loads, path.read_bytes().splitlines())}
    for name, seq, n_rows in told:
        assert (entries[seq]["run_id"], entries[seq]["n_rows"]) == (name, n_rows)
