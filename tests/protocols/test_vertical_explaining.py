"""vertical.explaining: everybody's importances and contributions put together are those of the pooled model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.aborts import ABORT
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper
from hedgerow.engine.boosting import train
from hedgerow.engine.contributions import contributions
from hedgerow.engine.interactions import interactions
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput, InvalidParameter, PeerFailed, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.services.explain import roles
from hedgerow.protocols.services.explain.messages import (
    AnswersToExplain,
    BeginExplaining,
    ColumnsOfHandles,
    ContributionsOfColumns,
)
from hedgerow.protocols.services.explain.roles import ExplainingJob, opaque_numbers
from hedgerow.protocols.services.explain.spec import SPEC as PROTOCOL
from hedgerow.protocols.vertical.common.parts import OwnerPart, divide, part_from_dict
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import PartyData, find, services
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.transcripts import Recording
from policy.who_learns_what import disclosure_of, way_of
from twins.parties import asked

PARTIES = ("shop", "bank", "quiet", "clinic")  # in the order of their columns; the label holder is in the middle
COLUMNS = {
    "shop": ("basket", "region", "visits", "coupon"),
    "bank": ("income", "branch"),
    "quiet": ("constant",),
    "clinic": ("weight", "height", "pulse"),
}
LEVELS = {"region": ("north", "south", "east"), "branch": ("old town", "harbour")}
N_ROWS = 57
JOB = ExplainingJob(PARTIES, "bank", "explanation", "training", batch_rows=16)
NAMES = [name for party in PARTIES for name in COLUMNS[party]]


def made_up(rng, n_rows, names):
    """Columns of all kinds with missing values; "coupon" and "constant" are the same in every row."""
    columns = []
    for name in names:
        if name in LEVELS:
            columns.append(Column(name, rng.integers(-1, len(LEVELS[name]), n_rows).astype(np.int32), LEVELS[name]))
            continue
        values = rng.normal(size=n_rows) if name not in {"coupon", "constant"} else np.zeros(n_rows)
        columns.append(Column(name, np.where(rng.random(n_rows) < 0.05, np.nan, values)))
    return Table(tuple(columns), n_rows, tuple(names), has_names=True)


class World:
    """A model of pooled columns, its parts, and rows to explain."""

    def __init__(self, n_classes):
        rng = np.random.default_rng(n_classes)
        trained = made_up(rng, 800, NAMES)
        x = {c.name: np.nan_to_num(c.values) if c.levels is None else c.values for c in trained.columns}
        signal = x["basket"] * x["income"] + x["region"] - x["branch"] + np.abs(x["weight"] + x["height"]) + x["visits"]
        signal += x["pulse"] * (x["income"] > 0) + rng.normal(scale=0.2, size=800)
        y = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.float64)
        quiet = [k for k, name in enumerate(NAMES) if name in {"coupon", "constant"}]
        mapper = BinMapper.fit(trained)
        codes = mapper.transform(trained)
        for k in quiet:  # nothing to split, not even missing from present
            codes[k] = 0
        params = BoostingParams(
            loss="logistic" if n_classes == 2 else "softmax", n_classes=n_classes, n_iterations=6, max_depth=4
        )
        self.ensemble = train(params, mapper, codes, y).ensemble
        party_of = [party for party in PARTIES for _ in COLUMNS[party]]
        asks, questions = divide(self.ensemble, party_of, "bank", protocol="test", run_id="training")
        rows = made_up(rng, N_ROWS, NAMES)
        self.codes = mapper.transform(rows)
        self.parts = {"bank": asks}
        self.data = {}
        for party in PARTIES:
            own = [k for k, name in enumerate(party_of) if name == party]
            if party != "bank":
                features = tuple(mapper.features[k] for k in own)
                self.parts[party] = OwnerPart(party, "bank", "test", "training", features, questions[party])
            columns = tuple(rows.columns[k] for k in own)
            table = Table(columns, N_ROWS, COLUMNS[party], has_names=True)
            self.data[party] = PartyData(table, part=self.parts[party])


@pytest.fixture(scope="module", params=[2, 3])
def world(request):
    """With one output and with three."""
    return World(request.param)


@pytest.fixture(scope="module")
def two_classes():
    """With one output."""
    return World(2)


def run(job, data, **how):
    """All parties' results, with the books of all compared."""
    played = play(PROTOCOL, job, data, **how)
    assert played.errors == {}
    reconcile({name: party.ledger for name, party in played.parties.items()})
    return played


