"""A standing service: two processes that talk over the network, programs that ask over HTTP, peers that misbehave."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.errors import InvalidInput, InvalidParameter, JobError, ProtocolError
from hedgerow.ledger import Exact, Kind, Ledger
from hedgerow.node import day_counts, serving
from hedgerow.node.audit import Trail, verify
from hedgerow.node.day_counts import Allowance, DayCounts
from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.serving import (
    ANSWERED,
    MESSAGES,
    Absent,
    Answers,
    Limited,
    Partner,
    ReadyToServe,
    RecordsAnswered,
    RecordsAsked,
    answer,
    open_end,
)
from hedgerow.node.serving_book import Book
from hedgerow.node.serving_http import MOST_BODY, TOKEN_FILE, Door, Handler, Metrics, address_of, token_of
from hedgerow.node.serving_scores import MOST_ASKED, Scorer
from hedgerow.node.trained import Trained
from hedgerow.runtime.party import Party
from hedgerow.transport.ranges import check
from twins.damage import as_often, damaged
from twins.documented import DOCS, commands_in
from twins.homes import free_port
from twins.offices import Office, typed_in
from twins.trained_homes import N, trained_homes
from twins.unstated import unstated

PATIENCE = 60.0


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A bank and a shop with a model without noise."""
    return trained_homes(tmp_path_factory.mktemp("exact"))


def until(is_so):
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


# --- as the page shows it --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_commands_of_the_page(tmp_path):
    """Tables are scored, records are served and asked for with curl, all as docs/reference/serving.md prints it."""
    house, port = trained_homes(tmp_path), free_port()
    bank, shop = (house.homes[name].path for name in ("bank", "shop"))
    shutil.copy(bank / "customers.parquet", bank / "new_customers.parquet")
    text = (DOCS / "reference" / "serving.md").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    shown = [[house.run_id[:4] if word == "3f9a" else word for word in words] for words in commands_in(text)]
    assert [words[1] for words in shown] == ["predict", "predict", "serve", "serve"]
    for process in [typed_in(bank, shown[0]), typed_in(shop, shown[1])]:
        Office.finish(process)
    assert pq.read_table(bank / "scores.parquet").num_rows == N
    serving = [typed_in(shop, shown[2]), typed_in(bank, shown[3])]
    try:
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed; all but its line was typed")
        (line,) = re.findall(r"^\$ (curl .*)$", text, flags=re.MULTILINE)
        line = line.replace("c00017", house.ids[17])
        answer = until(lambda: _said(line, tmp_path))
        assert answer == {"scores": [house.expected([17])[0, 1], None], "unknown": ["c99999"], "classes": ["no", "yes"]}
        for process in serving:
            process.send_signal(signal.SIGTERM)
            Office.finish(process)
    finally:
        for process in serving:
            process.kill()


def _said(line, folder):
    """What a command of a shell prints, once there are scores."""
    said = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, check=False).stdout
    found = json.loads(said) if said else {}
    return found if "scores" in found else None


# --- two processes ---------------------------------------------------------------------------------------------------


class Service:
    """`hedgerow serve` of both parties, and a program that asks."""

    def __init__(self, house):
        self.house, self.port, self.processes = house, 0, {}
        self.start("bank", "--http", "127.0.0.1:0")
        self.start("shop")
        log = house.homes["bank"].path / "serve.log"
        told = until(lambda: next((line for line in log.read_text().splitlines() if "Listening" in line), ""))
        self.port = int(told.split("http://127.0.0.1:")[1].split(",")[0])
        self.token = (house.homes["bank"].path / TOKEN_FILE).read_text().strip()
        until(lambda: self.get("/health")[0] == 200)

    def start(self, name, *more):
        """One party's process; what it says goes into a file."""
        home = self.house.homes[name]
        with (home.path / "serve.log").open("a") as log:
            command = [sys.executable, "-m", "hedgerow.cli", "serve", self.house.run_id[:10], *more]
            self.processes[name] = subprocess.Popen(command, cwd=home.path, stderr=log, stdout=log)

    def ask(self, body, token=None, **headers):
        """Status and document of POST /score."""
        shown = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        return self.request("POST", "/score", body if isinstance(body, bytes) else json.dumps(body), shown)

    def get(self, path, **headers):
        """Status and document of a GET."""
        return self.request("GET", path, None, headers)

    def request(self, method, path, body, headers):
        """On a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            is_json = response.headers["Content-Type"] == "application/json"
            return response.status, json.loads(content) if is_json else content.decode()
        finally:
            connection.close()

    def stop(self):
        """Both, in good order; their exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(PATIENCE) for process in self.processes.values()]


