"""Numbers of a run at a local port, in the text format of Prometheus."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import urllib.error
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.ledger import Kind, Ledger
from hedgerow.node.addresses import is_local
from hedgerow.node.metrics import Metrics, address_of
from hedgerow.node.playing import play
from twins.damage import as_often, damaged
from twins.organisations import agreed_by_all, at_every_node, job_text, proposed, two_organisations

SAMPLE = re.compile(r"([a-z_]+)\{([a-z_]+=\"[^\"]*\"(?:,[a-z_]+=\"[^\"]*\")*)\} ([0-9.]+)")
KIND = Kind("a.message", 1, "what", "in the clear")


@pytest.fixture
def metrics():
    """Those of a run of the bank, at a free port."""
    with Metrics(("127.0.0.1", 0), party="bank", run_id="3f9a") as found:
        yield found


def asked(metrics, path="/metrics", method="GET"):
    """What a program gets that asks there."""
    request = urllib.request.Request(f"http://127.0.0.1:{metrics.port}{path}", method=method)
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text):
    """Values by name and labels; every line is a comment or a sample, and every name is declared once."""
    found, declared = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            declared.append(line.split()[2])
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name in declared
            found[name, labels] = float(value)
    assert len(declared) == len(set(declared))
    return found


def test_traffic_is_counted_by_peer(metrics):
    """Messages and bytes of all ledgers together, in both directions."""
    for name in ("matching", "ledger"):
        metrics.books[name] = book = Ledger("bank")
        book.write("disclosed", "shop", KIND, 100)
        book.write("learned", "shop", KIND, 7)
        book.write("disclosed", "notary", KIND, 1)
    kind, text = asked(metrics)
    assert kind.startswith("text/plain; version=0.0.4")
    found = samples(text)
    assert found["hedgerow_bytes_sent_total", 'party="bank",peer="shop"'] == 200
    assert found["hedgerow_messages_sent_total", 'party="bank",peer="shop"'] == 2
    assert found["hedgerow_bytes_received_total", 'party="bank",peer="shop"'] == 14
    assert found["hedgerow_messages_received_total", 'party="bank",peer="notary"'] == 0
    assert found["hedgerow_run_info", 'party="bank",run_id="3f9a"'] == 1


def test_progress_is_counted(metrics):
    """Done and total, as they are told; nothing of either before."""
    assert samples(metrics.text())["hedgerow_run_steps", 'party="bank"'] == 0
    metrics.on_progress(3, 10)
    found = samples(asked(metrics)[1])
    assert found["hedgerow_run_done", 'party="bank"'] == 3
    assert found["hedgerow_run_steps", 'party="bank"'] == 10
    assert found["hedgerow_run_seconds", 'party="bank"'] >= 0


@pytest.mark.parametrize(("path", "method", "status"), [("/", "GET", 404), ("/metrics", "POST", 501)])
def test_there_is_nothing_else(metrics, path, method, status):
    """Other paths and methods are refused, and the next one is answered."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(metrics, path, method)
    assert refused.value.code == status
    refused.value.close()
    assert asked(metrics)[1]


def test_one_who_says_nothing_is_hung_up_on(metrics, monkeypatch):
    """Whoever connects and waits holds the others up for a moment only."""
    monkeypatch.setattr("hedgerow.node.metrics._Handler.timeout", 0.2)
    with socket.create_connection(("127.0.0.1", metrics.port)):
        assert asked(metrics)[1]


def test_one_who_dribbles_holds_up_neither_others_nor_the_end(metrics, monkeypatch):
    """A byte now and then does not make the time any longer."""
    monkeypatch.setattr("hedgerow.node.metrics._Handler.timeout", 0.5)
    begun, over = threading.Event(), threading.Event()

    def dribble():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", metrics.port)) as raw:
            while not over.wait(0.05):
                raw.sendall(b"G")
                begun.set()

    thread = threading.Thread(target=dribble)
    thread.start()
    assert begun.wait(20)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=20) as answer:
            assert answer.read()
    finally:
        over.set()
        thread.join()


REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


@given(says=damaged(REQUEST, "bytes") | st.binary(max_size=300))
@as_often(60)
def test_any_bytes_are_a_request_or_refused(metrics, capfd, says):
    """Whatever is said there: it ends, without an error here, and the next one is answered."""
    with socket.create_connection(("127.0.0.1", metrics.port), timeout=20) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(says)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(1 << 16):
            pass
    assert asked(metrics)[1]
    assert "Traceback" not in capfd.readouterr().err


def test_the_port_is_free_afterwards():
    """A run that follows can have the same one."""
    with Metrics(("127.0.0.1", 0), party="bank", run_id="3f9a") as first:
        port = first.port
        with pytest.raises(InvalidInput, match=f"--metrics: cannot listen on 127.0.0.1:{port}"):
            Metrics(("127.0.0.1", port), party="bank", run_id="3f9a")
    with Metrics(("127.0.0.1", port), party="bank", run_id="3f9a") as second:
        assert second.port == port


def test_a_port_alone_is_local():
    """Who wants others to read them says so with a host."""
    assert address_of("9101") == ("127.0.0.1", 9101)
    assert address_of("[::1]:9101") == ("::1", 9101)
    assert [is_local(host) for host in ("127.0.0.1", "::1", "localhost")] == [True] * 3
    assert not is_local(address_of("0.0.0.0:9101")[0])
    assert not is_local("metrics.example.org")


@pytest.mark.parametrize("given", ["", "here", "127.0.0.1:", "127.0.0.1:99999", "a b:1", "http://127.0.0.1:1"])
def test_what_is_no_address_is_refused(given):
    """In a sentence with an example."""
    with pytest.raises(InvalidParameter, match=r"--metrics must be PORT or HOST:PORT, as 127.0.0.1:9101"):
        address_of(given)


def test_a_run_can_be_watched(tmp_path):
    """While two nodes train, the numbers of one are those of its ledgers in the end."""
    homes = two_organisations(tmp_path)
    options = {"n_estimators": 2, "max_depth": 2, "epsilon": 4.0, "delta": 1e-6}
    parties = {"bank": "label holder", "shop": "feature holder"}
    proposal = proposed(homes["bank"], job_text("vertical.noised_gradients", options, parties))
    agreed_by_all(homes, proposal)
    with Metrics(("127.0.0.1", 0), party="bank", run_id=proposal.run_id) as metrics:

        def call(node):
            watch = {"on_progress": metrics.on_progress, "books": metrics.books} if node.name == "bank" else {}
            return play(node, node.papers.get(proposal.hash), wait=60.0, **watch)

        folders = at_every_node(homes, call)
        found = samples(asked(metrics)[1])
    books = [Ledger.from_json_lines("bank", (folders["bank"] / f"{name}.jsonl").read_text()) for name in metrics.books]
    sent = sum(line.n_bytes for book in books for line in book.lines("disclosed"))
    assert found["hedgerow_bytes_sent_total", 'party="bank",peer="shop"'] == sent > 0
    assert found["hedgerow_run_done", 'party="bank"'] == found["hedgerow_run_steps", 'party="bank"'] > 0