def together(results):
    """The values of all parties, in the order of the pooled columns."""
    assert [name for party in PARTIES for name in results[party].columns] == NAMES
    axis = results["bank"].values.ndim > 1
    return np.concatenate([results[party].values for party in PARTIES], axis=int(axis))


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_rows", [16, 1000, 1])
def test_contributions_are_those_of_the_pooled_model(world, batch_rows):
    """Put together they are the pooled model's, whatever the batches; with the expected value they are the scores."""
    results = run(replace(JOB, batch_rows=batch_rows), world.data).results
    pooled = contributions(world.ensemble, world.codes)
    np.testing.assert_allclose(together(results), pooled[:, :-1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(results["bank"].expected, pooled[0, -1], rtol=0, atol=1e-9)
    raw = world.ensemble.raw_scores_binned(world.codes)
    np.testing.assert_allclose(together(results).sum(axis=1) + results["bank"].expected, raw, rtol=0, atol=1e-5)
    assert np.abs(raw - results["bank"].expected).max() > 0.1


@pytest.mark.parametrize("batch_rows", [16, 1000])
def test_interactions_are_those_of_the_pooled_model(world, batch_rows):
    """Within each party the pooled model's; with all others in sums; everything adds up to contributions and scores."""
    results = run(replace(JOB, what="interactions", batch_rows=batch_rows), world.data).results
    pooled = interactions(world.ensemble, world.codes)
    first, contributed = 0, contributions(world.ensemble, world.codes)
    for party in PARTIES:
        mine, last = results[party], first + len(COLUMNS[party])
        assert mine.columns == COLUMNS[party]
        np.testing.assert_allclose(mine.values, pooled[:, first:last, first:last], rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            mine.values.sum(axis=2) + mine.elsewhere, contributed[:, first:last], rtol=0, atol=1e-9
        )
        assert (mine.expected is None) == (party != "bank")
        first = last
    bank = results["bank"]
    np.testing.assert_allclose(bank.expected, pooled[0, -1, -1], rtol=0, atol=1e-9)
    np.testing.assert_allclose(sum(bank.others.values()), bank.elsewhere, rtol=0, atol=1e-12)
    of_clinic = pooled[:, 4:6, NAMES.index("weight") : -1].sum(axis=2)
    np.testing.assert_allclose(bank.others["clinic"], of_clinic, rtol=0, atol=1e-9)
    assert np.abs(of_clinic).max() > 0.01
    assert (results["quiet"].values == 0).all()
    assert (results["shop"].elsewhere[:, 3] == 0).all()


def test_the_label_holder_ends_with_its_own_columns_and_sums(world):
    """Its own values, the others' sums and the expected value are the scores; others have neither sums nor expected."""
    results = run(JOB, world.data).results
    bank = results["bank"]
    assert bank.columns == COLUMNS["bank"]
    assert bank.values.shape == (N_ROWS, 2, world.ensemble.n_outputs)
    assert set(bank.others) == set(PARTIES) - {"bank"}
    for party, total in bank.others.items():
        np.testing.assert_allclose(total, results[party].values.sum(axis=1), rtol=0, atol=1e-12)
        assert results[party].expected is None
        assert results[party].others == {}
    everything = bank.values.sum(axis=1) + sum(bank.others.values()) + bank.expected
    np.testing.assert_allclose(everything, world.ensemble.raw_scores_binned(world.codes), rtol=0, atol=1e-5)


def test_a_column_that_nobody_asks_about_adds_nothing(world):
    """Nor does a party without handles, with whom no row is talked about."""
    played = run(JOB, world.data)
    assert world.parts["quiet"].n_handles == 0
    assert (played.results["quiet"].values == 0).all()
    assert (played.results["shop"].values[:, 3] == 0).all()
    assert (played.results["shop"].values[:, 0] != 0).any()
    messages = [line.message for line in played.parties["quiet"].ledger]
    assert messages == ["vertical.explaining.ready_to_explain", "vertical.explaining.begin_explaining"]


@pytest.mark.parametrize("kind", ["gain", "count"])
def test_importances_are_those_of_the_pooled_model(world, kind):
    """Each party has its own columns' importances; the label holder has the others' totals. No rows are needed."""
    nothing = Table((), 0, (), has_names=True)
    data = {party: replace(brought, table=nothing) for party, brought in world.data.items()}
    results = run(replace(JOB, what="importances", kind=kind), data).results
    pooled = world.ensemble.importances(kind)
    np.testing.assert_allclose(together(results), pooled, rtol=1e-9)
    assert pooled.min() == 0 < pooled.max()
    for party, total in results["bank"].others.items():
        assert total == pytest.approx(results[party].values.sum(), rel=1e-9)
        assert results[party].others == {}


def test_batches_are_small_enough_for_the_label_holder(two_classes, monkeypatch):
    """Where a batch would take too much room, the label holder asks for smaller ones; the values are the same."""
    monkeypatch.setattr(roles, "BATCH_BYTES", 8 * 10 * (len(two_classes.parts["bank"].ensemble.features) + 1))
    played = run(JOB, two_classes.data, around={"shop": Recording})
    assert played.endpoints["shop"].messages(BeginExplaining, "received")[0].batch_rows == 10
    first_rows = [m.first_row for m in played.endpoints["shop"].messages(AnswersToExplain, "sent")]
    assert first_rows == [0, 10, 20, 30, 40, 50]
    pooled = contributions(two_classes.ensemble, two_classes.codes)
    np.testing.assert_allclose(together(played.results), pooled[:, :-1], rtol=0, atol=1e-9)


def test_tables_are_read_by_name(two_classes):
    """Columns in another order, and levels in another order, are found."""
    columns = tuple(
        Column(c.name, c.values)
        if c.levels is None
        else Column(c.name, np.where(c.values < 0, -1, len(c.levels) - 1 - c.values).astype(np.int32), c.levels[::-1])
        for c in reversed(two_classes.data["shop"].table.columns)
    )
    turned = Table(columns, N_ROWS, tuple(c.name for c in columns), has_names=True)
    data = two_classes.data | {"shop": replace(two_classes.data["shop"], table=turned)}
    results = run(JOB, data).results
    pooled = contributions(two_classes.ensemble, two_classes.codes)
    np.testing.assert_allclose(together(results), pooled[:, :-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("what", ["contributions", "interactions"])
def test_processes_over_grpc_give_the_same(two_classes, what):
    """Every party a process of its own: the values are those of memory, and so are the books."""
    job = replace(JOB, what=what)
    results, ledgers, _, _ = run_in_processes(PROTOCOL, job, two_classes.data, None, 60.0, None)
    played = run(job, two_classes.data)
    for party, result in played.results.items():
        if what == "contributions":
            np.testing.assert_array_equal(results[party].values, result.values)
        # What is left of a sum over columns depends on their order, which is drawn anew.
        np.testing.assert_allclose(results[party].values, result.values, rtol=0, atol=1e-14)
        assert set(results[party].others) == set(result.others)
        for other, total in result.others.items():  # summed in the order of the numbers, which are drawn anew
            np.testing.assert_allclose(results[party].others[other], total, rtol=0, atol=1e-12)
        assert list(ledgers[party]) == list(played.parties[party].ledger)
    reconcile(ledgers)


# --- what each gets to know ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["importances", "contributions", "interactions"])
def test_no_party_hears_the_name_of_anothers_column(two_classes, what):
    """Neither in its result nor in its ledger nor in any frame that it sent or received; its own are in its result."""
    played = run(replace(JOB, what=what), two_classes.data, around=dict.fromkeys(PARTIES, Recording))
    for party in PARTIES:
        result = json.dumps(played.results[party].to_dict())
        known = result + played.parties[party].ledger.to_json_lines()
        wire = b"".join(passed.frame for passed in played.endpoints[party].passed)
        for other in PARTIES:
            for name in COLUMNS[other]:
                assert (name in result) == (other == party)
                assert name in known or other != party
                assert name.encode() not in wire
                assert other == party or f'"{name}"' not in known


def test_a_feature_holder_gets_contributions_of_its_own_columns_only(two_classes):
    """As many as its asked columns; only the label holder talks to it."""
    played = run(JOB, two_classes.data, around={"shop": Recording})
    shop = played.endpoints["shop"]
    assert {passed.peer for passed in shop.passed} == {"bank"}
    numbers = shop.messages(ColumnsOfHandles, "sent")[0].numbers
    for message in shop.messages(ContributionsOfColumns, "received"):
        assert message.values.shape[1] == numbers.max() + 1 == 3


def test_ledgers_say_what_passed(two_classes):
    """Batches of answers out, batches of contributions in, in the clear."""
    ledger = run(JOB, two_classes.data).parties["clinic"].ledger
    said = {(e["direction"], e["message"].rpartition(".")[2]): e["messages"] for e in ledger.summary()}
    assert said == {
        ("disclosed", "ready_to_explain"): 1,
        ("learned", "begin_explaining"): 1,
        ("disclosed", "columns_of_handles"): 1,
        ("disclosed", "answers_to_explain"): 4,
        ("learned", "contributions_of_columns"): 4,
    }
    assert {line.protection for line in ledger} == {"in the clear"}
    ledger = run(replace(JOB, what="importances"), two_classes.data).parties["clinic"].ledger
    assert [line.message.rpartition(".")[2] for line in ledger] == ["ready_to_explain", "handle_gains"]
    assert "follows from the labels" in list(ledger)[1].what


def test_numbers_of_columns_are_random_and_opaque():
    """Equal for handles of one column and only for them, without gaps; each order of the columns is equally likely."""
    column = np.array([2, 2, 5, 7, 7, 7], np.int32)
    seen = []
    for k in range(600):
        numbers, columns = opaque_numbers(column, SecureRandom.from_seed(k.to_bytes(32, "little")))
        np.testing.assert_array_equal(columns[numbers], column)
        assert sorted(columns.tolist()) == [2, 5, 7]
        seen.append(tuple(columns.tolist()))
    # The first of a random order is column c with probability (its handles / 6); the second likewise of the rest.
    share = {order: seen.count(order) / 600 for order in sorted(set(seen))}
    weight = {2: 2, 5: 1, 7: 3}
    for (a, b, _), found in share.items():
        assert found == pytest.approx(weight[a] / 6 * weight[b] / (6 - weight[a]), abs=0.07)
    assert len(share) == 6


def test_statements_are_plain():
    """In words: who has what, what is in the clear, what is not covered."""
    for what in ("importances", "interactions", "contributions"):
        job = replace(JOB, what=what)
        said = PROTOCOL.statement(job, {"n_rows": 1234})
        words = " ".join(str(said).split())
        assert f"Each party has the {what} of its own columns" in words
        assert "IN THE CLEAR" in str(said)
        assert "Not covered:" in str(said)
        assert said.facts["is_private"] is False
        assert json.loads(json.dumps(said.to_dict()))["what"] == what
    assert "1,234 rows" in str(said)
    assert "one by one, under numbers instead of names, and kept only their sums" in words


def test_every_message_states_its_way_and_its_disclosure():
    """Feature holder and label holder, and nobody else."""
    kinds = PROTOCOL.messages
    assert len(kinds) == 7
    for kind in kinds:
        assert {way_of(kind).sender, way_of(kind).receiver} == {"feature holder", "label holder"}
        assert disclosure_of(kind).of


# --- jobs and results ------------------------------------------------------------------------------------------------


def test_the_service_is_found_by_its_name():
    """It is a service, its job goes through JSON, and it trains nothing."""
    assert "vertical.explaining" in services()
    assert find("vertical.explaining") is PROTOCOL
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(JOB.to_dict()))) == JOB
    assert PROTOCOL.parties(JOB) == ("bank", "shop", "quiet", "clinic")
    with pytest.raises(InvalidParameter, match="trains nothing"):
        asked(PROTOCOL, PARTIES, "run", "classification", BoostingParams(), 256, label_holder="bank")


def test_results_go_through_json(two_classes):
    """Bit for bit."""
    for what in ("importances", "contributions"):
        for result in run(replace(JOB, what=what), two_classes.data).results.values():
            again = PROTOCOL.result(json.loads(json.dumps(result.to_dict())))
            assert type(again) is type(result)
            assert (again.party, again.columns) == (result.party, result.columns)
            np.testing.assert_array_equal(again.values, result.values)
            assert again.values.flags.writeable
            assert again.to_dict() == result.to_dict()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"parties": ("bank",)}, "at least 2 parties, got 1"),
        ({"parties": ("bank", "bank")}, "different names"),
        ({"label_holder": "elsewhere"}, "got 'elsewhere'"),
        ({"what": "everything"}, "what must be 'importances', 'contributions' or 'interactions', got 'everything'"),
        ({"kind": "weight"}, "kind must be one of gain, count, got 'weight'"),
        ({"batch_rows": 0}, "batch_rows must be a whole number of at least 1, got 0"),
        ({"batch_rows": True}, "got True"),
    ],
)
def test_bad_jobs_are_refused(changes, match):
    """The message names service, parameter and value."""
    with pytest.raises(InvalidParameter, match=f"vertical.explaining.*{match}"):
        replace(JOB, **changes)


