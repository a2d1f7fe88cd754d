"""When a party stops early its peers learn one public code: no word of its error, and both ledgers say so."""

from __future__ import annotations

import threading
import traceback
from contextlib import ExitStack

import numpy as np
import pytest

from hedgerow import Federation, Schema
from hedgerow.aborts import ABORT, DATA_DEPENDENT, Reason, reason_of, stated
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import (
    BudgetExceeded,
    DeadlineExceeded,
    FrameError,
    HedgerowError,
    InvalidInput,
    JobDiffers,
    PeerFailed,
    PeerLost,
    ProcessEnded,
    ProtocolError,
)
from hedgerow.ledger import LedgerMismatch, reconcile
from hedgerow.runtime.party import Abort, Party
from hedgerow.runtime.protocol import agreed, find
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport import grpc_streams
from hedgerow.transport.frames import encode
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.transcripts import Recording
from twins.horizontal import job_for, make_pooled, share_out
from twins.parties import asked, make_identities, trust_in
from twins.vertical import make_data

SENTENCE = "hiv_status has the value 'positive', which is not in the list; its labels lie between -17.25 and 4711.5"
WORDS = ("hiv_status", "positive", "17.25", "4711", "InvalidInput")
SCHEMA = Schema.from_public(bounds={f"x{k}": (-9.0, 9.0) for k in range(8)}, classes=[0, 1])
LEAKS = {"accept_known_leaks": True}
OPTIONS = {
    "vertical.bucket_rr": {"epsilon": 4.0, "schema": SCHEMA},
    "vertical.noised_gradients": {"epsilon": 2.0, "delta": 1e-5},
    "vertical.homomorphic": {},
    "vertical.masked_gradients": {"sigma1": 0.5, "sigma2": 1.0, "C": 4.0, **LEAKS},
    "vertical.secret_shared": {},
    "vertical.mp_fedxgb": LEAKS,
    "vertical.private_histograms": {"epsilon": 2.0, "delta": 1e-6, "schema": SCHEMA},
}
PROTOCOLS = ["horizontal.secure_sum", *OPTIONS]


def run_of(name):
    """A small job of a protocol and its data."""
    if name.startswith("horizontal"):
        data = share_out(make_pooled(np.random.default_rng(3), 90, n_numeric=2, n_levels=3), [30] * 3)
        return job_for(data), data
    data = make_data(3, n_rows=60, n_columns=8)
    boosting = BoostingParams(n_iterations=1, max_depth=2, min_child_weight=0.0)
    request = (tuple(data), "a run", "classification", boosting, 8, OPTIONS[name], "anna")
    return asked(find(name), *request), data


def stop_at_first_message(party):
    """From now on the party finds something wrong with its rows as soon as it has heard of somebody."""
    recv = party.recv

    def fails(*arguments, **how):
        recv(*arguments, **how)
        raise InvalidInput(SENTENCE)

    party.recv = fails


def assert_nothing_told(texts):
    """None of these texts or bytes has a word of the sentence in it."""
    for text in texts:
        seen = text if isinstance(text, str) else bytes(text).decode("latin-1")
        assert not [word for word in WORDS if word in seen]


def assert_books_agree(parties, failing, errors):
    """The party that failed has a line for each peer, and whoever was told by it has one too."""
    told = {line.peer: line for line in parties[failing].ledger.lines("disclosed") if line.message == ABORT}
    assert told
    heard = [name for name, error in errors.items() if isinstance(error, PeerFailed) and error.party == failing]
    assert heard
    for name in heard:
        assert errors[name].code is Reason.BAD_DATA
        assert str(errors[name]) == f"{failing} stopped: its data or settings cannot be used for this job"
        (line,) = [line for line in parties[name].ledger.lines("learned", failing) if line.message == ABORT]
        assert line.n_bytes == told[name].n_bytes == len(encode(Abort(Reason.BAD_DATA)))
        assert line.what == told[name].what
        assert line.protection == "in the clear"
    reconcile({name: party.ledger for name, party in parties.items()})