@pytest.fixture(scope="module")
def service(house):
    """Both parties serve."""
    running = Service(house)
    yield running
    for process in running.processes.values():
        process.kill()
        process.wait()


def test_scores_by_id_and_by_row_are_those_of_a_federation(service, house):
    """Bit for bit, also after a round trip through JSON."""
    expected = house.expected(range(N))[:, 1].tolist()
    status, found = service.ask({"ids": house.ids})
    assert (status, found) == (200, {"scores": expected, "unknown": [], "classes": ["no", "yes"]})
    own = house.tables["bank"].to_pylist()
    rows = [{"id": each, **row} for each, row in zip(house.ids, own, strict=True)]
    assert service.ask({"rows": rows}) == (200, found)


def test_records_that_nobody_or_not_everybody_has_are_unknown(service, house):
    """They get null in their place, and the others their scores."""
    expected = house.expected([5])[0, 1]
    row = {"id": "new", **house.tables["bank"].to_pylist()[5]}
    assert service.ask({"ids": ["nobody", house.ids[5]]})[1]["scores"] == [None, expected]
    assert service.ask({"ids": ["nobody"]})[1]["unknown"] == ["nobody"]
    status, found = service.ask({"rows": [row, {**row, "id": f"  {house.ids[5]} "}]})
    assert (status, found["scores"], found["unknown"]) == (200, [None, expected], ["new"])


def test_requests_at_once_all_get_their_own_scores(service, house):
    """Thirty programs ask at the same time, for different records, and nobody gets another's."""
    expected = house.expected(range(N))[:, 1].tolist()

    def one(k):
        places = [(7 * k + step) % N for step in range(1 + k % 5)]
        return service.ask({"ids": [house.ids[j] for j in places]})[1]["scores"] == [expected[j] for j in places]

    with ThreadPoolExecutor(30) as pool:
        assert all(pool.map(one, range(120)))


@pytest.mark.parametrize("token", ["", "wrong", "ä" * 43])
def test_a_wrong_token_is_refused(service, token):
    """Whatever else the request says."""
    shown = token.encode().decode("latin-1")
    status, found = service.ask({"ids": ["c0001"]}, token=shown)
    assert status == 401
    assert "Authorization: Bearer TOKEN" in found["error"]
    assert service.get("/metrics")[0] == 401


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"{", 400, "the body is not JSON"),
        (b"[" * 100_000, 400, "the body is not JSON"),
        (b'{"ids": [NaN]}', 400, "the body is not JSON"),
        (b"\xff\xfe", 400, "the body is not JSON"),
        ({"ids": ["c0001"], "rows": []}, 400, "the body is {"),
        (["ids"], 400, "the body is {"),
        ({"ids": []}, 400, "a list of 1 to"),
        ({"ids": "c0001"}, 400, "a list of 1 to"),
        ({"ids": ["c0001"] * (MOST_ASKED + 1)}, 400, "a list of 1 to"),
        ({"ids": [7]}, 400, "an id must be text"),
        ({"ids": [None]}, 400, "an id is missing"),
        ({"ids": ["x" * 2000]}, 400, "2000 letters"),
        ({"rows": ["c0001"]}, 400, "each of rows is an object"),
        ({"rows": [{"id": "c0001", "age": 3}]}, 400, "lacks the column 'debt'"),
        ({"rows": [{"id": "c0001", "age": 3, "debt": 1, "dept": 1}]}, 400, "'dept'; did you mean 'debt'?"),
        ({"rows": [{"id": "c0001", "age": "old", "debt": 1}]}, 400, "'age' of a row must be a number"),
        (b" " * (MOST_BODY + 1), 413, "bytes at most"),
    ],
)
def test_what_is_no_request_gets_a_sentence(service, body, status, sentence):
    """Bodies that are too large, no JSON, or say something else; the service goes on."""
    try:
        got, found = service.ask(body)
    except (BrokenPipeError, ConnectionResetError):  # it hung up before all of a large body was sent
        assert status == 413
    else:
        assert got == status
        assert sentence in found["error"]
    assert service.get("/health") == (200, {"status": "ok"})