# --- what does not fit -----------------------------------------------------------------------------------------------


def first_error(played):
    """The error that the others follow from."""
    (error,) = [e for e in played.errors.values() if not isinstance(e, PeerFailed)]
    return error


def with_part(world, name, changes):
    """Everybody's data, with another part for one party."""
    return world.data | {
        name: replace(world.data[name], part=part_from_dict({**world.data[name].part.to_dict(), **changes}))
    }


@pytest.mark.parametrize("what", ["importances", "contributions"])
@pytest.mark.parametrize(
    ("party", "changes", "match"),
    [
        ("clinic", {"run_id": "older"}, "clinic: its part is of another model, that of run 'older'"),
        ("bank", {"run_id": "older"}, "bank: its part is of another model, that of run 'older'"),
        ("clinic", {"party": "shop"}, "clinic: brings the part of shop"),
        ("clinic", {"label_holder": "shop"}, "clinic: .* not one of a feature holder of bank"),
        ("clinic", {"splits": []}, "clinic: its part is of another model: .* with 0 handles"),
    ],
)
def test_parts_that_do_not_fit_are_refused(two_classes, what, party, changes, match):
    """The error names the party, and no gain, answer or contribution has been sent."""
    played = play(PROTOCOL, replace(JOB, what=what), with_part(two_classes, party, changes))
    error = first_error(played)
    assert isinstance(error, InvalidInput)
    with pytest.raises(InvalidInput, match=match):
        raise error
    for one in played.parties.values():
        assert {line.message for line in one.ledger} <= {"vertical.explaining.ready_to_explain", ABORT}


