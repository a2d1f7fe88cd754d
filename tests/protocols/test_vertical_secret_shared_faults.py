"""vertical.secret_shared with bad parameters, tables and messages, and with parties that leave: who and what is named.

What else is refused, in `test_vertical_secret_shared.py`: parameters that cannot be had on shares, columns with levels
or without two bins, labels beyond their range, and words of a wrong size.
"""

from __future__ import annotations

import functools
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import (
    DeadlineExceeded,
    FixedPointOverflow,
    HedgerowError,
    InvalidInput,
    InvalidParameter,
    PeerFailed,
    PeerLost,
    ProtocolError,
)
from hedgerow.federation.federation import Federation
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.shares.scales import Scales
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import (
    ColumnShapes,
    LevelDone,
    LevelInput,
    MaskedColumns,
    Sizes,
    WhichWay,
    WinnerShare,
)
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as PROTOCOL
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime.party import Party, root_cause
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import PartyData
from hedgerow.testing.transcripts import Vanishing, play
from hedgerow.transport.emulate import Link
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import Recording

N_ROWS = 120
HOLDERS = ("anna", "ben", "carla")
SMALL = {"n_iterations": 2, "max_depth": 2, "min_child_weight": 0.0}
MOVES_DATA = {kind.NAME for kind in (MaskedColumns, LevelInput, MaskedWords, WinnerShare, WhichWay)}


def table_of(*columns):
    """A table of columns x0, x1, ..."""
    listed = tuple(Column(f"x{k}", np.asarray(values, np.float64)) for k, values in enumerate(columns))
    n_rows = len(columns[0]) if columns else N_ROWS
    return Table(listed, n_rows, tuple(column.name for column in listed), has_names=True)


