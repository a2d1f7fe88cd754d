"""The pack of a run: its facts are those of the run, it claims nothing more, and nothing secret is in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
import subprocess
import zipfile
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hedgerow import Federation
from hedgerow.cli import app
from hedgerow.cli.outcome import ExitCode
from hedgerow.codec import to_json
from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.node.commitments import Opening
from hedgerow.node.home import Home
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.report.pack import attacked
from hedgerow.report.pack.blocks import Fill, Grid, Page, Points, Text, Title, as_markdown
from hedgerow.report.pack.files import as_zip, put_together, write
from hedgerow.report.pack.page import as_html
from hedgerow.report.pack.roles import NOT_ON_SECRETS, ROLES
from hedgerow.report.pack.subject import find_subject, of_home, of_saved
from hedgerow.runtime.protocol import find, names
from twins.damage import as_often, damaged
from twins.documented import blocks
from twins.organisations import customers, three_owners, trained

CLAIMS = re.compile(
    r"\b(?:compl(?:y|ies|ied|iant|iance|ying)|conform(?:s|ed|ing|ant|ance|ity)?|certified|certifies|approved by|"
    r"guaranteed anonymous|is anonymous|gdpr[- ]proof)\b",
    re.IGNORECASE,
)


def run(*words, code=0):
    """A command in this process."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


@pytest.fixture(scope="module")
def packs(story):
    """Each party's files."""
    return {name: put_together(of_home(home, story.proposal.run_id)) for name, home in story.homes.items()}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of one program that was recorded, saved, and attacked; and what the attack printed."""
    folder = tmp_path_factory.mktemp("saved")
    table = customers()
    parts = {"bank": table.select(["x0", "x1"]), "shop": table.select(["x2", "x3", "x4"])}
    federation = Federation.vertical(parts, labels=("bank", table.column("bad").to_numpy()))
    options = {"epsilon": 4.0, "delta": 1e-5, "n_estimators": 2, "max_depth": 2, "record": True}
    federation.fit("vertical.noised_gradients", **options).save(folder / "run")
    pq.write_table(table, folder / "labels.parquet")
    words = ("attack", folder / "run", "--labels", folder / "labels.parquet", "--column", "bad", "--json")
    (folder / "attacks.json").write_text(run(*words).stdout)
    return folder


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_every_part_is_there_and_listed_with_its_digest(packs):
    """All that the front page of the package names, and SHA256SUMS fits each file."""
    files = packs["bank"]
    wanted = {
        *("pack.html", "statement.json", "registry.json", "manifest.json", "audit_extract.jsonl", "attacks.json"),
        *("audit_verification.json", "proposal.json", "answers/bank.json", "answers/shop.json", "roles.json"),
        *("technical_file.md", "model_card.md", "sbom.cdx.json", "SHA256SUMS"),
    }
    assert files.keys() == wanted
    listed = dict(line.split("  ")[::-1] for line in files["SHA256SUMS"].decode().splitlines())
    assert listed.keys() == wanted - {"SHA256SUMS"}
    assert all(hashlib.sha256(files[name]).hexdigest() == digest for name, digest in listed.items())


def test_equal_inputs_give_equal_bytes(story, packs, tmp_path):
    """The ZIP does not depend on when or where it is made; its files are those of the folder."""
    again = put_together(of_home(story.homes["bank"], story.proposal.run_id))
    assert as_zip(again) == as_zip(packs["bank"])
    write(again, tmp_path / "one.zip")
    write(again, tmp_path / "deeper" / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "deeper" / "two.zip").read_bytes()
    write(again, tmp_path / "folder")
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        for name in archive.namelist():
            assert archive.read(name) == (tmp_path / "folder" / name).read_bytes()
    assert (tmp_path / "one.zip").stat().st_mode & 0o777 == 0o600


def test_facts_are_those_of_the_run(story, packs):
    """Statement, manifest and papers are what lies in the home, and the registry has the statement's fields."""
    files, folder = packs["bank"], story.folders["bank"]
    stated = json.loads((folder / "statement.json").read_text())
    packed = json.loads(files["statement.json"])
    assert {name: packed[name] for name in stated} == stated
    assert json.loads(files["registry.json"])["registry"] == stated["registry"]
    told = json.loads(run("manifest", story.proposal.run_id, "--home", story.homes["bank"].path, "--json").stdout)
    assert {"command": "manifest", **json.loads(files["manifest.json"])} == told
    assert json.loads(files["proposal.json"]) == story.proposal.to_dict()
    html = files["pack.html"].decode()
    assert stated["guarantee"][0] in _text(html)
    for entry in told["sent"]:
        assert f"{entry['bytes']:,}" in html