def test_rows_that_do_not_fit_are_refused(two_classes):
    """Another number of rows, no rows, another column: the error names the party."""
    table = two_classes.data["shop"].table
    fewer = Table(tuple(replace(c, values=c.values[1:]) for c in table.columns), N_ROWS - 1, table.names, True)
    none = Table(tuple(replace(c, values=c.values[:0]) for c in table.columns), 0, table.names, True)
    other = Table(tuple(replace(c, name=c.name + "2") for c in table.columns), N_ROWS, ("a", "b", "c", "d"), True)
    for wrong, match in (
        (fewer, "^shop: has 56 rows, but bank has 57"),
        (none, "^shop: brings no rows"),
        (other, "shop lacks 'basket'"),
    ):
        data = two_classes.data | {"shop": replace(two_classes.data["shop"], table=wrong)}
        with pytest.raises(InvalidInput, match=match):
            raise first_error(play(PROTOCOL, JOB, data))


def test_parties_that_do_not_fit_are_refused(two_classes):
    """Somebody is missing, somebody is new, somebody brings nothing or the wrong role."""
    data = two_classes.data
    with pytest.raises(InvalidInput, match=r"^clinic: the model asks about its columns"):
        raise first_error(play(PROTOCOL, replace(JOB, parties=("shop", "bank", "quiet")), data))
    part = part_from_dict({**data["quiet"].part.to_dict(), "party": "guest"})
    more = data | {"guest": replace(data["quiet"], part=part)}
    with pytest.raises(InvalidInput, match=r"^guest: took no part in the training"):
        raise first_error(play(PROTOCOL, replace(JOB, parties=(*PARTIES, "guest")), more))
    with pytest.raises(InvalidInput, match=r"^quiet: brings no part of a model"):
        raise first_error(play(PROTOCOL, JOB, data | {"quiet": replace(data["quiet"], part=None)}))
    part = part_from_dict({**data["quiet"].part.to_dict(), "party": "bank"})
    with pytest.raises(InvalidInput, match=r"^bank: brings the part of a feature holder"):
        raise first_error(play(PROTOCOL, JOB, data | {"bank": replace(data["bank"], part=part)}))