def make_data(names=HOLDERS, *, task="classification", seed=3):
    """Two columns of each party; the first one has labels that follow from all of them."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(len(names), 2, N_ROWS))
    data = {name: PartyData(table_of(*own)) for name, own in zip(names, columns, strict=True)}
    signal_ = columns[:, 0].sum(axis=0)
    is_class = task == "classification"
    labels = (signal_ > 0).astype(np.float64) if is_class else np.clip(signal_, -4, 4)
    data[names[0]] = replace(data[names[0]], labels=labels, classes=(0, 1) if is_class else None)
    return data


def make_job(names=HOLDERS, *, task="classification", dealer="dana", **trees):
    """A small job."""
    if task == "regression":
        trees = {"loss": "squared", "label_range": (-4.0, 4.0), **trees}
    boosting = BoostingParams(**{**SMALL, **trees})
    return SecretSharedJob(tuple(names), names[0], "a test", task=task, boosting=boosting, max_bins=8, dealer=dealer)


def ended(job, data, **how):
    """How the run ended for everybody: the party at fault, its error, and that of each party. Nobody hangs."""
    started = time.monotonic()
    played = play(PROTOCOL, job, data, **how)
    assert time.monotonic() - started < 60
    assert played.errors
    party, error = root_cause(played.errors)
    return SimpleNamespace(party=party, error=error, errors=played.errors, played=played)


def assert_no_data_moved(end):
    """Nobody has sent anything that is made of data."""
    for party in end.played.parties.values():
        assert not MOVES_DATA & {line.message for line in party.ledger.lines("disclosed")}


# --- numbers that no ring can hold -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "trees", "kind", "named"),
    [
        ("regression", {"label_range": (-1e30, 1e30)}, InvalidParameter, "label_range=(-1e+30, 1e+30)"),
        ("regression", {"label_range": (-1e30, 1e30), "gradient_bits": 4}, InvalidParameter, "gradient_bits=4"),
        ("classification", {"gradient_bits": 60}, InvalidParameter, "gradient_bits=60"),
        ("classification", {"l2": 1e300}, FixedPointOverflow, "l2=1e+300"),
        ("classification", {"min_gain": 1e300}, FixedPointOverflow, "min_gain=1e+300"),
    ],
)
def test_values_that_would_overflow_the_ring_are_refused(task, trees, kind, named):
    """Parameter and value are named, everybody ends with the same sentence, and no data have moved."""
    end = ended(make_job(task=task, **trees), make_data(task=task))
    assert (end.party, type(end.error)) == ("anna", kind)
    assert named in str(end.error)
    assert len(str(end.error)) < 600
    assert set(end.errors) == {*HOLDERS, "dana"}
    assert named in str(end.error)
    assert all(isinstance(error, PeerFailed) for error in end.errors.values() if error is not end.error)
    assert_no_data_moved(end)


@pytest.mark.parametrize(
    ("n_rows", "trees", "named"),
    [
        (100_000_000, {}, "100,000,000 rows cannot be added up with 4 bits"),
        (60_000_000, {"gradient_bits": 5}, "gradient_bits=5 could overflow the sums over 60,000,000 rows; at most 4"),
        (2**31, {"gradient_bits": 1}, "2,147,483,648 rows do not fit"),
    ],
)
def test_too_many_rows_for_the_sums_are_refused(n_rows, trees, named):
    """The numbers are those with which the roles begin, before they bin or send anything."""
    with pytest.raises(InvalidParameter) as refused:
        Scales.of(make_job(**trees), n_rows)
    assert named in str(refused.value)
    assert "labels" not in str(refused.value)


@pytest.mark.parametrize(
    ("trees", "named"),
    [
        ({"label_range": (4.0, -4.0)}, r"label_range .* got \(4.0, -4.0\)"),
        ({"label_range": (0.0, float("inf"))}, r"label_range .* got \(0.0, inf\)"),
        ({"label_range": (float("nan"), 1.0)}, r"label_range .* got \(nan, 1.0\)"),
        ({"gradient_bits": 1.5}, "gradient_bits must be a whole number, got 1.5"),
        ({"gradient_bits": True}, "gradient_bits must be a whole number, got True"),
        ({"l2": float("nan")}, "l2 .* got nan"),
        ({"l2": float("inf")}, "l2 .* got inf"),
        ({"min_gain": -1.0}, "min_gain .* got -1.0"),
    ],
)
def test_parameters_that_mean_nothing_are_refused_with_the_job(trees, named):
    """Before any party is asked for anything."""
    with pytest.raises(InvalidParameter, match=named):
        make_job(task="regression", **trees)


@pytest.mark.parametrize("trees", [{"min_gain": 1e30}, {"gradient_bits": -3}])
def test_large_values_that_fit_are_no_error(trees):
    """Rings become wider as they must, and the trees are still the engine's, though they are single leaves."""
    job, data = make_job(**trees), make_data()
    part = play(PROTOCOL, job, data).results["anna"]
    assert_engines_trees(part, job, data)


def assert_engines_trees(part, job, data):
    """Shapes and leaf values of the label holder's trees are those of the engine over all columns."""
    table = table_of(*(column.values for name in job.holders for column in data[name].table.columns))
    mapper = BinMapper.fit(table, job.max_bins)
    params = Scales.of(job, table.n_rows).boosting(job.boosting)
    twin = train(params, mapper, mapper.transform(table), data[job.label_holder].labels).ensemble
    for ours, theirs in zip(part.ensemble.trees, twin.trees, strict=True):
        assert np.array_equal(ours.left, theirs.left)
        assert np.array_equal(ours.value, theirs.value)


# --- tables and parties ----------------------------------------------------------------------------------------------


FLAT, EMPTY, FULL = np.ones(N_ROWS), np.full(N_ROWS, np.nan), np.arange(N_ROWS)