def test_a_party_without_the_statement_says_so(packs):
    """The shop does not have the record of the training, and its pack says on what its statement rests."""
    assert "did not get the record of the training" in packs["shop"]["pack.html"].decode()
    assert json.loads(packs["shop"]["statement.json"])["is_planned"] is True
    assert "did not get the record" not in packs["bank"]["pack.html"].decode()


def test_layers_of_the_statement_are_in_order(packs):
    """What is promised stands before what it rests on: parties, then data; what is not covered comes last."""
    html = _text(packs["bank"]["pack.html"].decode())
    titles = ("1. What is promised", "2. The algorithm", "3. Whom one has to trust", "4. How the data came to be")
    places = [html.index(title) for title in (*titles, "What is not covered")]
    assert places == sorted(places)


def test_the_technical_file_has_all_nine_points(packs):
    """In their order, each with a box or a fact."""
    text = packs["bank"]["technical_file.md"].decode()
    numbers = [int(number) for number in re.findall(r"^## (\d)\. ", text, flags=re.MULTILINE)]
    assert sorted(set(numbers)) == list(range(1, 10))
    assert numbers == sorted(numbers)
    for point in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        assert "To be filled in by:" in point or "| " in point


def test_boxes_say_who_is_to_fill_them_in(packs):
    """Every one of the page is visible as such, and there are many."""
    html = packs["bank"]["pack.html"].decode()
    boxes = re.findall(r'<div class="ask" role="note"><strong>To be filled in by: ([^<]+)</strong><span>([^<]+)<', html)
    assert len(boxes) == html.count('class="ask"') > 15
    assert all(who and what for who, what in boxes)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_nothing_claims_that_a_law_is_met(packs, party):
    """No word of compliance in any file."""
    for name, content in packs[party].items():
        assert not CLAIMS.search(content.decode()), (name, CLAIMS.search(content.decode()))


@pytest.mark.parametrize(
    "words", ["This complies with the Act", "fully compliant.", "It conforms to ISO", "GDPR-proof"]
)
def test_a_claim_would_be_found(words):
    """Otherwise the test above would show nothing."""
    assert CLAIMS.search(words)


# --- what is not in it -----------------------------------------------------------------------------------------------


def _values(home: Home) -> set[str]:
    """Ids of a party's table, and the first nine characters of every number, which has more."""
    table = pq.read_table(home.path / "customers.parquet")
    numbers = [value for name in table.column_names if name.startswith("x") for value in table.column(name).to_pylist()]
    return {*(str(abs(value))[:9] for value in numbers), *table.column("customer").to_pylist()}


def _found(values: set[str], text: str) -> set[str]:
    """Those of the values that stand in a text, as words or as beginnings of numbers."""
    words = set(re.findall(r"\b[cz]\d{1,4}\b", text)) | {word[:9] for word in re.findall(r"\d\.\d{7}", text)}
    return values & words


