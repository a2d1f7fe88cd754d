"""vertical.scoring: the scores are those of the pooled model, in one round trip, and answers can be randomised."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.aborts import ABORT
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.table import Column
from hedgerow.errors import InvalidInput, InvalidParameter, PeerFailed, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.events import Composed, RandomisedResponse, from_dict
from hedgerow.protocols.services.score import roles
from hedgerow.protocols.services.score.messages import Answers, AnswersWanted, RandomisedAnswers, ReadyToScore
from hedgerow.protocols.services.score.roles import Answered, Answering, Scores, ScoringJob, cells_of
from hedgerow.protocols.services.score.spec import SPEC as PROTOCOL
from hedgerow.protocols.vertical.common.parts import OwnerPart, Questions, divide, part_from_dict
from hedgerow.runtime.party import root_cause
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import PartyData, find
from hedgerow.runtime.running import warm_up
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import encode
from hedgerow.transport.transcripts import Recording
from twins.parties import asked
from twins.random_models import random_ensemble
from twins.random_parts import RUN_ID, random_vertical, table_of

RNG = np.random.default_rng
SEED = bytes(range(32))


def job_for(model, **changes):
    """The job of a scoring by all parties of a model."""
    return ScoringJob(model.parties, model.label_holder, "a scoring", RUN_ID, **changes)


def scored(model, tables, **changes):
    """The raw scores of a run in memory that must come to its end."""
    played = play(PROTOCOL, job_for(model, **changes), model.data(tables))
    assert not played.errors
    return played.results[model.label_holder].raw


def failure(job, data):
    """The error that all others of a run follow from."""
    played = play(PROTOCOL, job, data)
    assert played.errors
    return root_cause(played.errors)[1]


# --- the law: equal to the pooled model ----------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("label_holder", ["shop", "bank", "clinic"])
def test_scores_equal_those_of_the_pooled_model(label_holder, n_outputs):
    """To the last bit: numbers of both widths, gaps, infinities, levels, levels never seen, several outputs."""
    rng = RNG(11)
    for depth, n_rows in ((1, 1), (3, 77), (7, 400)):
        model = random_vertical(rng, label_holder=label_holder, n_trees=5, n_outputs=n_outputs, depth=depth)
        tables = model.rows(rng, n_rows)
        found = scored(model, tables)
        assert found.shape == (n_rows, n_outputs)
        assert np.array_equal(found, model.pooled_scores(tables))


@pytest.mark.parametrize("n_rows", [1, 7, 8, 9, 100])
def test_batches_of_any_size_give_the_same(n_rows):
    """Batches that are no multiple of 8, of one row, or larger than the table."""
    rng = RNG(12)
    model = random_vertical(rng, n_trees=4, n_outputs=3)
    tables = model.rows(rng, n_rows)
    expected = model.pooled_scores(tables)
    for batch_rows in (1, 3, 8, 13, 99, 100, 1000):
        assert np.array_equal(scored(model, tables, batch_rows=batch_rows), expected)


def test_batches_are_smaller_where_memory_asks_for_it(monkeypatch):
    """The label holder bounds what a batch takes, whatever the job allows."""
    rng = RNG(13)
    model = random_vertical(rng)
    tables = model.rows(rng, 50)
    monkeypatch.setattr(roles, "BATCH_BYTES", 20 * len(model.parts["bank"].ensemble.features))
    played = play(PROTOCOL, job_for(model), model.data(tables), around={"bank": Recording})
    assert [m.first_row for m in played.recording("bank").messages(Answers, "received", "shop")] == [0, 20, 40]
    assert np.array_equal(played.results["bank"].raw, model.pooled_scores(tables))


def test_threads_change_nothing():
    """The same bits and scores for any number of threads."""
    rng = RNG(14)
    model = random_vertical(rng, n_trees=10)
    tables = model.rows(rng, 1000)
    played = play(PROTOCOL, job_for(model), model.data(tables, n_threads=3))
    assert np.array_equal(played.results["bank"].raw, model.pooled_scores(tables))


def test_tables_may_be_read_before_or_not():
    """Read by the facade, in another order of columns, or with names of its own: the scores are the same."""
    rng = RNG(15)
    model = random_vertical(rng)
    tables = model.rows(rng, 60)
    ready = {party: model.parts[party].read(table, party) for party, table in tables.items()}
    turned = {party: table_of(table.columns[::-1], 60) for party, table in tables.items()}
    expected = model.pooled_scores(tables)
    for given in (ready, turned):
        assert np.array_equal(scored(model, given), expected)


def test_one_round_trip_whatever_the_number_of_trees():
    """One message each way before the answers, one answer per batch; more trees make it no longer."""
    rng = RNG(16)
    for n_trees in (1, 40):
        model = random_vertical(rng, n_trees=n_trees, depth=6, n_numeric=2)
        played = play(PROTOCOL, job_for(model, batch_rows=20), model.data(model.rows(rng, 50)))
        for party in ("shop", "clinic"):
            sent = [line.message for line in played.parties[party].ledger.lines("disclosed")]
            assert sent == [ReadyToScore.NAME] + 3 * [Answers.NAME]
            assert [line.message for line in played.parties[party].ledger.lines("learned")] == [AnswersWanted.NAME]


def test_parties_that_are_never_asked():
    """A party without handles sends no answers; a model of leaves only needs nobody's."""
    features = (FeatureBins("x", [0.0]), FeatureBins("y", [0.0]), FeatureBins("z", [0.0]))
    for depth, owner_of_all in ((0, "shop"), (3, "bank"), (3, "shop")):
        pooled = random_ensemble(RNG(17), BinMapper(features), n_trees=3, depth=depth)
        owners = [owner_of_all] * 3
        asks, questions = divide(pooled, owners, "bank", protocol="p", run_id=RUN_ID)
        theirs = {party: q for party, q in questions.items() if party != "bank"}
        asks = replace(asks, handles={"shop": 0, "clinic": 0, **asks.handles})
        rows = table_of([Column(f.name, np.array([-1.0, 1.0, np.nan, 2.0])) for f in features], 4)
        nothing = table_of([Column("other", np.zeros(4))], 4)
        data = {"bank": PartyData(rows if owner_of_all == "bank" else table_of([], 4), part=asks)}
        for party in ("shop", "clinic"):
            own = features if party == owner_of_all else (FeatureBins("other", [0.0]),)
            part = OwnerPart(party, "bank", "p", RUN_ID, own, theirs.get(party, Questions.of()))
            data[party] = PartyData(rows if party == owner_of_all else nothing, part=part)
        for epsilon in (None, 60.0):
            job = ScoringJob(("shop", "bank", "clinic"), "bank", "a scoring", RUN_ID, predict_epsilon=epsilon)
            played = play(PROTOCOL, job, data)
            assert not played.errors
            assert np.array_equal(played.results["bank"].raw, pooled.raw_scores(rows))
            assert played.results["clinic"].n_handles == 0
            assert len(played.parties["clinic"].ledger.lines("disclosed")) == 1