@pytest.mark.parametrize(
    ("party", "columns", "named"),
    [
        ("ben", [], "ben: brings no column"),
        ("anna", [], "anna: brings no column"),
        ("carla", [FLAT, FLAT], "carla: no column has values in two bins"),
        ("ben", [FULL, EMPTY], "ben: column 'x1' is empty"),
        ("carla", [FULL[:-1]], f"carla: has {N_ROWS - 1} rows, but anna has {N_ROWS}"),
        ("carla", None, "carla: brings no table"),
    ],
)
def test_tables_with_too_little_in_them_are_refused(party, columns, named):
    """The party is named, and the column; no data have moved."""
    data = make_data()
    if columns is None:
        del data[party]
    else:
        data[party] = replace(data[party], table=table_of(*columns))
    end = ended(make_job(), data)
    assert isinstance(end.error, InvalidInput)
    assert str(end.error).startswith(named)
    assert named in str(end.error)
    assert all(isinstance(error, PeerFailed) for error in end.errors.values() if error is not end.error)
    assert_no_data_moved(end)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"labels": None}, "anna: the label holder needs labels"),
        ({"labels": np.zeros(5)}, "anna: 5 labels for 120 rows"),
        ({"labels": np.where(np.arange(N_ROWS) == 7, np.nan, 0.0)}, "anna: label of row 7"),
        ({"classes": None}, "anna: the labels are not those of a classification"),
    ],
)
def test_labels_that_cannot_be_trained_on_are_refused(changes, named):
    """The label holder says so before it asks anybody."""
    data = make_data()
    data["anna"] = replace(data["anna"], **changes)
    end = ended(make_job(), data)
    assert isinstance(end.error, InvalidInput)
    assert str(end.error).startswith(named)
    assert_no_data_moved(end)


def test_the_label_holders_columns_may_say_nothing():
    """One that is always the same is enough: all splits are then others'."""
    data = make_data()
    data["anna"] = replace(data["anna"], table=table_of(FLAT))
    job = make_job()
    part = play(PROTOCOL, job, data).results["anna"]
    assert_engines_trees(part, job, data)
    assert all((tree.feature != 0).all() for tree in part.ensemble.trees)


def test_one_party_alone_is_refused():
    """There is nobody to share with; so is a dealer that is one of the parties."""
    with pytest.raises(InvalidParameter, match="needs at least 2 parties, got 1"):
        make_job(("anna",))
    with pytest.raises(InvalidParameter, match=r"the dealer must be a party of its own, .* got 'anna'"):
        make_job(dealer="anna")
    with pytest.raises(InvalidParameter, match=r"parties must have different names, got \['anna', 'anna'\]"):
        make_job(("anna", "anna"))


@pytest.mark.parametrize("n_parties", [8, 9])
def test_there_is_no_limit_of_eight_parties(n_parties):
    """The engine's trees, with eight and with more."""
    names = tuple(f"party-{k}" for k in range(n_parties))
    job, data = make_job(names), make_data(names)
    part = play(PROTOCOL, job, data).results[names[0]]
    assert_engines_trees(part, job, data)
    assert len({name for name, n in part.handles.items() if n}) > 1


# --- messages that cannot be -----------------------------------------------------------------------------------------


def tampering(monkeypatch, kind, change, *, only=None, after=0):
    """Change messages of a kind on their way (None: lose them): those of one sender only, after the first so many."""
    count = [0]

    def altered(party, message):
        if isinstance(message, kind) and only in (None, party.name):
            count[0] += 1
            return change(message) if count[0] > after else message
        return message

    def sending(original):
        def send(party, to, message, **how):
            message = altered(party, message)
            if message is not None:
                original(party, to, message, **how)

        return send

    monkeypatch.setattr(Party, "send", sending(Party.send))
    monkeypatch.setattr(Party, "send_all", sending(Party.send_all))