@pytest.mark.parametrize("failing", ["anna", "ben"])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_in_memory_peers_learn_a_code_alone(name, failing, caplog):
    """Every training between parties: no frame, no error of a peer and no log holds a word of the sentence."""
    protocol = find(name)
    job, data = run_of(name)
    failing = failing if failing in data else list(data)[["anna", "ben"].index(failing)]
    names = protocol.parties(job)
    network = MemoryNetwork(names)
    ends = {}
    parties = in_memory(network, names, around=lambda end: ends.setdefault(end.name, Recording(end)))
    stop_at_first_message(parties[failing])
    outcomes = network.run({each: role(protocol, parties[each], job, data.get(each)) for each in names})
    errors = {each: outcome.error for each, outcome in outcomes.items() if outcome.error is not None}
    assert str(errors[failing]) == SENTENCE  # for itself, and for whoever runs all of them
    for each in set(errors) - {failing}:
        assert_nothing_told(["".join(traceback.format_exception(errors[each])).replace("InvalidInput(SENTENCE)", "")])
    assert_nothing_told(passed.frame for end in ends.values() for passed in end.passed)
    assert_nothing_told([caplog.text])
    aborts = [passed for end in ends.values() for passed in end.passed if passed.frame == encode(Abort(1))]
    assert {"sent", "received"} == {passed.direction for passed in aborts}
    assert_books_agree(parties, failing, errors)


# --- over mutual TLS -------------------------------------------------------------------------------------------------


def opened(protocol, job, identities, stack):
    """An endpoint for each party, linked as the protocol says."""
    trust, links, ends = trust_in(identities.values()), job.links, {}
    for name in protocol.parties(job):
        ends[name] = GrpcEndpoint(
            name,
            identities[name],
            trust,
            run_id=job.run_id,
            job=agreed(protocol, job),
            peers=[b if a == name else a for a, b in links if name in (a, b)],
            listen="127.0.0.1:0" if any(a == name for a, _ in links) else None,
            dial={a: f"127.0.0.1:{ends[a].port}" for a, b in links if b == name},
        )
        stack.callback(ends[name].abort, b"")
    for end in ends.values():
        end.wait_connected(30)
    return ends


@pytest.fixture
def written(monkeypatch):
    """All that endpoints give to grpcio: messages, headers, and how they end calls."""
    seen = []

    def watch(kind, verb):
        real = getattr(kind, verb)
        monkeypatch.setattr(kind, verb, lambda self, *given: (seen.extend(given), real(self, *given))[1])

    watch(grpc_streams.Stream, "write")
    watch(grpc_streams.ServerStream, "end")
    watch(grpc_streams._ClientStream, "end")
    watch(grpc_streams.Dialler, "open_stream")
    return seen