def test_processes_over_grpc_give_the_same():
    """Three processes over mutual TLS, in batches, with a ledger that reconciles."""
    rng = RNG(18)
    model = random_vertical(rng, n_trees=8, n_outputs=3)
    tables = model.rows(rng, 300)
    job = job_for(model, batch_rows=64)
    results, ledgers, _, _ = run_in_processes(PROTOCOL, job, model.data(tables), None, 60.0, None)
    assert np.array_equal(results["bank"].raw, model.pooled_scores(tables))
    assert results["shop"] == Answered(300, model.parts["shop"].n_handles, 4)
    reconcile(ledgers)


# --- who learns what -----------------------------------------------------------------------------------------------


def test_feature_holders_hear_nothing_about_scores():
    """All that ever reaches a feature holder is one message that does not depend on trees, values or scores."""
    rng = RNG(19)
    heard = []
    for n_outputs in (1, 3):
        model = random_vertical(rng, n_trees=3, n_outputs=n_outputs)
        data = model.data(model.rows(rng, 30))
        played = play(PROTOCOL, job_for(model), data, around={"shop": Recording, "bank": Recording})
        heard.append([passed.frame for passed in played.recording("shop").passed if passed.direction == "received"])
        reconcile({party: played.parties[party].ledger for party in model.parties})
    assert heard[0] == heard[1] == [encode(AnswersWanted(30, 65536, math.inf))]


