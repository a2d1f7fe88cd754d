"""A party that has another job than the others: found in the handshake, by both sides, with the fields that differ."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from hedgerow import Federation, Schema
from hedgerow.aborts import ABORT, Reason
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import FrameError, InvalidParameter, JobDiffers, PeerFailed, PeerRefused
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime.protocol import agreed, find, names, services
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.endpoint import NOTHING, Agreed, canonical
from hedgerow.transport.grpc import Doorkeeper, GrpcEndpoint
from hedgerow.transport.grpc_envelope import MAX_HELLO_BYTES, WIRE_VERSION, Hello, decode_hello
from hedgerow.transport.memory import MemoryNetwork
from policy.who_learns_what import EXAMPLES
from twins.horizontal import job_for, make_pooled, share_out
from twins.parties import asked, make_identities, trust_in
from twins.vertical import make_data

BOUNDS = {f"x{k}": (-5.0, 5.0) for k in range(8)}
SCHEMA = Schema.from_public(bounds=BOUNDS, classes=[0, 1])
HISTOGRAMS = find("vertical.private_histograms")
PARTIES = ("anna", "ben")


def histograms_job(**changes):
    """A small job of private_histograms."""
    options = {"epsilon": 0.5, "delta": 1e-6, "schema": SCHEMA, **changes}
    boosting = BoostingParams(n_iterations=1, max_depth=2, min_child_weight=0.0)
    return asked(HISTOGRAMS, PARTIES, "a run", "classification", boosting, 8, options, "anna")


def examples():
    """A job of every protocol and service."""
    for name in (*names(), *services()):
        example = EXAMPLES[name][0]
        request = (example.parties, "example", "classification", BoostingParams(), 64, example.options, "anna")
        protocol = find(name)
        yield protocol, example.job or asked(protocol, *request)


# --- between endpoints, over mutual TLS ------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(ours, theirs):
    """A label holder that listens and a dealer that dials it, each with its own idea of the job."""
    identities = make_identities(["anna", "dealer"])
    trust = trust_in(identities.values())
    hub = GrpcEndpoint(
        "anna", identities["anna"], trust, run_id="a run", peers=["dealer"], listen="127.0.0.1:0", job=ours
    )
    dial = {"anna": f"127.0.0.1:{hub.port}"}
    dealer = GrpcEndpoint("dealer", identities["dealer"], trust, run_id="a run", peers=["anna"], dial=dial, job=theirs)
    try:
        yield hub, dealer
    finally:
        dealer.abort(b"")
        hub.abort(b"")


JOB = histograms_job()
DEEPER = replace(JOB, boosting=replace(JOB.boosting, max_depth=3))


@pytest.mark.parametrize(
    ("theirs", "fields"),
    [
        (agreed(HISTOGRAMS, histograms_job(epsilon=math.inf)), "epsilon"),
        (agreed(HISTOGRAMS, histograms_job(epsilon=0.5 + 1e-12)), "epsilon"),
        (agreed(HISTOGRAMS, histograms_job(delta=1e-5)), "delta"),
        (agreed(HISTOGRAMS, DEEPER), "boosting.max_depth"),
        (agreed(HISTOGRAMS, replace(JOB, run_id="b", max_bins=16)), "max_bins, run_id"),
        (agreed(find("vertical.secret_shared"), JOB), "messages, protocol"),
        (NOTHING, "boosting.base_score, boosting.early_stopping_rounds"),
    ],
    ids=["no noise", "a trifle", "delta", "nested", "two fields", "another protocol", "no job"],
)
def test_a_dealer_with_another_job_does_not_get_past_the_handshake(theirs, fields):
    """Both sides are told which fields differ, nothing was received, and no message can be sent."""
    with connected(agreed(HISTOGRAMS, JOB), theirs) as (hub, dealer):
        dealer.send("anna", b"a seed")
        for me, peer in ((dealer, "anna"), (hub, "dealer")):
            with pytest.raises(JobDiffers) as caught:
                me.recv(peer, 20)
            text = str(caught.value)
            assert "dealer has another job than anna: they differ in " in text
            assert fields.split(", ")[0] in text if theirs is NOTHING else f"differ in {fields};" in text
            with pytest.raises(JobDiffers):
                me.send(peer, b"more")


def test_the_dialling_side_looks_for_itself(monkeypatch):
    """A listening party that lets another job in is refused by the one that dialled it."""
    monkeypatch.setattr(Doorkeeper, "_hello", lambda _, stream, *__: decode_hello(stream.hello))
    with (
        connected(agreed(HISTOGRAMS, histograms_job(epsilon=math.inf)), agreed(HISTOGRAMS, JOB)) as (_, dealer),
        pytest.raises(JobDiffers, match="anna has another job than dealer: they differ in epsilon"),
    ):
        dealer.recv("anna", 20)


def test_a_party_begins_no_other_job_than_it_was_connected_for():
    """What was compared is what is played."""
    with connected(agreed(HISTOGRAMS, JOB), agreed(HISTOGRAMS, JOB)) as (hub, dealer):
        dealer.send("anna", b"a seed")
        assert hub.recv("dealer", 20) == b"a seed"
        hub.agree(agreed(HISTOGRAMS, JOB))
        with pytest.raises(JobDiffers, match="anna was connected for another job"):
            hub.agree(agreed(HISTOGRAMS, histograms_job(epsilon=1.0)))


# --- between processes -----------------------------------------------------------------------------------------------


def test_a_dealer_process_with_another_epsilon_ends_the_run(monkeypatch):
    """It is told that no noise is to be drawn: nobody trains, and the user reads which field differs."""
    honest = local_processes._orders

    def tampered(*given):
        orders = honest(*given)
        orders[JOB.dealer]["job"]["epsilon"] = math.inf
        return orders

    monkeypatch.setattr(local_processes, "_orders", tampered)
    data = make_data(2, n_rows=60, n_columns=8)
    with pytest.raises(JobDiffers, match="they differ in epsilon; give both the same"):
        local_processes.run_in_processes(HISTOGRAMS, JOB, data, None, 60.0, None)


# --- in memory -------------------------------------------------------------------------------------------------------


def test_parties_in_memory_compare_too():
    """Whoever talks to the odd one first finds out; the others are told by a code."""
    jobs = {"anna": JOB, "ben": JOB, JOB.dealer: histograms_job(epsilon=math.inf)}
    network = MemoryNetwork(list(jobs))
    parties = in_memory(network, tuple(jobs))
    data = make_data(2, n_rows=60, n_columns=8)
    outcomes = network.run({name: role(HISTOGRAMS, parties[name], jobs[name], data.get(name)) for name in jobs})
    errors = {name: outcome.error for name, outcome in outcomes.items()}
    found = [error for error in errors.values() if isinstance(error, JobDiffers)]
    assert found
    assert all("they differ in epsilon;" in str(error) for error in found)
    told = [error.code for error in errors.values() if isinstance(error, PeerFailed)]
    assert len(found) + len(told) == 3
    assert set(told) <= {Reason.JOB_DIFFERS, Reason.PEER_FAILED}
    for name in PARTIES:
        assert {line.message for line in parties[name].ledger.lines("learned", JOB.dealer)} <= {ABORT}
    assert {line.message for line in parties[JOB.dealer].ledger.lines("learned")} <= {ABORT}


# --- what is signed --------------------------------------------------------------------------------------------------


def test_a_mask_key_that_was_signed_for_another_job_is_refused():
    """A coordinator cannot pass on keys from another job with the same run id: owners sign for one job alone."""
    pooled = make_pooled(np.random.default_rng(3), 90, n_numeric=2, n_levels=3)
    data = share_out(pooled, [30] * 3)
    job = job_for(data)
    protocol = find("horizontal.secure_sum")
    members = protocol.parties(job)
    network = MemoryNetwork(members)
    parties = in_memory(network, members)
    roles = {name: role(protocol, parties[name], job, data.get(name)) for name in members}
    odd = next(iter(data))
    parties[odd].job = Agreed.of({"epsilon": math.inf})  # past the comparison
    outcomes = network.run(roles)
    refused = [o.error for name, o in outcomes.items() if isinstance(o.error, PeerRefused)]
    assert refused
    assert all("a signature that is said to be of" in str(error) for error in refused)


# --- digests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "job"), list(examples()), ids=[protocol.name for protocol, _ in examples()])
def test_a_job_that_was_written_down_is_the_same_job(protocol, job):
    """Also after JSON, in every protocol; its digests fit a HELLO with the longest names; each field counts."""
    again = protocol.job.from_dict(json.loads(json.dumps(job.to_dict())))
    ours = agreed(protocol, job)
    assert agreed(protocol, again) == ours
    hello = Hello(WIRE_VERSION, 1, 2, "r" * 255, "s" * 255, "l" * 255, ours)
    assert len(hello.encode()) <= MAX_HELLO_BYTES
    assert decode_hello(hello.encode()) == hello
    assert len(ours.fields) > len(job.to_dict())
    for name in job.to_dict():
        facts = {**job.to_dict(), name: "something else"}
        assert Agreed.of(facts).digest != Agreed.of(job.to_dict()).digest


def test_every_message_of_a_protocol_is_compared_in_every_process():
    """The versions in a digest do not depend on which modules a process has loaded so far."""
    code = (
        "import pkgutil, importlib, hedgerow.protocols as all_of_them;"
        "from hedgerow.runtime.protocol import find, names, services;"
        "every = (*names(), *services());"
        "count = lambda: [len(find(name).messages) for name in every];"
        "before = [(len(find(name).messages)) for name in every];"
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(all_of_them.__path__, 'hedgerow.protocols.')];"
        "assert before == count(), (before, count()); print(sum(before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) == sum(len(find(name).messages) for name in (*names(), *services()))


def test_numbers_are_compared_by_value():
    """1 and 1.0 are the same, True and 1 are not, nor are 0.5 and the next number; tuples are lists."""
    assert canonical({"b": 1.0, "a": (1, math.inf)}) == canonical({"a": [1.0, math.inf], "b": 1})
    assert canonical(True) != canonical(1)
    assert canonical(0.5) != canonical(math.nextafter(0.5, 1.0))
    with pytest.raises(InvalidParameter, match="a job holds set"):
        canonical({"a": {1}})


def test_a_job_with_very_many_fields_is_still_compared():
    """Its fields are too many to be sent one by one, but the digest of all of them decides."""
    many = {f"field_{k}": k for k in range(1000)}
    ours, theirs = Agreed.of(many), Agreed.of({**many, "field_7": 8})
    assert ours.fields == {}
    with pytest.raises(JobDiffers, match="in fields that were not sent one by one"):
        ours.check("ben", theirs, "anna")


@pytest.mark.parametrize("cut", [0, 10, 31, 33, 40])
def test_digests_that_break_off_are_refused(cut):
    """FrameError, whatever is missing."""
    with pytest.raises(FrameError, match="a HELLO"):
        Agreed.decode(Agreed.of({"epsilon": 0.5}).encode()[:cut])


def test_a_federation_has_one_job():
    """The ordinary way to run parties together is not in the way: all derive the same digests."""
    data = make_data(2, n_rows=80, n_columns=8)
    tables = {n: {c.name: c.values for c in d.table.columns} for n, d in data.items()}
    pandas = pytest.importorskip("pandas")
    fed = Federation.vertical(
        {name: pandas.DataFrame(table) for name, table in tables.items()}, labels=("anna", data["anna"].labels)
    )
    run = fed.fit("vertical.secret_shared", n_estimators=1, max_depth=2, max_bins=8)
    assert run.model is not None