def test_no_value_of_a_row_is_in_it(story, packs):
    """Neither cells of a table nor thresholds, which are halfway between two of them, in any form of the pack."""
    for name, home in story.homes.items():
        values = _values(home)
        assert len(values) > 700
        part = load_part(story.folders[name] / "part.json")
        edges = {str(abs(edge))[:9] for feature in part.features for edge in feature.edges.tolist()}
        assert edges
        for party, files in packs.items():
            for file, content in files.items():
                assert not _found(values | edges, content.decode()), (party, file)
        row = pq.read_table(home.path / "customers.parquet").slice(3, 1).to_pylist()
        assert len(_found(values, str(row))) >= 3


def test_no_key_and_no_salt_is_in_it(story, packs):
    """Not the private key in any spelling, not the salt that opens commitments, no folder of the machine."""
    for name, home in story.homes.items():
        key = serialization.load_pem_private_key(home.key.read_bytes(), None)
        secret = key.private_numbers().private_value.to_bytes(32, "big")
        salt = Opening.read(story.folders[name] / "opening.json").salt
        for files in packs.values():
            everything = b"\n".join(files.values())
            for hidden in (secret, salt):
                for spelled in (hidden, hidden.hex().encode(), base64.b64encode(hidden)):
                    assert spelled not in everything
            assert b"PRIVATE KEY" not in everything
            assert str(home.path).encode() not in everything


def _text(html: str) -> str:
    """What a reader sees of a page."""
    found: list[str] = []
    parser = HTMLParser()
    parser.handle_data = found.append
    parser.feed(html)
    return "".join(found)


def test_the_page_needs_nothing_else(packs):
    """No script, no address, and a policy that lets a browser fetch nothing."""
    html = packs["bank"]["pack.html"].decode()
    assert "default-src 'none'" in _text(html) or "default-src &#x27;none&#x27;" in html
    assert not re.search(r"<script|<link|<img|<iframe|\son\w+=|src=|url\(|@import", html)
    assert not re.search(r'href="(?!#)', html)


def test_words_from_outside_stay_words():
    """Marks of Markdown and of HTML in a name are shown, and do nothing."""
    page = Page(
        "x", "t", (Text("<script>*a*"), Grid("c", ("h",), (("|",),)), Points(("#1",)), Fill("w", "_b_"), Title("y"))
    )
    text = as_markdown(page)
    assert r"\<script\>\*a\*" in text
    assert r"| \| |" in text
    assert r"- \#1" in text


# --- the trail -------------------------------------------------------------------------------------------------------


def test_the_extract_can_be_checked_by_anybody(story, packs, tmp_path):
    """With the certificate from elsewhere and no other file; each line that is changed, moved or forged is found."""
    home = story.homes["bank"]
    place = tmp_path / "audit_extract.jsonl"
    place.write_bytes(packs["bank"]["audit_extract.jsonl"])
    words = ("audit", "verify", place, "--extract", "--certificate", home.certificate_file)
    told = json.loads(run(*words, "--json").stdout)
    assert told["ok"]
    assert told["trails"][0]["vouched"]
    lines = place.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    assert {"init", "run_started", "committed", "message_digests", "charged", "run_ended"} <= set(kinds)
    place.write_bytes(b"".join(reversed(lines)))
    run(*words, code=ExitCode.TRAIL_BROKEN)
    for k, line in enumerate(lines):
        changed = line.replace(b'"at":"20', b'"at":"19')
        place.write_bytes(b"".join([*lines[:k], changed, *lines[k + 1 :]]))
        run(*words, code=ExitCode.TRAIL_BROKEN)
    place.write_bytes(b"".join(lines[:3] + lines[4:]))
    assert "left out" in " ".join(json.loads(run(*words, "--json").stdout)["notes"])
    assert run("audit", "verify", place, code=ExitCode.TRAIL_BROKEN)


def test_lines_of_other_runs_stay_at_home(story, packs):
    """Only this run's, those of keys, and how its parties' certificates were pinned."""
    entries = [json.loads(line) for line in packs["bank"]["audit_extract.jsonl"].splitlines()]
    for entry in entries:
        facts = entry["facts"]
        about = (
            facts.get("run_id", "").startswith(story.proposal.run_id) or facts.get("proposal") == story.proposal.hash
        )
        assert about or entry["kind"] in ("init", "rotated", "paired")