def test_the_ledger_shows_the_event():
    """Every randomised answer carries the event of one record: each column that is asked about, once."""
    rng = RNG(20)
    model = random_vertical(rng, n_trees=20, depth=5)
    tables = model.rows(rng, 100)
    job = job_for(model, predict_epsilon=0.5, batch_rows=40)
    played = play(PROTOCOL, job, model.data(tables))
    assert not played.errors
    reconcile({party: played.parties[party].ledger for party in model.parties})
    for party in ("shop", "clinic"):
        lines = played.parties[party].ledger.lines("disclosed")
        assert [line.message for line in lines] == [ReadyToScore.NAME] + 3 * [RandomisedAnswers.NAME]
        assert all("randomised by its owner" in line.protection for line in lines[1:])
        answered = played.results[party]
        assert lines[0].event is None
        assert [line.event for line in lines[1:]] == 3 * [answered.event]
        event = from_dict(json.loads(json.dumps(answered.event)))
        assert isinstance(event, Composed)
        assert answered.n_columns == len(event.events) == 4
        assert all(isinstance(each, RandomisedResponse) and each.epsilon == 0.5 for each in event.events)
        accountant = BasicComposition("replace_one")
        accountant.compose(event)
        assert accountant.total == 4 * 0.5
    assert not played.parties["bank"].ledger.events()
    assert not np.array_equal(played.results["bank"].raw, model.pooled_scores(tables))


def test_plain_answers_carry_no_event():
    """In the clear there is no noise to tell of; an infinite epsilon is the same as none."""
    rng = RNG(21)
    model = random_vertical(rng)
    tables = model.rows(rng, 30)
    assert job_for(model, predict_epsilon=math.inf) == job_for(model)
    played = play(PROTOCOL, job_for(model, predict_epsilon=math.inf), model.data(tables))
    assert not played.parties["shop"].ledger.events()
    assert played.results["shop"].event is None
    assert np.array_equal(played.results["bank"].raw, model.pooled_scores(tables))


# --- randomised answers --------------------------------------------------------------------------------------------


def part_of_one_column(asked_bins, missing_left, n_edges=5):
    """A part with one numeric column, edges 1, 2, ..., and these questions about it."""
    n = len(asked_bins)
    questions = Questions(
        np.zeros(n, np.int32),
        np.array(asked_bins, np.int32),
        np.array(missing_left, np.bool_),
        np.zeros((n, 256), np.bool_),
    )
    feature = FeatureBins("x", np.arange(1.0, n_edges + 1))
    return OwnerPart("shop", "bank", "p", RUN_ID, (feature,), questions)


def bits_of(part, values, epsilon, seed=SEED):
    """The answers about some values of the only column: [handles, rows]."""
    table = table_of([Column("x", np.asarray(values, np.float64))], len(values))
    packed = Answering(part, epsilon).bits(table, 0, len(values), SecureRandom.from_seed(seed))
    return np.unpackbits(packed, axis=1, count=len(values))


def test_cells_are_the_different_answers():
    """Values between two thresholds that are asked about are one cell, missing ones are in it if they go along."""
    part = part_of_one_column([1, 3], [True, False])
    cells = cells_of(part.goes_right(), 7)
    assert cells.n_cells == 4  # below 2, 2 to 4, from 4 on, and missing: left, then right
    of_code = cells.of_code[:7].tolist()
    assert of_code[0] == of_code[1] != of_code[2] == of_code[3] != of_code[4] == of_code[5]
    assert len(set(of_code)) == 4
    assert np.array_equal(cells.answers[:, of_code], part.goes_right()[:, :7])
    assert cells_of(part_of_one_column([1, 3], [True, True]).goes_right(), 7).n_cells == 3


def test_a_large_epsilon_changes_nothing():
    """With a chance of e^-60 to change a value, bits are those in the clear, and so are scores."""
    part = part_of_one_column([1, 3], [True, False])
    values = RNG(22).choice([0.5, 1.5, 2.5, 3.5, 4.5, 5.5, np.nan], 1001)
    assert np.array_equal(bits_of(part, values, 60.0), bits_of(part, values, None))
    rng = RNG(23)
    model = random_vertical(rng, n_trees=5, n_outputs=3)
    tables = model.rows(rng, 100)
    assert np.array_equal(scored(model, tables, predict_epsilon=60.0), model.pooled_scores(tables))