def test_other_paths_methods_and_bodies_without_length(service):
    """All of them end in a status, and none of them reaches the partners."""
    shown = {"Authorization": f"Bearer {service.token}"}
    assert service.get("/elsewhere")[0] == 404
    assert service.get("/score", **shown)[0] == 405
    with socket.create_connection(("127.0.0.1", service.port)) as raw:
        raw.sendall(f"POST /score HTTP/1.1\r\nAuthorization: Bearer {service.token}\r\n\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 411")
    assert service.get("/health", **shown) == (200, {"status": "ok", "absent": []})


def test_a_hundred_of_each_kind_do_not_disturb_the_service(service, house):
    """Who says nothing, dribbles, guesses tokens or sends nonsense, at once: scores are the same, and nothing leaks."""
    pid = service.processes["bank"].pid
    expected = house.expected([5])[0, 1]
    token = f"Authorization: Bearer {service.token}\r\n"
    before = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    kinds = {
        "says nothing": b"",
        "half a head": b"POST /score HTTP/1.1\r\nAuthoriz",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "a wrong token": b"POST /score HTTP/1.1\r\nAuthorization: Bearer nope\r\nContent-Length: 2\r\n\r\n{}",
        "a long line": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        "many headers": b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        "a large body": f"POST /score HTTP/1.1\r\n{token}Content-Length: 99999999999\r\n\r\n".encode(),
        "a slow body": f"POST /score HTTP/1.1\r\n{token}Content-Length: 1000\r\n\r\n{{".encode(),
        "no JSON": f"POST /score HTTP/1.1\r\n{token}Content-Length: 3\r\n\r\n[[[".encode(),
        "no column": f"POST /score HTTP/1.1\r\n{token}Content-Length: 19\r\n\r\n".encode() + b'{"rows":[{"id":1}]}',
    }
    for kind, says in kinds.items():
        with ExitStack() as stack:
            for _ in range(100):
                raw = stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE))
                with suppress(OSError):
                    raw.sendall(says)
            for _ in range(3):
                assert service.ask({"ids": [house.ids[5]]})[1]["scores"] == [expected], kind
    until(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) <= before + 2)
    text = service.get("/metrics", Authorization=f"Bearer {service.token}")[1]
    refused = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("hedgerow_requests_total"))
    for status in (400, 401, 413):
        assert int(refused[f'hedgerow_requests_total{{status="{status}"}}']) > 0
    log = (house.homes["bank"].path / "serve.log").read_text()
    assert "Traceback" not in log
    assert house.ids[5] not in log


def test_a_request_has_so_many_seconds_however_it_dribbles(monkeypatch):
    """A byte now and then does not keep a connection, in its head or in its body."""
    monkeypatch.setattr(Handler, "timeout", 1.0)
    with Door(("127.0.0.1", 0), SimpleNamespace(absent=()), "t" * 40) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        token = b"Authorization: Bearer " + b"t" * 40
        for head in (b"", b"POST /score HTTP/1.1\r\n" + token + b"\r\nContent-Length: 100000\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", door.port), timeout=PATIENCE) as raw:
                raw.sendall(head)
                end = time.monotonic() + PATIENCE
                with suppress(ConnectionError):
                    while time.monotonic() < end:
                        raw.sendall(b"x")
                        time.sleep(0.1)
                assert time.monotonic() < end
        door.shutdown()


@given(data=st.data())
@as_often(40)
def test_any_body_gets_an_answer_in_words(service, house, data):
    """Whatever stands in a request that shows the token: a status, a sentence that quotes none of it, no error here."""
    row = {"id": house.ids[0], **house.tables["bank"].to_pylist()[0]}
    whole = data.draw(st.sampled_from([{"ids": house.ids[:2]}, {"rows": [row, row]}]))
    try:
        status, found = service.ask(data.draw(damaged(json.dumps(whole).encode(), "json")))
    except (BrokenPipeError, ConnectionResetError):
        return  # it was too large, and not read
    assert status in (200, 400, 413)
    assert status == 200 or found["error"].isprintable()


def test_metrics_count_requests_and_rows(service, house):
    """In the format of Prometheus, with a histogram and two quantiles."""
    service.ask({"ids": house.ids[:3]})
    text = service.get("/metrics", Authorization=f"Bearer {service.token}")[1]
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['hedgerow_requests_total{status="200"}']) >= 1
    assert int(values["hedgerow_rows_total"]) >= 3
    assert values['hedgerow_score_seconds_bucket{le="+Inf"}'] == values["hedgerow_score_seconds_count"]
    assert 0 < float(values["hedgerow_score_seconds_p50"]) <= float(values["hedgerow_score_seconds_p99"])