def test_a_broken_trail_is_told(story, tmp_path):
    """In the page, in the result, and by the exit code; the pack is made all the same."""
    import shutil

    home = Path(shutil.copytree(story.homes["bank"].path, tmp_path / "bank"))
    trail = home / "audit.jsonl"
    trail.write_bytes(trail.read_bytes().replace(b'"attempt":1', b'"attempt":2', 1))
    words = ("pack", story.proposal.run_id, "--home", home, "--out", tmp_path / "pack")
    result = run(*words, "--json", code=ExitCode.TRAIL_BROKEN)
    assert json.loads(result.stdout)["trail_ok"] is False
    assert "BROKEN" in (tmp_path / "pack" / "pack.html").read_text()
    assert str(tmp_path) not in (tmp_path / "pack" / "audit_verification.json").read_text()


# --- attacks ---------------------------------------------------------------------------------------------------------


def test_what_was_not_tested_is_said_plainly(packs):
    """Without results every kind of attack is listed as not tested."""
    told = json.loads(packs["bank"]["attacks.json"])
    assert told["tested"] is False
    assert set(told["kinds"].values()) == {"not tested"}
    assert "Not tested." in packs["bank"]["pack.html"].decode()


def test_attacks_that_were_run_are_in_the_annex(recorded, story, tmp_path):
    """With their numbers, and with the run that they were run on: this one, or another of the same protocol."""
    out = tmp_path / "pack"
    told = json.loads(
        run("pack", recorded / "run", "--attacks", recorded / "attacks.json", "--out", out, "--json").stdout
    )
    assert (told["tested"], told["party"], told["trail_ok"]) == (True, None, None)
    annex = json.loads((out / "attacks.json").read_text())
    outcomes = json.loads((recorded / "attacks.json").read_text())["outcomes"]
    assert [each["on"] for each in annex["tests"]] == ["this run"]
    assert annex["tests"][0]["tried"][0]["value"] == outcomes[0]["value"]
    assert annex["kinds"][attacked.ATTRIBUTE] == "tested by noised_labels"
    assert annex["kinds"][attacked.MEMBERSHIP] == "not tested"
    subject = of_home(story.homes["bank"], story.proposal.run_id)
    other = attacked.to_dict(attacked.read_all([recorded / "attacks.json"], subject), subject)
    assert other["tests"][0]["on"].startswith("another run")