@pytest.mark.parametrize("name", ["horizontal.secure_sum", "vertical.bucket_rr", "vertical.secret_shared"])
def test_over_grpc_peers_learn_a_code_alone(name, written, caplog):
    """The same on the wire: nothing that leaves a party has a word of it."""
    protocol = find(name)
    job, data = run_of(name)
    failing = list(data)[1]
    names = protocol.parties(job)
    identities = make_identities(names)
    errors, parties = {}, {}
    with ExitStack() as stack:
        ends = opened(protocol, job, identities, stack)
        for each in names:
            parties[each] = Party(ends[each], identities[each], trust_in(identities.values()), deadline=30.0)
            parties[each].rng = SecureRandom()
        stop_at_first_message(parties[failing])
        plays = {each: role(protocol, parties[each], job, data.get(each)) for each in names}

        def live(each):
            try:
                plays[each]()
            except HedgerowError as error:
                errors[each] = error

        threads = [threading.Thread(target=live, args=(each,), daemon=True) for each in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert str(errors[failing]) == SENTENCE
    assert_nothing_told(str(errors[each]) for each in set(errors) - {failing})
    sent = [given for given in written if isinstance(given, str | bytes)]
    assert any(encode(Abort(Reason.BAD_DATA)) in given for given in sent if isinstance(given, bytes))
    assert_nothing_told(sent)
    assert_nothing_told([caplog.text])
    assert_books_agree(parties, failing, errors)


# --- with real rows, as users run it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["memory", "grpc"])
def test_who_runs_all_parties_reads_the_real_cause(transport):
    """The user of one program gets the sentence with the party's name, as before."""
    pandas = pytest.importorskip("pandas")
    data = make_data(2, n_rows=60, n_columns=4)
    tables = {n: pandas.DataFrame({c.name: c.values for c in d.table.columns}) for n, d in data.items()}
    tables["ben"]["x2"] = np.nan
    fed = Federation.vertical(tables, labels=("anna", data["anna"].labels))
    with pytest.raises(InvalidInput, match="ben: column 'x2' is empty"):
        fed.fit("vertical.secret_shared", n_estimators=1, max_depth=2, max_bins=8, transport=transport)


# --- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidInput("x"), Reason.BAD_DATA),
        (FrameError("x"), Reason.BAD_MESSAGE),
        (ProtocolError("x"), Reason.BAD_MESSAGE),
        (PeerFailed("a", Reason.BAD_DATA), Reason.PEER_FAILED),
        (PeerLost("x"), Reason.PEER_LOST),
        (ProcessEnded("x"), Reason.PEER_LOST),
        (DeadlineExceeded("x"), Reason.TIMED_OUT),
        (BudgetExceeded("x"), Reason.BUDGET_SPENT),
        (JobDiffers("x"), Reason.JOB_DIFFERS),
        (KeyboardInterrupt(), Reason.STOPPED_BY_USER),
        (MemoryError(), Reason.OVER_MEMORY),
        (KeyError("hiv_status"), Reason.INTERNAL),
        (HedgerowError("x"), Reason.INTERNAL),
    ],
)
def test_the_type_of_an_error_decides_on_the_code(error, reason):
    """Never its text."""
    assert reason_of(error) is reason


def test_the_list_is_public_and_short():
    """Every code has a sentence; those that can depend on rows are in what a statement says."""
    assert [int(reason) for reason in Reason] == list(range(10))
    assert all(reason.sentence for reason in Reason)
    for reason in Reason:
        assert (reason.sentence in stated()) == (reason in DATA_DEPENDENT)


@pytest.mark.parametrize("code", [-1, 10, 2**40])
def test_a_code_outside_of_the_list_is_refused(code):
    """A peer cannot tell more than the list has words for."""
    frame = bytearray(encode(Abort(0)))
    frame[-8:] = int(code).to_bytes(8, "little", signed=True)
    network = MemoryNetwork(["anna", "ben"])
    parties = in_memory(network, ("anna", "ben"))

    def anna():
        network.endpoint("anna").abort(bytes(frame))

    outcomes = network.run({"anna": anna, "ben": lambda: parties["ben"].recv("anna", Abort)})
    assert isinstance(outcomes["ben"].error, ProtocolError)
    assert len(parties["ben"].ledger) == 0


def test_only_who_stopped_may_have_unread_messages():
    """Books of a run in which nobody stopped have to agree line by line, as before."""
    network = MemoryNetwork(["anna", "ben"])
    parties = in_memory(network, ("anna", "ben"))
    network.run({"anna": lambda: parties["anna"].send("ben", Abort(0)), "ben": lambda: None})
    books = {name: party.ledger for name, party in parties.items()}
    reconcile(books)  # a line about stopping: what follows may be unread
    network = MemoryNetwork(["anna", "ben"])
    parties = in_memory(network, ("anna", "ben"))
    from hedgerow.protocols.horizontal.secure_sum.messages import WhoSent

    network.run({"anna": lambda: parties["anna"].send("ben", WhoSent((), ())), "ben": lambda: None})
    with pytest.raises(LedgerMismatch, match="anna disclosed 1 messages to ben, who learned 0"):
        reconcile({name: party.ledger for name, party in parties.items()})
