"""The live page's port: who may ask what, what is answered, and that nobody holds up anybody else."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import secrets
import signal
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.node.watching import Watch
from hedgerow.report.live import door as live
from hedgerow.report.live.door import HEADERS, LiveDoor, Told
from twins.documented import blocks
from twins.watched import address_of, started

TOKEN = secrets.token_urlsafe(32)


@contextlib.contextmanager
def opened(home, **more):
    """The port of a home."""
    with Told(Watch(home, **more)) as told, LiveDoor(0, told, TOKEN) as door:
        thread = threading.Thread(target=door.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield door
        finally:
            door.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def door(story):
    """The bank's, after its run."""
    with opened(story.homes["bank"]) as found:
        yield found


def asked(door, path="/events", method="GET", host=None, **headers):
    """The answer to a request, whose body is read as far as it is there."""
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=20)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{door.port}")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse()


def bearer(token=TOKEN):
    """The header that shows it."""
    return {"Authorization": f"Bearer {token}"}


def events_of(answer, wanted):
    """Events of a stream, until all kinds that are wanted have come."""
    found = []
    while not wanted <= {event["event"] for event in found}:
        line = answer.readline().decode()
        assert line, "the stream has ended"
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def test_who_shows_the_token_gets_the_events(door, story):
    """All there is at once, with what each kind of message told; and nothing out of a row."""
    answer = asked(door, **bearer())
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8")
    found = events_of(answer, {"party", "run", "budgets", "proposals", "passed", "trouble"})
    run = next(event for event in found if event["event"] == "run")
    assert run["run_id"] == story.proposal.run_id
    assert all(kind["what"] and kind["protection"] for kind in run["kinds"])
    text = json.dumps(found)
    assert not re.search(r"\bc\d{4}\b", text)
    answer.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer \u00e9\u00e9".encode().decode("latin-1")},
        {"Cookie": f"token={TOKEN}"},
    ],
)
def test_without_the_token_there_is_nothing(door, headers):
    """403, and a sentence that does not have it."""
    answer = asked(door, **headers)
    assert answer.status == 403
    assert TOKEN.encode() not in answer.read()


def test_a_token_in_the_address_is_no_token(door):
    """It would stand in logs and in the history of a browser."""
    for path in (f"/events?token={TOKEN}", f"/?token={TOKEN}", f"/events#{TOKEN}"):
        assert asked(door, path).status == 404


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1", "localhost", "127.0.0.1:1", "evil.example:{port}"])
@pytest.mark.parametrize("path", ["/", "/live.js", "/events"])
def test_another_name_for_this_machine_is_refused(door, host, path):
    """With the right token too: a page of somebody else may have pointed its name here."""
    assert asked(door, path, host=host.format(port=door.port), **bearer()).status in (403, 400)
    assert asked(door, "/", host=f"localhost:{door.port}").status == 200


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "NONSENSE"]
)
@pytest.mark.parametrize("path", ["/", "/events", "/accept"])
def test_it_is_only_read(door, method, path):
    """405 for everything but GET, also with the token; the answer says what is allowed."""
    answer = asked(door, path, method, **bearer())
    assert (answer.status, answer.getheader("Allow")) == (405, "GET")
    assert asked(door, path, method, host="evil.example", **bearer()).status == 403