def test_the_token_is_for_its_owner_alone(service, house):
    """It lies in the home folder, and is kept from start to start."""
    path = house.homes["bank"].path / TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_of(house.homes["bank"].path) == service.token


@pytest.mark.usefixtures("service")
def test_a_second_service_of_the_same_run_is_refused(house):
    """Two processes would keep one book."""
    command = [sys.executable, "-m", "hedgerow.cli", "serve", house.run_id[:10]]
    second = subprocess.run(command, cwd=house.homes["shop"].path, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert "is being served by another process of shop" in second.stderr


def test_a_partner_that_is_killed_and_started_again_is_met_again(service, house):
    """Meanwhile there is 503 with a sentence; afterwards scores, and nothing is missing in either book."""
    service.processes["shop"].kill()
    service.processes["shop"].wait()
    status, found = service.ask({"ids": house.ids[:2]})
    assert status == 503
    assert found["error"].startswith("shop is not there: ")
    assert service.get("/health")[0] == 503
    service.start("shop")
    until(lambda: service.ask({"ids": house.ids[:2]})[0] == 200)
    assert service.stop() == [0, 0]
    hours = {}
    for name, home in house.homes.items():
        files = [json.loads(path.read_text()) for path in (home.runs / house.run_id / "serving").glob("*.json")]
        assert all(each["in_trail"] for each in files)
        hours[name] = sum(each["rows"] for each in files)
        report = verify(home.audit, home.certificate.pem)
        assert report.ok
        lines = [json.loads(line) for line in home.audit.read_text().splitlines()]
        scored = [line["facts"] for line in lines if line["kind"] == "scored"]
        assert sum(facts["n_rows"] for facts in scored) == hours[name]
        assert all(facts["run_id"] == house.run_id for facts in scored)
    assert hours["shop"] == hours["bank"] > N


# --- in this process -------------------------------------------------------------------------------------------------


@contextmanager
def opened(house, name):
    """A node, its training and its book."""
    home = Home(house.homes[name].path)
    trained = Trained.find(home, house.run_id)
    trained.check("standing")
    identity = home.identity()
    with Node(home, identity, trained.proposal.peers_of(name)) as node:
        trail = Trail(home.audit, identity)
        about = {"party": name, "model": house.run_id, "proposal": trained.proposal.hash}
        book = Book(trained.folder / "serving", trail, **about, peers=trained.proposal.peers_of(name))
        try:
            yield node, trained, book
        finally:
            book.close()


@contextmanager
def asking(house, stop):
    """The bank's side: its partner and what scores."""
    with opened(house, "bank") as (node, trained, book):
        n_handles = trained.part.handles["shop"]
        partner = Partner(node, trained, "shop", n_handles, book, stop, lambda _: None)
        scorer = Scorer(trained, trained.rows(None, needs_ids=True), [partner])
        partner.start()
        try:
            yield scorer, partner
        finally:
            stop.set()
            scorer.close()
            partner.join()


def test_the_policy_of_a_feature_holder_limits_rows_per_day(tmp_path):
    """What is over the limit is not answered, and what was answered before stays counted after a restart."""
    house = trained_homes(tmp_path, policy={"shop": "rows_per_day = 20"})
    for asked, left in ((15, 5), (5, 0)):
        stop = threading.Event()
        with ExitStack() as stack:
            scorer, partner = stack.enter_context(asking(house, stop))
            node, trained, book = stack.enter_context(opened(house, "shop"))
            limit = node.home.party_file.policy.rows_per_day
            allowance = Allowance(DayCounts(node.home.path / "scored.json"), "bank", limit)
            answers = Answers(trained, trained.rows(None, needs_ids=True))
            serving_thread = threading.Thread(
                target=answer, args=(node, trained, answers, book, allowance, stop, lambda _: None)
            )
            serving_thread.start()
            until(lambda partner=partner: partner.is_there)
            assert len(scorer.score(scorer.by_ids(house.ids[:asked])).scores) == asked
            with pytest.raises(Limited, match="shop lets no more rows be scored today"):
                scorer.score(scorer.by_ids(house.ids[: left + 1]))
            stop.set()
            serving_thread.join()


def hostile(house, speak):
    """A shop that says what it likes on one connection; whether it was heard to the end."""
    with opened(house, "shop") as (node, trained, _), open_end(node, trained, "shop") as endpoint:
        endpoint.wait_connected(PATIENCE)
        speak(Party(endpoint, node.identity, node.trust, deadline=PATIENCE), trained)


def ready(me, trained):
    """What an honest one says first."""
    me.send("bank", ReadyToServe(trained.proposal.run_id, trained.part.n_handles))


def _wrong(change):
    """A speech that answers the first batch wrongly."""

    def speak(me, trained):
        ready(me, trained)
        asked = me.recv("bank", RecordsAsked, number=0)
        n_rows, n_bytes = len(asked.ids), -(-trained.part.n_handles // 8)
        right = {"number": 0, "code": ANSWERED, "known": np.ones(n_rows, np.bool_)}
        right["bits"] = np.zeros((n_rows, n_bytes), np.uint8)
        me.send("bank", RecordsAnswered(**{**right, **change(n_rows, n_bytes)}))

    return speak


@pytest.mark.parametrize(
    "change",
    [
        lambda *_: {"number": 1},
        lambda *_: {"code": 2},
        lambda n, _: {"known": np.ones(n + 1, np.bool_)},
        lambda n, b: {"bits": np.zeros((n, b + 1), np.uint8)},
        lambda _, b: {"known": np.ones(0, np.bool_), "bits": np.zeros((0, b), np.uint8)},
    ],
)
def test_answers_out_of_range_end_the_conversation(house, monkeypatch, change):
    """Nobody gets scores from them; the partner counts as absent until it comes anew."""
    monkeypatch.setattr(serving, "_BEAT_SECONDS", PATIENCE)
    stop = threading.Event()
    with asking(house, stop) as (scorer, partner), ThreadPoolExecutor(1) as pool:
        speaking = pool.submit(hostile, house, _wrong(change))
        until(lambda: partner.is_there)
        with pytest.raises(Absent, match="shop is not there: "):
            scorer.score(scorer.by_ids(house.ids[:9]))
        assert not partner.is_there
        speaking.exception(PATIENCE)


def test_a_partner_with_another_model_is_not_asked(house):
    """Its first words do not fit, and so nothing is said to it."""
    stop = threading.Event()
    heard = []

    def speak(me, trained):
        me.send("bank", ReadyToServe("0" * 32, trained.part.n_handles))
        try:
            me.recv("bank", RecordsAsked, number=0)
        except Exception as problem:  # noqa: BLE001 - whatever ended it
            heard.append(problem)

    with asking(house, stop) as (scorer, partner), ThreadPoolExecutor(1) as pool:
        pool.submit(hostile, house, speak).result(PATIENCE)
        assert len(heard) == 1
        assert not partner.is_there
        with pytest.raises(Absent):
            scorer.score(scorer.by_ids(house.ids[:1]))


@pytest.mark.parametrize(
    ("message", "symbols", "field"),
    [
        (ReadyToServe("r", 0), {}, "n_handles"),
        (ReadyToServe("r" * 2000, 1), {}, "model_run_id"),
        (RecordsAsked(3, ("a",)), {"number": 2}, "number"),
        (RecordsAsked(2, ("a",) * 4097), {"number": 2}, "ids"),
    ],
)
def test_what_a_hostile_label_holder_says_is_checked(message, symbols, field):
    """Every field of the service has a range."""
    assert all(unstated(kind) == [] for kind in MESSAGES)
    assert all(isinstance(kind.discloses, Exact) for kind in MESSAGES)
    with pytest.raises(ProtocolError, match=f"with {field} "):
        check("bank", message, symbols)


def test_days_are_counted_apart_and_by_peer(tmp_path, monkeypatch):
    """A limit is for one peer and one day; a service that was killed leaves no row uncounted."""
    counts = DayCounts(tmp_path / "scored.json")
    assert counts.take("bank", 90, 100)
    assert not counts.take("bank", 11, 100)
    assert counts.take("shop", 100, 100)
    first = Allowance(counts, "bank", 100)
    assert first.take(3)
    assert first.take(7)
    assert not first.take(1)
    monkeypatch.setattr(day_counts, "today", lambda: "2031-01-01")
    second = Allowance(counts, "bank", 1000)
    assert second.take(1)
    assert not counts.take("bank", 991, 1000)  # ten were taken in advance
    second.close()
    assert counts.take("bank", 999, 1000)
    assert Allowance(counts, "bank", None).take(10**9)
    (tmp_path / "scored.json").write_text("{}")
    with pytest.raises(InvalidInput, match=r"scored\.json is not a"):
        counts.take("bank", 1, 100)


def test_a_book_goes_on_where_a_killed_service_ended(house, tmp_path):
    """What is in the journal and in no file is counted once, and a torn line not at all."""

    class Speaker:
        name = "shop"

    home = house.homes["shop"]
    trail = Trail(tmp_path / "audit.jsonl", home.identity())
    about = {"party": "shop", "model": house.run_id, "proposal": "0" * 64, "peers": ["bank"]}
    book = Book(tmp_path / "serving", trail, **about)
    kind = Kind("node.records_asked", 1, "which", "in the clear")
    for n_rows in (3, 4):
        speaker = Speaker()
        speaker.ledger = Ledger("shop")
        speaker.ledger.write("learned", "bank", kind, 100)
        book.add(speaker, n_rows)
    journal = (tmp_path / "serving" / "journal").read_bytes()
    with pytest.raises(JobError, match="is being served by another process"):
        Book(tmp_path / "serving", trail, **about)
    book.close()
    (hour,) = (tmp_path / "serving").glob("*.json")
    hour.unlink()
    (tmp_path / "serving" / "journal").write_bytes(journal + b'{"file": "20')
    Book(tmp_path / "serving", trail, **about).close()
    (again,) = (tmp_path / "serving").glob("*.json")
    found = json.loads(again.read_text())
    assert (again.name, found["rows"], found["batches"], found["in_trail"]) == (hour.name, 7, 2, True)
    assert [(line["messages"], line["bytes"]) for line in found["lines"]] == [(2, 200)]
    assert (tmp_path / "serving" / "journal").read_bytes() == b""


@pytest.mark.parametrize("address", ["0.0.0.0:80", "example.org:80", "127.0.0.1", "127.0.0.1:99999", ":80", "::1:x"])
def test_plain_http_stays_on_this_machine(address):
    """Only loopback addresses, with a port."""
    with pytest.raises(InvalidParameter, match="--http must be a loopback address"):
        address_of(address)
    assert address_of("[::1]:8080") == ("::1", 8080)
    assert address_of("localhost:0") == ("localhost", 0)


def test_metrics_without_requests():
    """There is something to read from the start."""
    assert "hedgerow_score_seconds_p50 NaN" in Metrics().text([])


def test_serving_has_its_own_word_in_the_proposal(tmp_path):
    """A proposal that allows tables does not allow single records."""
    house = trained_homes(tmp_path, scoring="batch")
    trained = Trained.find(house.homes["shop"], house.run_id)
    with pytest.raises(JobError, match="says scoring = 'batch', not 'standing'"):
        trained.check("standing")


def test_models_with_shared_leaves_are_not_served(tmp_path):
    """It is said when a training is proposed, and again at the start of serve, with the way out; also to the dealer."""
    options = {"max_bins": 8, "accept_known_leaks": True}
    with pytest.raises(JobError, match=r'leaf values are shared.*write scoring = "batch"'):
        trained_homes(tmp_path / "one", "vertical.mp_fedxgb", options, dealer=True)
    house = trained_homes(tmp_path / "two", "vertical.mp_fedxgb", options, dealer=True, scoring="batch")
    for home in house.homes.values():
        trained = Trained.find(home, house.run_id)
        trained.check("batch")
        signed_before = replace(trained, proposal=replace(trained.proposal, scoring="standing"))
        with pytest.raises(JobError, match=r"cannot be served: its leaf values are shared.*hedgerow predict"):
            signed_before.check("standing")


def test_a_feature_holder_with_a_budget_does_not_serve(tmp_path):
    """Answers in the clear have no epsilon, so a limit on it is against them."""
    house = trained_homes(tmp_path, policy={"shop": "[policy.budget]\nepsilon = 100.0"})
    line = ["serve", house.run_id[:6], "--home", str(house.homes["shop"].path)]
    told = " ".join(CliRunner().invoke(app, line).stderr.split())
    assert "shop: [policy] limits epsilon, and the run releases something of these rows without a guarantee" in told


def test_a_request_that_fails_here_is_answered_too():
    """With 500 and no detail, and the next one is served."""

    class Failing:
        absent, classes = (), None

        def by_ids(self, _):
            raise ZeroDivisionError("secret")

    with Door(("127.0.0.1", 0), Failing(), "t" * 40) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        asking_it = Service.__new__(Service)
        asking_it.port, asking_it.token = door.port, "t" * 40
        assert asking_it.ask({"ids": ["a"]}) == (500, {"error": "this went wrong here; the service's log says more"})
        assert asking_it.get("/health") == (200, {"status": "ok"})
        door.shutdown()