def test_answers_about_one_column_always_fit_together():
    """What comes out is the answers of some cell, never a mixture, so the column costs epsilon once."""
    part = part_of_one_column([0, 1, 3, 4], [True, False, False, True])
    values = RNG(24).choice([0.5, 1.5, 2.5, 3.5, 4.5, 5.5, np.nan], 5000)
    possible = set(map(bytes, part.goes_right()[:, :7].T))
    found = set(map(bytes, bits_of(part, values, 0.1).T))
    assert found == possible
    assert len(found) == 6


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_chances_are_those_of_randomised_response(epsilon):
    """Measured with a fixed seed: the true cell with e^eps / (e^eps + 3), each other one with 1 / (e^eps + 3)."""
    part = part_of_one_column([1, 3], [True, False])
    n_rows, cells = 40_000, {0.5: [0, 0], 2.5: [1, 0], 4.5: [1, 1], np.nan: [0, 1]}
    for number, (value, truth) in enumerate(cells.items()):
        bits = bits_of(part, np.full(n_rows, value), epsilon, bytes([number]) * 32)
        for cell in cells.values():
            share = np.mean((cell == bits.T).all(axis=1))
            chance = (math.exp(epsilon) if cell == truth else 1.0) / (math.exp(epsilon) + 3)
            assert abs(share - chance) < 4.5 * math.sqrt(chance * (1 - chance) / n_rows)


def test_each_row_and_each_run_is_randomised_anew():
    """Equal values get different answers in one run, and the same rows in another run."""
    part = part_of_one_column([2], [True])
    first, second = (bits_of(part, np.zeros(1000), 0.5, bytes([seed]) * 32) for seed in (1, 2))
    assert 0 < first.sum() < 1000
    assert not np.array_equal(first, second)


def test_a_column_whose_answers_never_differ_costs_nothing():
    """A question that all values answer the same way tells nothing, so it has no event, and no noise."""
    part = part_of_one_column([5], [True])
    assert Answering(part, 0.5).event == Composed(())
    assert not bits_of(part, [0.0, 9.0, np.nan], 0.5).any()


def test_the_event_counts_every_column_that_tells_anything():
    """Two cells are enough; the number of questions about a column does not matter, the number of cells does."""
    assert Answering(part_of_one_column([2], [True]), 0.5).event == Composed((RandomisedResponse(2, 0.5),))
    assert Answering(part_of_one_column([1, 3], [True, False]), 0.5).event == Composed((RandomisedResponse(4, 0.5),))
    assert Answering(part_of_one_column([2], [True]), None).event is None


def test_all_codes_a_byte_can_hold():
    """A column with 256 cells, as many as there are codes."""
    part = part_of_one_column(range(254), np.arange(254) % 2 == 0, n_edges=254)
    assert Answering(part, 1.0).event == Composed((RandomisedResponse(256, 1.0),))
    values = np.append(np.arange(0.5, 255.5), np.nan)
    assert np.array_equal(bits_of(part, values, 60.0), part.answers(part.codes(table_of([Column("x", values)], 256))))


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def case():
    """A model, some rows, and what the parties bring to score them."""
    rng = RNG(30)
    model = random_vertical(rng)
    tables = model.rows(rng, 20)
    return model, tables, model.data(tables)


def test_a_part_of_another_model_is_refused(case):
    """By the party itself where the run differs, by the label holder where only the handles do; both name the party."""
    model, _, data = case
    other = random_vertical(RNG(31), run_id="another training").parts["shop"]
    error = failure(job_for(model), {**data, "shop": replace(data["shop"], part=other)})
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("shop: its part is of another model, that of run 'another training'")
    same_name = random_vertical(RNG(32), n_trees=2, depth=2).parts["shop"]
    error = failure(job_for(model), {**data, "shop": replace(data["shop"], part=same_name)})
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("shop: its part is of another model: it is of run 'a training' with")
    error = failure(replace(job_for(model), model_run_id="x"), data)
    assert isinstance(error, InvalidInput)
    assert "bank: its part is of another model" in str(error)


