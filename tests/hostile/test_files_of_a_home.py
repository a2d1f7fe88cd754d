"""Every file that a party's home has, damaged in every way: a sentence names the file, and nothing else happens."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.cli.outcome import ExitCode
from hedgerow.cli.run import running_pid
from hedgerow.errors import HedgerowError
from hedgerow.node import documents
from hedgerow.node.audit import Trail
from hedgerow.node.day_counts import DayCounts
from hedgerow.node.home import Home
from hedgerow.node.inputs import read_rows
from hedgerow.node.invitation import read_invitation, write_invitation
from hedgerow.node.job_file import read_job_file
from hedgerow.node.keys import stored_passphrase
from hedgerow.node.peers import Peers
from hedgerow.node.playing import Place, play, read_run
from hedgerow.node.serving_book import FORMAT, Book
from hedgerow.node.serving_http import token_of
from hedgerow.node.sources import read_file
from hedgerow.node.succession import follow, write_succession
from hedgerow.node.trained import Trained
from hedgerow.node.watching import Watch
from hedgerow.report.of_node import told_of_node
from hedgerow.report.pack.subject import of_home
from hedgerow.report.sections import page
from hedgerow.runtime.saved_files import private_folder
from hedgerow.transport.mtls import Identity
from twins.damage import as_often, damaged
from twins.homes import simplify
from twins.organisations import HOLDERS, TREES, agreed_by_all, at_every_node, job_text, proposed, two_organisations
from twins.parties import Authority

pytestmark = pytest.mark.filterwarnings("ignore:Parsed a serial number")  # of a damaged certificate, by its library

RUN = "runs/*"


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """The home of a party after a run, with everything that may lie in one."""
    patch = pytest.MonkeyPatch()
    simplify(patch)
    policy = "rows_per_day = 1000\n[policy.budget]\nepsilon = 50.0\ndelta = 1e-5"
    homes = two_organisations(tmp_path_factory.mktemp("organisations"), policy=policy)
    options = {**TREES, "epsilon": 4.0, "delta": 1e-6}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, HOLDERS))
    agreed_by_all(homes, proposal)
    found = at_every_node(homes, lambda node: play(node, node.papers.get(proposal.hash), wait=60.0))
    for outcome in found.values():
        assert isinstance(outcome, Path), outcome
    _fill(homes["bank"], homes["shop"], found["bank"])
    yield homes["bank"].path
    patch.undo()


def _fill(bank: Home, shop: Home, run: Path) -> None:
    """What a run alone does not leave."""
    other = Home.create(bank.path.parent / "mill", "mill")
    bank.peers.add("mill", other.certificate, None, how="a test")
    bank.peers.revoke("mill")
    write_invitation(bank.path / "invitation.json", "mill", Identity.create("mill"), "127.0.0.1:7341")
    write_succession(bank.path / "succession.json", shop.identity(), Identity.create("shop").certificate)
    (bank.path / "authority.pem").write_bytes(Authority("ours").certificate.pem)
    DayCounts(bank.path / "scored.json").take("shop", 5, 1000)
    token_of(bank.path)
    (bank.path / "passphrase").write_text("several words of the bank")
    (bank.path / "passphrase").chmod(0o600)
    (run / "failed.json").write_text(json.dumps({"error": "PeerLost", "message": "shop went away", "at": "today"}))
    hour = {**ABOUT, "format": FORMAT, "version": 1, "hour": "2026-05-04T11", "rows": 3, "batches": 1, "entries": 1}
    documents.write(private_folder(run / "serving") / HOUR, {**hour, "lines": [LINE], "in_trail": False})
    entry = {"file": HOUR, "entry": 2, "rows": 3, "lines": [LINE]}
    (run / "serving" / "journal").write_text(json.dumps(entry) + "\n")
    (bank.path / "audit.jsonl.torn-99").write_bytes(b'{"seq":99')
    probe = {"seconds": 1.0}
    (bank.path / "probes.json").write_text(json.dumps({"one": probe, "two": probe}))


HOUR = "2026-05-04T11-3f9a12.json"
ABOUT = {"party": "bank", "model": "0" * 32, "proposal": "0" * 64, "peers": ["shop"]}
LINE = {"direction": "disclosed", "peer": "shop", "message": "serving.asked", "messages": 1, "bytes": 100}


# --- what reads them -------------------------------------------------------------------------------------------------


def command(*words: str) -> Callable[[Path], None]:
    """A verb, as from a shell: its error is passed on, and anything that is no sentence fails."""

    def use(home: Path) -> None:
        proposal = next((home / "proposals").iterdir()).name
        result = CliRunner().invoke(app, [word.format(home=home, proposal=proposal) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in set(ExitCode) - {ExitCode.INTERNAL}, result.stderr
        assert "Traceback" not in result.stderr
        if result.exit_code:
            raise HedgerowError(result.stderr + result.stdout)

    return use


def the_run(home: Path) -> Path:
    """The folder of the one run."""
    return next(path for path in (home / "runs").iterdir())


def take_up_book(home: Path) -> None:
    """What a standing service does first."""
    Book(the_run(home) / "serving", Trail(home / "audit.jsonl", Home(home).identity()), **ABOUT).close()


def go_on_with_trail(home: Path) -> None:
    """Add a line to it."""
    Trail(home / "audit.jsonl", Home(home).identity()).append("revoked", peer="shop", fingerprint="sha256:" + "0" * 64)


def trust_authority(home: Path) -> None:
    """A trust store with an authority of one's own."""
    Peers(home / "peers", home / "revoked.json", authority=lambda: home / "authority.pem").trust_store(["shop"])