@pytest.mark.parametrize(
    ("kind", "only", "change", "named"),
    [
        (Seed, "ben", lambda m: Seed(m.seed[:31]), "ben sent vertical.on_shares.seed with seed of shape (31,)"),
        (Seed, "anna", lambda _: Seed(b""), "anna sent vertical.on_shares.seed with seed of shape (0,)"),
        (Seed, None, lambda _: Seed(bytes(32)), "same seed"),
        (
            Sizes,
            "anna",
            lambda m: replace(m, n_rows=m.n_rows + 1),
            "with n_rows = 121, which is not between least_rows and most_rows, from 120 to 120",
        ),
        (Sizes, "anna", lambda m: replace(m, n_rows=-3), "anna sent vertical.secret_shared.sizes with n_rows = -3"),
        (Sizes, "anna", lambda m: replace(m, bins=-m.bins), "anna sent vertical.secret_shared.sizes with bins = -12"),
        (
            Sizes,
            "anna",
            lambda m: replace(m, bins=m.bins + 1),
            "anna speaks of [12, 12] possible splits of [13, 13] bins",
        ),
        (Sizes, "anna", lambda m: replace(m, candidates=m.candidates + 1), "anna speaks of 13 possible splits of ben"),
        (
            Sizes,
            "anna",
            lambda m: replace(m, candidates=m.candidates[1:]),
            "with candidates of shape (1,), expected (2,)",
        ),
        (ColumnShapes, "carla", lambda m: replace(m, n_bins=0 * m.n_bins), "with n_bins = 0, which is not"),
        (ColumnShapes, "carla", lambda m: replace(m, n_bins=99 * m.n_bins), "with n_bins = 693, which is not"),
        (ColumnShapes, "carla", lambda m: replace(m, n_bins=m.n_bins[1:]), "with n_bins of shape (1,), expected (2,)"),
        (LevelInput, "anna", lambda m: replace(m, rows=m.rows[1:]), "with rows of shape (14,), expected (15,)"),
        (
            WinnerShare,
            "carla",
            lambda m: WinnerShare(m.words[:-4]),
            "carla sent vertical.secret_shared.winner_share with words of",
        ),
        (WinnerShare, "carla", lambda m: MaskedWords(m.words), "anna cannot take what carla sent"),
        (
            MaskedWords,
            "carla",
            lambda m: MaskedWords(m.words[:0]),
            "carla sent vertical.on_shares.masked_words with words of",
        ),
        (WhichWay, None, lambda m: replace(m, handles=m.handles - 1), "with handles = -1, which is not an index"),
        (WhichWay, None, lambda m: replace(m, handles=m.handles + 10**8), "which is not an index below n_handles"),
        (WhichWay, None, lambda m: replace(m, hidden=m.hidden[:, 1:]), "with hidden of shape"),
    ],
)
def test_messages_with_numbers_that_cannot_be_are_refused(monkeypatch, kind, only, change, named):
    """Who sent it is named; everybody ends."""
    tampering(monkeypatch, kind, change, only=only)
    end = ended(make_job(), make_data())
    assert isinstance(end.error, HedgerowError)
    assert named in str(end.error)
    assert set(end.errors) == {*HOLDERS, "dana"}


def longer(message):
    """The same, with eight bytes more than the party draws."""
    if not len(message.corrections):
        return message
    return replace(message, corrections=np.concatenate([message.corrections, np.zeros(8, np.uint8)]))


@pytest.mark.parametrize(
    ("change", "kind", "named"),
    [
        (lambda m: replace(m, corrections=m.corrections[:-8]), ProtocolError, "the dealer's corrections for Label("),
        (lambda m: replace(m, corrections=m.corrections[:0]), ProtocolError, "are missing or end too early"),
        (longer, ProtocolError, "bytes of the dealer's corrections for Label("),
        (lambda m: replace(m, lane="another"), ProtocolError, "dana dealt step 0 of 'another' twice at Label("),
        (lambda m: replace(m, step=m.step + 1), ProtocolError, "dana has not dealt all that is needed at Label("),
        (lambda m: replace(m, tree=m.tree + 1), ProtocolError, "dana dealt for tree 1, level 0, when Label("),
        (lambda m: None if m.step else m, ProtocolError, "dana dealt for tree 0, level 1, when Label("),
        (lambda _: None, DeadlineExceeded, "timed out waiting for vertical.on_shares.dealt from dana"),
    ],
)
def test_a_dealer_that_deals_wrongly_is_found(monkeypatch, change, kind, named):
    """Too few bytes, none, too many; under another name; too few messages, or none any more. Everybody ends."""
    tampering(monkeypatch, Dealt, change, after=3)
    end = ended(make_job(), make_data())
    assert isinstance(end.error, kind)
    assert end.party in HOLDERS
    assert named in str(end.error)
    assert set(end.errors) == {*HOLDERS, "dana"}