def test_a_part_of_somebody_else_is_refused(case):
    """Parts are not exchangeable between parties or roles."""
    model, _, data = case
    for party, part, says in (
        ("shop", model.parts["clinic"].to_dict(), "shop: brings the part of clinic"),
        ("bank", {**model.parts["shop"].to_dict(), "party": "bank"}, "bank: brings the part of a feature holder"),
        ("shop", {**model.parts["bank"].to_dict(), "party": "shop", "handles": {}}, "shop: brings a part that is not"),
        ("shop", None, "shop: brings no part of a model"),
    ):
        own = None if part is None else part_from_dict(part)
        error = failure(job_for(model), {**data, party: replace(data[party], part=own)})
        assert isinstance(error, InvalidInput)
        assert says in str(error)


def test_other_row_counts_are_refused(case):
    """The party with more or fewer rows than the label holder is named, before any answer is sent."""
    model, tables, data = case
    fewer = [Column(c.name, c.values[:19], c.levels) for c in tables["clinic"].columns]
    short = {**data, "clinic": replace(data["clinic"], table=table_of(fewer, 19))}
    played = play(PROTOCOL, job_for(model), short)
    error = root_cause(played.errors)[1]
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("clinic: has 19 rows, but bank has 20")
    assert isinstance(played.errors["shop"], PeerFailed)
    for party in ("shop", "clinic"):
        disclosed = {line.message for line in played.parties[party].ledger.lines("disclosed")}
        assert disclosed - {ABORT} == {ReadyToScore.NAME}


def test_a_missing_column_is_named(case):
    """So is the party that lacks it."""
    model, tables, data = case
    for party in ("shop", "bank"):
        table = table_of(tables[party].columns[1:], 20)
        error = failure(job_for(model), {**data, party: replace(data[party], table=table)})
        assert isinstance(error, InvalidInput)
        assert f"{party} lacks '{party} x0'" in str(error)


def test_other_parties_than_those_of_the_model_are_refused(case):
    """Whose columns are asked about must be there; who took no part in training may not."""
    model, _, data = case
    job = replace(job_for(model), parties=("shop", "bank"))
    assert "clinic: the model asks about its columns" in str(failure(job, data))
    job = replace(job_for(model), parties=(*model.parties, "pub"))
    pub = part_from_dict({**model.parts["shop"].to_dict(), "party": "pub"})
    error = failure(job, {**data, "pub": replace(data["shop"], part=pub)})
    assert "pub: took no part in the training" in str(error)


class Rewriting(Recording):
    """An endpoint whose party sends other messages than the protocol says."""

    rewrite = staticmethod(lambda frame: frame)

    def send(self, to, frame):
        """Hand over what the frame is rewritten to."""
        super().send(to, self.rewrite(frame))


def test_a_wish_for_other_answers_is_refused(case):
    """A feature holder does what the job says: no larger epsilon, no other rows, no other batches."""
    model, _, data = case
    for wish in (
        AnswersWanted(20, 65536, math.inf),
        AnswersWanted(20, 65536, 2.0),
        AnswersWanted(21, 65536, 1.0),
        AnswersWanted(20, 0, 1.0),
        AnswersWanted(20, 65537, 1.0),
    ):

        class Greedy(Rewriting):
            """A label holder that wants something else."""

            rewrite = staticmethod(lambda _, wish=wish: encode(wish))

        played = play(PROTOCOL, job_for(model, predict_epsilon=1.0), data, around={"bank": Greedy})
        assert isinstance(played.errors["shop"], ProtocolError)
        (told,) = [line for line in played.parties["shop"].ledger.lines("disclosed") if line.message != ABORT]
        assert told.message == ReadyToScore.NAME