def test_results_of_another_protocol_are_refused(recorded, story, tmp_path):
    """They would say nothing about this run; and so is a file that is no result."""
    subject = of_home(story.homes["bank"], story.proposal.run_id)
    found = json.loads((recorded / "attacks.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps({**found, "protocol": "vertical.bucket_rr"}))
    with pytest.raises(InvalidInput, match=r"other\.json is about vertical\.bucket_rr"):
        attacked.read_tests(tmp_path / "other.json", subject)
    (tmp_path / "status.json").write_text('{"command": "status"}')
    with pytest.raises(InvalidInput, match=r"status\.json.*not the result of hedgerow attack"):
        attacked.read_tests(tmp_path / "status.json", subject)


@cache
def _subject(home, run_id):
    return of_home(Home(home), run_id)


def subject_of_bank(story):
    """Read once."""
    return _subject(story.homes["bank"].path, story.proposal.run_id)


BILL = {"bomFormat": "CycloneDX", "specVersion": "1.6"}


@given(data=st.data())
@as_often(40)
def test_any_file_given_as_attacks_is_read_or_refused(recorded, story, tmp_path_factory, data):
    """Whatever was done to it: a sentence that names the file, or a page in which it is text."""
    subject = subject_of_bank(story)
    place = tmp_path_factory.mktemp("damaged") / "attacks.json"
    place.write_bytes(data.draw(damaged((recorded / "attacks.json").read_bytes(), "json")))
    try:
        tests = attacked.read_all([place], subject)
    except HedgerowError as problem:
        assert "attacks.json" in str(problem)  # noqa: PT017 - both outcomes are right
    else:
        html = as_html(subject, [attacked.page(tests, subject)], {**BILL, "components": []}, {})
        assert "<script" not in html
        json.dumps(to_json(attacked.to_dict(tests, subject)), allow_nan=False)


def test_every_attack_has_a_kind():
    """An attack that is added is of one of the kinds that regulators speak of."""
    known = set().union(*attacked.KINDS_OF_ATTACK.values())
    assert known == set(attacked.ATTACKS)


# --- roles -----------------------------------------------------------------------------------------------------------


def test_every_role_of_every_protocol_is_mapped():
    """Those that the protocols declare, and while matching those that its messages speak of; no others."""
    assert ROLES.keys() == {*names(), "vertical.aligning"}
    for protocol in names():
        assert ROLES[protocol].keys() == find(protocol).roles.keys(), protocol
    assert ROLES["vertical.aligning"].keys() == {"party", "comparer"}
    assert NOT_ON_SECRETS.keys() <= ROLES.keys()


# --- runs of one program, and the command ----------------------------------------------------------------------------


def test_a_saved_run_has_a_pack_of_all_parties(recorded):
    """Nobody signed and there is no trail; both are said."""
    from hedgerow.federation.run import Run

    files = put_together(of_saved(Run.load(recorded / "run")))
    assert "audit_extract.jsonl" not in files
    html = files["pack.html"].decode()
    assert "There is no trail" in html
    assert "all parties, in one program" in html


def test_owners_of_rows_have_a_pack_too(tmp_path):
    """Where everybody has the whole model: the owner's own statement, with the coordinator's role beside its own."""
    homes, proposal = three_owners(tmp_path)
    trained(homes, proposal)
    for name in ("anna", "ben"):
        files = put_together(of_home(homes[name], proposal.run_id))
        (part,) = json.loads(files["roles.json"])["parts"]
        assert {each["party"]: each["role"] for each in part["parties"]} == {
            "anna": "coordinator",
            "ben": "owner",
            "carla": "owner",
        }
        assert json.loads(files["statement.json"])["is_planned"] is False
        assert json.loads(files["registry.json"])["registry"] is None
        assert "claims no differential privacy" in files["pack.html"].decode()


def test_a_run_is_found_by_its_id_or_its_folder(story, monkeypatch, tmp_path):
    """In a home by the beginning of its id, or by the folder that it lies in."""
    home = story.homes["bank"]
    monkeypatch.chdir(home.path)
    assert find_subject(story.proposal.run_id[:6], None).party == "bank"
    monkeypatch.chdir(tmp_path)
    assert find_subject(str(story.folders["shop"]), None).party == "shop"
    told = json.loads(run("pack", story.proposal.run_id[:8], "--home", home.path, "--json").stdout)
    assert Path(told["out"]) == Path(f"pack-{story.proposal.run_id[:12]}.zip")
    assert zipfile.ZipFile(tmp_path / told["out"]).namelist() == told["files"]


def test_commands_of_the_page_work(story, recorded, tmp_path, monkeypatch):
    """Each is typed as it is printed, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEDGEROW_HOME", str(story.homes["bank"].path))
    (tmp_path / "attacks.json").write_bytes((recorded / "attacks.json").read_bytes())
    (tmp_path / "bank.pem").write_bytes(story.homes["bank"].certificate_file.read_bytes())
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "loans").symlink_to(recorded / "run")
    shown = [block.text for block in blocks("packs.md") if block.language == "console"]
    typed = [line.removeprefix("$ ") for text in shown for line in text.splitlines()]
    assert len(typed) > 5
    for line in typed:
        here = line.replace("3f9a", story.proposal.run_id[:8])
        if here.startswith("hedgerow "):
            run(*shlex.split(here)[1:])
        else:
            subprocess.run(["bash", "-c", here], check=True, capture_output=True)