# --- parties that leave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaver", "kind", "after"),
    [
        ("dana", Seed, 1),
        ("dana", LevelDone, 1),
        ("anna", MaskedColumns, 1),
        ("anna", WinnerShare, 3),
        ("carla", LevelInput, 1),
        ("carla", MaskedWords, 9),
    ],
)
def test_everybody_hears_who_has_left(leaver, kind, after):
    """Each role, before the first level and in the middle of a tree: all others end; the first names who is gone."""
    heard = []

    def when(direction, frame):
        if direction == "received" and peek(frame)[0] == kind.NAME:
            heard.append(frame)
        return len(heard) == after

    around = {leaver: lambda endpoint: Vanishing(endpoint, when)}
    end = ended(make_job(n_iterations=3), make_data(), around=around)
    assert set(end.errors) == {*HOLDERS, "dana"} - {leaver}
    assert isinstance(end.error, PeerLost | PeerFailed)
    assert leaver in str(end.error)


def test_what_leaves_a_party_after_a_loss_is_nothing_new():
    """Once a feature holder is gone the others open nothing: no word leaves them after the round in which it left."""
    heard = []

    def when(direction, frame):
        if direction == "received" and peek(frame)[0] == MaskedWords.NAME:
            heard.append(frame)
        return len(heard) == 9

    around = {"carla": lambda endpoint: Vanishing(endpoint, when), "anna": Recording, "ben": Recording}
    end = ended(make_job(), make_data(), around=around)
    sent = {name: end.played.recording(name).messages(MaskedWords, "sent", "carla") for name in ("anna", "ben")}
    mine = end.played.recording("carla").messages(MaskedWords, "sent", "anna")
    assert all(len(words) <= len(mine) + 1 for words in sent.values())


# --- the same between processes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes():
    """The processes of the latest run; who is out of reach is given up after a second."""
    seen = SimpleNamespace(started={})
    remember = functools.partial(run_in_processes, after_start=lambda each: setattr(seen, "started", dict(each)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_processes, "GRACE_SECONDS", 1.0)
        patch.setattr(local_processes, "run_in_processes", remember)
        yield seen


def fit_in_processes(processes, **how):
    """Two parties and the dealer over gRPC; the error with which it ends. `flat` makes all values of ben the same."""
    X = np.random.default_rng(2).normal(size=(N_ROWS, 4))
    theirs = np.ones((N_ROWS, 2)) if how.pop("flat", False) else X[:, 2:]
    fed = Federation.vertical({"anna": X[:, :2], "ben": theirs}, labels=("anna", (X[:, 0] + X[:, 2] > 0).astype(int)))
    with pytest.raises(HedgerowError) as failed:
        fed.fit("vertical.secret_shared", transport="grpc", max_depth=2, **how)
    assert len(processes.started) == 3
    assert all(process.returncode is not None for process in processes.started.values())
    return failed.value


def test_processes_name_the_party_whose_table_is_refused(processes):
    """As in memory: the party's own sentence arrives, and all processes end."""
    error = fit_in_processes(processes, n_estimators=1, flat=True)
    assert type(error) is InvalidInput
    assert str(error).startswith("ben: no column has values in two bins")


def test_processes_name_a_dealer_that_was_killed(processes):
    """In the middle of the training; the others end soon after."""
    at = []

    def watch(done, _total):
        if done == 1 and not at:
            processes.started["dealer"].send_signal(signal.SIGKILL)
            at.append(time.monotonic())

    slow = Link(round_trip=0.02, bandwidth=1e9)
    error = fit_in_processes(processes, n_estimators=20, on_progress=watch, link=slow)
    assert time.monotonic() - at[0] < 15
    assert isinstance(error, PeerLost)
    assert str(error).startswith("dealer: the process")