@pytest.mark.parametrize("path", ["/", "/live.js", "/live.css", "/nothing", "/events"])
def test_every_answer_has_the_strict_headers(door, path):
    """Nothing from elsewhere, no frame around it, nothing kept; and no leave for other pages."""
    answer = asked(door, path)
    for name, value in HEADERS.items():
        assert answer.getheader(name) == value
    told = {name.lower() for name, _ in answer.getheaders()}
    assert not {name for name in told if name.startswith("access-control")}
    assert "set-cookie" not in told
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_page_has_nothing_of_the_party(door):
    """It is the same for everybody, and everything that it needs comes from this port."""
    text = "".join(asked(door, path).read().decode() for path in ("/", "/live.js", "/live.css"))
    assert "bank" not in text
    assert not re.search(r"https?://", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\son\w+=", text)
    assert not re.search(r'<(?:script|style)>|style="', text)


@pytest.mark.parametrize("path", ["/../key.pem", "/key.pem", "//etc/passwd", "/live.py", "/door.py", "/events/"])
def test_there_is_nothing_else(door, path):
    """No file of the home or of the machine."""
    assert asked(door, path, **bearer()).status == 404


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"BAD\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["nothing", "a word", "another version", "a long path", "many headers", "TLS", "HTTP/2"],
)
def test_anything_may_be_sent(door, sent):
    """What is no request gets an answer without a word of it, or none; the next one is answered."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while more := connection.recv(65536):
                answer += more
    head, _, body = answer.rpartition(b"\r\n\r\n")  # who does not say which HTTP it speaks gets no head
    assert not head or re.match(rb"HTTP/1.1 [45]", head)
    assert body in (b"", b"this page is only read, with GET\n", b"this page is for the browser of this machine\n")
    assert asked(door, "/").status == 200


def test_slow_clients_hold_up_nobody(story, monkeypatch):
    """A hundred that dribble, some that take a stream and never read: a request is answered at once all the while."""
    monkeypatch.setattr(live._Handler, "timeout", 2.0)
    with opened(story.homes["bank"]) as door, contextlib.ExitStack() as stack:
        for k in range(100):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", door.port)))
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127" if k % 2 else b"")
        for _ in range(live.MOST_STREAMS - 1):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", door.port)))
            request = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{door.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            idle.sendall(request.encode())
        started = time.monotonic()
        assert asked(door, "/").status == 200
        answer = asked(door, **bearer())
        events_of(answer, {"party", "run"})
        assert time.monotonic() - started < 5.0
        assert asked(door, "/live.js").status == 200


def test_pages_are_limited(story):
    """One more than there may be is told so; when one is closed, there is room again."""
    with opened(story.homes["bank"]) as door:
        streams = [asked(door, **bearer()) for _ in range(live.MOST_STREAMS)]
        assert [stream.status for stream in streams] == [200] * live.MOST_STREAMS
        assert asked(door, **bearer()).status == 503
        assert asked(door, "/").status == 200


def test_a_reader_that_is_behind_is_shown_all_there_is(monkeypatch):
    """What it has missed is not lost: it gets the whole once more."""
    monkeypatch.setattr(live, "KEPT", 3)
    monkeypatch.setattr(live, "LOOK_SECONDS", 3600.0)

    class Talking:
        """Tells something with every look."""

        n = 0

        def look(self):
            self.n += 1
            return [{"event": "run", "n": self.n}]

        def now(self):
            return [{"event": "run", "n": self.n, "whole": True}]

    talking = Talking()
    with Told(talking) as told:
        events = told.events()
        assert next(events)["whole"]
        assert next(events)["event"] == "trouble"
        told._look()
        assert next(events) == {"event": "run", "n": 2}
        for _ in range(5):
            told._look()
        assert next(events) == {"event": "run", "n": 7, "whole": True}


def test_damage_in_a_home_is_told_and_then_that_it_is_mended(story, tmp_path):
    """One event when it is found, one when it is gone; the page goes on meanwhile."""
    import shutil

    from hedgerow.node.home import Home

    home = Home(shutil.copytree(story.homes["bank"].path, tmp_path / "bank"))
    told = Told(Watch(home))
    told._look()
    place = home.runs / story.proposal.run_id / "passing.jsonl"
    whole = place.read_bytes()
    with place.open("ab") as file:
        file.write(b"nonsense\n")
    told._look()
    assert "passing.jsonl" in told._events[-1]["words"]
    n_events = told._n_events
    told._look()
    assert told._n_events == n_events
    place.write_bytes(whole)
    told._look()
    assert told._events[-1] == {"event": "trouble", "words": None}


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_told_to_stop(story):
    """It prints the address with the token, which works, and ends well with Ctrl-C while a page is open."""
    process = started(story.homes["bank"])
    try:
        found = urlsplit(address_of(process))
        port, token = found.port, found.fragment
        assert len(token) >= 43
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/events", headers=bearer(token))
        events_of(connection.getresponse(), {"run"})
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_the_same_events_as_lines_of_json(story):
    """Without a port: one object per line, and a clean end."""
    process = started(story.homes["bank"], story.proposal.run_id[:8], "--json")
    try:
        found = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert {event["event"] for event in found} == {"party", "proposals", "budgets", "run"}


def test_commands_of_the_page_work(story, monkeypatch):
    """Each is typed as it is printed, and told to stop at once."""

    @contextlib.contextmanager
    def told_at_once():
        stop = threading.Event()
        stop.set()
        yield stop

    monkeypatch.setattr("hedgerow.cli.watch.told_to_stop", told_at_once)
    monkeypatch.chdir(story.homes["shop"].path)
    typed = [words for block in blocks("watching.md") if block.language == "console" for words in block.commands]
    assert len(typed) == 3
    for words in typed:
        here = [story.proposal.run_id[:8] if word == "3f9a" else word for word in words]
        assert here[:2] == ["hedgerow", "watch"]
        result = CliRunner().invoke(app, here[1:])
        assert result.exit_code == 0, (result.stderr, result.exception)
        assert ("http://127.0.0.1:" in result.stderr) == ("--json" not in here)