@pytest.mark.parametrize(
    ("kind", "sender", "change", "match"),
    [
        (
            ColumnsOfHandles,
            "shop",
            {"numbers": np.zeros(2, np.int64)},
            "shop sent vertical.explaining.columns_of_handles with numbers",
        ),
        (AnswersToExplain, "shop", {"first_row": 3}, "shop sent vertical.explaining.answers_to_explain with first_row"),
        (
            ContributionsOfColumns,
            "bank",
            {"first_row": 3},
            "bank sent vertical.explaining.contributions_of_columns with first_row",
        ),
        (
            BeginExplaining,
            "bank",
            {"batch_rows": 10**6},
            "bank sent vertical.explaining.begin_explaining with batch_rows",
        ),
    ],
)
def test_messages_that_do_not_fit_are_refused(two_classes, kind, sender, change, match):
    """A peer that sends something else than agreed is named."""

    class Forging(Recording):
        """Sends messages of one kind changed."""

        def send(self, to, frame):
            forged = encode(replace(decode(frame, kind), **change)) if peek(frame)[0] == kind.NAME else frame
            super().send(to, forged)

    played = play(PROTOCOL, JOB, two_classes.data, around={sender: Forging})
    errors = [str(e) for e in played.errors.values() if isinstance(e, ProtocolError)]
    assert errors
    assert all(error.startswith(match) for error in errors)