def test_answers_of_another_shape_are_refused(case):
    """The label holder takes only the bits that it asked for."""
    model, _, data = case
    n_handles = model.parts["shop"].n_handles
    for answers in (
        Answers(8, np.zeros((n_handles, 3), np.uint8)),
        Answers(0, np.zeros((n_handles, 2), np.uint8)),
        Answers(0, np.zeros((n_handles + 1, 3), np.uint8)),
        Answers(0, np.zeros(3 * n_handles, np.uint8)),
    ):

        class Odd(Rewriting):
            """A feature holder that answers something else."""

            ready = encode(ReadyToScore(20, RUN_ID, n_handles))
            rewrite = staticmethod(lambda f, a=answers, ready=ready: f if f == ready else encode(a))

        played = play(PROTOCOL, job_for(model), data, around={"shop": Odd})
        assert isinstance(played.errors["bank"], ProtocolError)
        assert "shop sent vertical.scoring.answers with" in str(played.errors["bank"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parties": ("bank",)}, "at least 2 parties"),
        ({"parties": ("bank", "bank")}, "different names"),
        ({"label_holder": "pub"}, "label holder must be one of"),
        ({"predict_epsilon": 0.0}, "predict_epsilon must be above 0"),
        ({"predict_epsilon": -1.0}, "got -1.0"),
        ({"predict_epsilon": math.nan}, "got nan"),
        ({"predict_epsilon": 1e7}, "at most 1e"),
        ({"predict_epsilon": "1"}, "got '1'"),
        ({"predict_epsilon": True}, "got True"),
        ({"batch_rows": 0}, "batch_rows must be a whole number"),
        ({"batch_rows": 1.5}, "got 1.5"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(changes, says):
    """With the name and the value of the parameter."""
    fields = {"parties": ("shop", "bank"), "label_holder": "bank", "run_id": "s", "model_run_id": "t"}
    with pytest.raises(InvalidParameter, match=says):
        ScoringJob(**{**fields, **changes})


# --- as something to run -------------------------------------------------------------------------------------------


def test_jobs_and_results_survive_json():
    """Exactly, and strictly as JSON has it: no infinity in it."""
    job = ScoringJob(("shop", "bank"), "bank", "s", "t", predict_epsilon=np.float64(math.inf), batch_rows=np.int64(9))
    for each in (job, replace(job, predict_epsilon=np.float32(0.5))):
        assert PROTOCOL.job.from_dict(json.loads(json.dumps(each.to_dict(), allow_nan=False))) == each
    scores = Scores(RNG(40).normal(size=(5, 3)), {"shop": 4})
    read = PROTOCOL.result(json.loads(json.dumps(scores.to_dict())))
    assert np.array_equal(read.raw, scores.raw)
    assert read.raw.flags.writeable
    assert read.handles == scores.handles
    answered = Answered(5, 4, 2, Composed((RandomisedResponse(3, 1.0),)).to_dict())
    assert PROTOCOL.result(json.loads(json.dumps(answered.to_dict()))) == answered


def test_it_is_found_by_its_name_and_rehearses():
    """The service is there, its rehearsal comes to an end in both ways, and it makes no job of a request to train."""
    protocol = find("vertical.scoring")
    assert protocol is PROTOCOL
    job = ScoringJob(("shop", "bank", "clinic"), "bank", "s", "t")
    assert protocol.parties(job) == ("bank", "shop", "clinic")
    warm_up(protocol, job)
    warm_up(protocol, replace(job, predict_epsilon=1.0, batch_rows=7))
    with pytest.raises(InvalidParameter, match="trains nothing"):
        asked(protocol, ("shop", "bank"), "r", "classification", None, 256)


def test_the_statement_says_what_holds():
    """In the clear it is stamped; with epsilon it gives the price of a value and of a record."""
    job = ScoringJob(("shop", "bank"), "bank", "s", "t")
    plain = PROTOCOL.statement(job, {})
    assert "ANSWERS IN THE CLEAR: bank learned, for every row, which way it goes" in " ".join(plain.words.split())
    assert plain.facts["stamp"] == "ANSWERS IN THE CLEAR"
    assert not plain.facts["answers_are_private"]
    noisy = PROTOCOL.statement(replace(job, predict_epsilon=0.5), {"columns": {"shop": 3}})
    assert noisy.guarantee[0].startswith("One value of one column: epsilon = 0.5, towards bank")
    assert "shop: 3 x 0.5 = 1.5 for one record." in noisy.words
    assert noisy.facts["epsilon_per_record"] == {"shop": 1.5}
    assert noisy.facts["stamp"] is None
    for statement in (plain, noisy):
        assert "nothing about scores" in " ".join(statement.words.split())
        json.dumps(statement.to_dict(), allow_nan=False)