def find_process(home: Path) -> None:
    """Who plays the run, while somebody does."""
    with (the_run(home) / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running_pid(the_run(home))


def report_of(home: Path) -> None:
    """The page of the one run."""
    page(told_of_node(Home(home), "")).save(home.parent / "report.html")


status = command("status", "--home", "{home}")


class Kind(NamedTuple):
    """A file, what its contents are, and who reads it."""

    file: str
    contents: str
    use: Callable[[Path], Any]
    without: tuple[str, ...] = ()  # files that are not there yet when it is read


KINDS = (
    Kind("party.toml", "toml", status),
    Kind("certificate.pem", "pem", status),
    Kind("key.pem", "pem", lambda home: Home(home).identity()),
    Kind("passphrase", "text", lambda home: stored_passphrase(home / "passphrase")),
    Kind("authority.pem", "pem", trust_authority),
    Kind("peers/shop.json", "json", status),
    Kind("revoked.json", "json", status),
    Kind("budget.sqlite", "sqlite", status),
    Kind("invitation.json", "json", lambda home: read_invitation(home / "invitation.json")),
    Kind("succession.json", "json", lambda home: follow(Home(home).peers, home / "succession.json")),
    Kind("proposals/*/proposal.json", "json", status),
    Kind("proposals/*/answers/shop.json", "json", status),
    Kind("job.toml", "toml", lambda home: read_job_file(home / "job.toml")),
    Kind(f"{RUN}/run.json", "json", status),
    Kind(f"{RUN}/run.json", "json", lambda home: read_run(the_run(home))),
    Kind(f"{RUN}/run.json", "json", lambda home: Trained.find(Home(home), "")),
    Kind(f"{RUN}/part.json", "json", lambda home: Trained.find(Home(home), "")),
    Kind(f"{RUN}/failed.json", "json", status, (f"{RUN}/run.json",)),
    Kind(f"{RUN}/progress.json", "json", status, (f"{RUN}/run.json", f"{RUN}/failed.json")),
    Kind(f"{RUN}/lock", "text", find_process, (f"{RUN}/run.json",)),
    Kind(f"{RUN}/statement.json", "json", lambda home: of_home(Home(home), the_run(home).name)),
    Kind(f"{RUN}/opening.json", "json", lambda home: of_home(Home(home), the_run(home).name)),
    Kind(f"{RUN}/passing.jsonl", "jsonl", lambda home: Watch(Home(home)).look()),
    Kind(f"{RUN}/lock", "text", lambda home: Watch(Home(home)).look(), (f"{RUN}/run.json", f"{RUN}/failed.json")),
    Kind(f"{RUN}/attempt.json", "json", lambda home: Place(the_run(home)).attempts),
    Kind(f"{RUN}/rows.npy", "npy", lambda home: read_rows(the_run(home) / "rows.npy", 240)),
    Kind(f"{RUN}/ledger.jsonl", "jsonl", command("manifest", "{proposal}", "--home", "{home}")),
    Kind(f"{RUN}/run.json", "json", report_of),
    Kind(f"{RUN}/ledger.jsonl", "jsonl", report_of),
    Kind(f"{RUN}/statement.json", "json", report_of),
    Kind(f"{RUN}/serving/{HOUR}", "json", take_up_book),
    Kind(f"{RUN}/serving/journal", "jsonl", take_up_book),
    Kind("audit.jsonl", "jsonl", command("audit", "verify", "{home}/audit.jsonl")),
    Kind("audit.jsonl", "jsonl", go_on_with_trail),
    Kind("audit.jsonl.head", "json", go_on_with_trail),
    Kind("audit.jsonl.head", "json", command("audit", "verify", "{home}/audit.jsonl")),
    Kind("scored.json", "json", lambda home: DayCounts(home / "scored.json").take("shop", 1, 1000)),
    Kind("serve.token", "text", token_of),
    Kind("customers.parquet", "parquet", lambda home: read_file(home / "customers.parquet")),
)


def names_of(kind: Kind) -> str:
    """For the list of tests."""
    return f"{kind.file.replace('*', '_')}-{KINDS.index(kind)}"


def tree_of(home: Path) -> dict[str, str]:
    """Every file, and what is in it."""
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    return {str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def copy_of(bank: Path, place: Path, kind: Kind) -> Path:
    """The home as it is when this file is read."""
    shutil.copytree(bank, place / "bank")
    for pattern in kind.without:
        next((place / "bank").glob(pattern)).unlink()
    return place / "bank"


@pytest.mark.parametrize("kind", KINDS, ids=names_of)
@given(data=st.data())
@as_often(6)
def test_damage_is_a_sentence_about_the_file(bank, tmp_path_factory, kind, data):
    """Whatever was done to it: it is read, or refused with its name, and then nothing in the home has changed."""
    home = copy_of(bank, tmp_path_factory.mktemp("home"), kind)
    (file,) = home.glob(kind.file)
    file.write_bytes(data.draw(damaged(file.read_bytes(), kind.contents)))
    before = tree_of(home)
    try:
        kind.use(home)
    except HedgerowError as problem:
        told = str(problem)
    else:
        told = None
    if told is not None:
        assert file.name in told or file.parent.name in told
        assert "\x1b" not in told
        assert tree_of(home) == before
    shutil.rmtree(home.parent)


@pytest.mark.parametrize("kind", KINDS, ids=names_of)
def test_a_file_that_is_whole_is_read(bank, tmp_path, kind):
    """Otherwise the test above would show nothing."""
    kind.use(copy_of(bank, tmp_path, kind))


@pytest.mark.parametrize("kind", KINDS, ids=names_of)
def test_something_else_under_its_name_is_a_sentence_too(bank, tmp_path, kind):
    """A folder, a link to itself and a link to nothing, where a file should be."""
    for number, make in enumerate(
        (Path.mkdir, lambda file: file.symlink_to(file.name), lambda file: file.symlink_to("nowhere"))
    ):
        home = copy_of(bank, tmp_path / str(number), kind)
        (file,) = home.glob(kind.file)
        file.unlink()
        make(file)
        try:
            kind.use(home)
        except HedgerowError:
            continue
        except OSError as problem:  # a command makes one line and exit code 3 of it
            assert Path(problem.filename).name == file.name  # noqa: PT017 - several outcomes are right


BOUNDED = [kind for kind in KINDS if kind.file.endswith((".toml", ".pem", ".token", "peers/shop.json", "revoked.json"))]
BOUNDED += [kind for kind in KINDS if "proposal" in kind.file or kind.file in ("audit.jsonl.head", "scored.json")]


@pytest.mark.parametrize("kind", BOUNDED, ids=names_of)
def test_a_file_beyond_all_bounds_is_not_read_into_memory(bank, tmp_path, kind):
    """One of a gigabyte, which takes no room on the disk: little of it is looked at."""
    home = copy_of(bank, tmp_path, kind)
    (file,) = home.glob(kind.file)
    os.truncate(file, 1 << 30)
    tracemalloc.start()
    try:
        with contextlib.suppress(HedgerowError):  # of a key, what stands behind it does not count
            kind.use(home)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
