"""vertical.closed_scoring: the pooled model's scores from shares, and nothing else is opened."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.binning import BinMapper, FeatureBins
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.table import Column
from hedgerow.errors import FixedPointOverflow, InvalidInput, InvalidParameter, ProtocolError
from hedgerow.ledger import reconcile
from hedgerow.protocols.services.score.roles import ScoringJob
from hedgerow.protocols.services.score.spec import SPEC as OPEN_SCORING
from hedgerow.protocols.services.score_closed import roles
from hedgerow.protocols.services.score_closed.messages import (
    BlockDone,
    QuestionsInTrees,
    ReadyToScore,
    ScoreShare,
    ScoresWanted,
)
from hedgerow.protocols.services.score_closed.roles import (
    FRACTION_BITS,
    LARGEST_SCORE,
    ClosedScores,
    ClosedScoringJob,
    TookPart,
    encoded_leaves,
)
from hedgerow.protocols.services.score_closed.spec import SPEC as PROTOCOL
from hedgerow.protocols.shares.messages import Dealt, MaskedWords, Seed
from hedgerow.protocols.vertical.common.parts import OwnerPart, Questions, divide, part_from_dict
from hedgerow.runtime.party import root_cause
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import PartyData, find
from hedgerow.runtime.running import warm_up
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import encode, peek
from hedgerow.transport.transcripts import Recording
from twins.parties import asked
from twins.random_models import random_ensemble
from twins.random_parts import RUN_ID, random_shared, random_vertical, table_of

RNG = np.random.default_rng
FIVE = ("bank", "shop", "clinic", "post", "telco")


def job_for(model, **changes):
    """The job of a scoring by all parties of a model."""
    return ClosedScoringJob(model.parties, model.label_holder, "a scoring", RUN_ID, **changes)


def scored(model, tables, **changes):
    """The result of a run in memory that must come to its end."""
    played = play(PROTOCOL, job_for(model, **changes), model.data(tables))
    assert not played.errors
    reconcile({name: party.ledger for name, party in played.parties.items()})
    return played.results[model.label_holder]


def failure(job, data, **how):
    """The error that all others of a run follow from."""
    played = play(PROTOCOL, job, data, **how)
    assert played.errors
    return root_cause(played.errors)[1]


def bound(model):
    """How far a score may be from the exact one: half a unit for each tree of an output, and the last rounding."""
    return len(model.pooled.trees) / model.pooled.n_outputs * 2.0 ** -(FRACTION_BITS + 1) + 1e-15


# --- the law: equal to the pooled model ------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("label_holder", ["shop", "bank", "clinic"])
def test_scores_are_those_of_the_pooled_model(label_holder, n_outputs):
    """Of ordinary parts: within the stated bound of the exact sum, and near the engine's, which rounds to 32 bits."""
    rng = RNG(1)
    for depth, n_rows in ((1, 1), (3, 77), (6, 150)):
        model = random_vertical(rng, label_holder=label_holder, n_trees=5, n_outputs=n_outputs, depth=depth)
        tables = model.rows(rng, n_rows)
        found = scored(model, tables).raw
        assert found.shape == (n_rows, n_outputs)
        assert np.abs(found - model.exact_scores(tables)).max() <= bound(model)
        assert np.abs(found - model.pooled_scores(tables)).max() < 1e-5


@pytest.mark.parametrize("n_parties", [2, 3, 4, 5])
def test_scores_of_shared_leaves(n_parties):
    """Two to five parties, one output and three; the learning rate is applied to what is opened."""
    rng = RNG(2)
    for n_outputs in (1, 3):
        model = random_shared(rng, FIVE[:n_parties], n_trees=4, n_outputs=n_outputs, depth=4, n_numeric=2)
        tables = model.rows(rng, 60)
        result = scored(model, tables)
        assert np.abs(result.raw - model.exact_scores(tables)).max() <= bound(model)
        assert result.rounds == 1 + int(np.ceil(np.log2(n_parties)))


@pytest.mark.parametrize("make", [random_vertical, random_shared])
def test_blocks_of_any_size_give_the_same(make):
    """Of one row, of a number that is no multiple of 8, larger than the table; rounds for each of them."""
    rng = RNG(3)
    model = make(rng, n_trees=2, n_outputs=3, depth=3)
    tables = model.rows(rng, 30)
    whole = scored(model, tables)
    assert whole.rounds == 3
    for batch_rows, n_blocks in ((1, 30), (7, 5), (16, 2), (100, 1)):
        result = scored(model, tables, batch_rows=batch_rows)
        assert np.array_equal(result.raw, whole.raw)
        assert result.rounds == 3 * n_blocks


def test_blocks_are_smaller_where_memory_asks_for_it(monkeypatch):
    """What is dealt for a block is bounded, whatever the job allows; one row is always possible."""
    rng = RNG(4)
    model = random_vertical(rng, n_trees=3, depth=3)
    tables = model.rows(rng, 50)
    n_leaves = sum(tree.n_leaves for tree in model.pooled.trees)
    for room, n_blocks in ((16 * n_leaves * 20, 3), (1, 50)):
        monkeypatch.setattr(roles, "BLOCK_BYTES", room)
        played = play(PROTOCOL, job_for(model), model.data(tables), around={"bank": Recording})
        assert len(played.recording("bank").messages(ScoreShare, "received", "shop")) == n_blocks
        assert np.abs(played.results["bank"].raw - model.exact_scores(tables)).max() <= bound(model)


def test_threads_and_the_order_of_columns_change_nothing():
    """As in open scoring."""
    rng = RNG(5)
    model = random_vertical(rng, n_trees=5)
    tables = model.rows(rng, 100)
    turned = {party: table_of(table.columns[::-1], 100) for party, table in tables.items()}
    expected = scored(model, tables).raw
    assert np.array_equal(scored(model, turned).raw, expected)
    played = play(PROTOCOL, job_for(model), model.data(tables, n_threads=3))
    assert np.array_equal(played.results["bank"].raw, expected)


def test_parties_that_are_never_asked():
    """A party without handles takes part as all others; so do all in a model of leaves only."""
    features = (FeatureBins("x", [0.0]), FeatureBins("y", [0.0]))
    rows = table_of([Column(f.name, np.array([-1.0, 1.0, np.nan, 2.0])) for f in features], 4)
    nothing = table_of([Column("other", np.zeros(4))], 4)
    for depth, owner_of_all in ((0, "shop"), (3, "bank"), (3, "shop")):
        pooled = random_ensemble(RNG(6), BinMapper(features), n_trees=3, depth=depth)
        asks, questions = divide(pooled, [owner_of_all] * 2, "bank", protocol="p", run_id=RUN_ID)
        asks = replace(asks, handles={"shop": 0, "clinic": 0, **asks.handles})
        data = {"bank": PartyData(rows if owner_of_all == "bank" else table_of([], 4), part=asks)}
        for party in ("shop", "clinic"):
            own = features if party == owner_of_all else (FeatureBins("other", [0.0]),)
            part = OwnerPart(party, "bank", "p", RUN_ID, own, questions.get(party, Questions.of()))
            data[party] = PartyData(rows if party == owner_of_all else nothing, part=part)
        played = play(PROTOCOL, ClosedScoringJob(("shop", "bank", "clinic"), "bank", "s", RUN_ID), data)
        assert not played.errors
        assert np.allclose(played.results["bank"].raw, pooled.raw_scores(rows), atol=1e-6)


def test_a_model_without_trees():
    """Its scores are the base score."""
    feature = FeatureBins("x", [0.0])
    pooled = Ensemble(BinMapper((feature,)), "squared", [1.5])
    asks, _ = divide(pooled, ["bank"], "bank", protocol="p", run_id=RUN_ID)
    asks = replace(asks, handles={"shop": 0})
    part = OwnerPart("shop", "bank", "p", RUN_ID, (FeatureBins("y", [0.0]),), Questions.of())
    data = {
        "bank": PartyData(table_of([Column("x", np.zeros(3))], 3), part=asks),
        "shop": PartyData(table_of([Column("y", np.zeros(3))], 3), part=part),
    }
    played = play(PROTOCOL, ClosedScoringJob(("bank", "shop"), "bank", "s", RUN_ID), data)
    assert not played.errors
    assert played.results["bank"].raw.tolist() == [[1.5]] * 3


def test_processes_over_grpc_give_the_same():
    """Four processes over mutual TLS, each linked to each other, in blocks, with ledgers that reconcile."""
    rng = RNG(7)
    model = random_vertical(rng, n_trees=3, n_outputs=3)
    tables = model.rows(rng, 100)
    job = job_for(model, batch_rows=64)
    results, ledgers, _, _ = run_in_processes(PROTOCOL, job, model.data(tables), None, 60.0, None)
    assert np.array_equal(results["bank"].raw, scored(model, tables).raw)
    assert results["shop"] == results["dealer"] == TookPart(100)
    assert results["bank"].rounds == 6
    reconcile(ledgers)


# --- who learns what -------------------------------------------------------------------------------------------------


def heard(recording):
    """(sender, message) of all that a party received, once each."""
    return {(p.peer, peek(p.frame)[0]) for p in recording.passed if p.direction == "received"}


def test_who_hears_what():
    """The label holder gets shares and masked words; the dealer no word of others; others no score share."""
    rng = RNG(8)
    for make, told in ((random_vertical, {("bank", QuestionsInTrees.NAME)}), (random_shared, set())):
        model = make(rng, n_trees=2)
        names = ("bank", "shop", "clinic", "dealer")
        played = play(PROTOCOL, job_for(model), model.data(model.rows(rng, 20)), around=dict.fromkeys(names, Recording))
        others = {(party, MaskedWords.NAME) for party in ("bank", "shop", "clinic")}
        dealt = {("dealer", Dealt.NAME)}
        from_owners = {(party, kind.NAME) for party in ("shop", "clinic") for kind in (ReadyToScore, ScoreShare)}
        assert heard(played.recording("bank")) == from_owners | dealt | (others - {("bank", MaskedWords.NAME)})
        for party in ("shop", "clinic"):
            expected = {("bank", ScoresWanted.NAME)} | told | dealt | (others - {(party, MaskedWords.NAME)})
            assert heard(played.recording(party)) == expected
        seeds = {(party, Seed.NAME) for party in ("bank", "shop", "clinic")}
        assert heard(played.recording("dealer")) == seeds | {("bank", ScoresWanted.NAME), ("bank", BlockDone.NAME)}


def test_feature_holders_are_told_nothing_about_others_splits():
    """Of another party's node they see that it is one, whoever's it is."""
    rng = RNG(9)
    model = random_vertical(rng, n_trees=4, depth=4)
    played = play(PROTOCOL, job_for(model), model.data(model.rows(rng, 9)), around={"shop": Recording})
    (told,) = played.recording("shop").messages(QuestionsInTrees, "received")
    features = np.concatenate([tree.feature for tree in model.pooled.trees])
    owners = np.array([*model.owners, "nobody"])[features]
    assert np.array_equal(told.handles >= 0, owners == "shop")
    assert np.array_equal(told.handles == -1, owners == "nobody")
    assert set(told.handles[told.handles < 0].tolist()) == {-1, -2}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[random_vertical, random_shared])
def case(request):
    """A model of either kind, some rows, and what the parties bring to score them."""
    rng = RNG(10)
    model = request.param(rng, n_trees=3)
    tables = model.rows(rng, 20)
    return model, tables, model.data(tables), request.param


def test_a_part_of_another_model_is_refused(case):
    """By the party itself where the run differs, by the label holder where only the trees or handles do."""
    model, _, data, make = case
    other = make(RNG(11), run_id="another training").parts["shop"]
    error = failure(job_for(model), {**data, "shop": replace(data["shop"], part=other)})
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("shop: its part is of another model, that of run 'another training'")
    same_name = make(RNG(12), n_trees=2, depth=2).parts["shop"]
    error = failure(job_for(model), {**data, "shop": replace(data["shop"], part=same_name)})
    assert isinstance(error, InvalidInput)
    assert str(error).startswith("shop: its part is of another model: ")


def test_parts_of_two_kinds_do_not_mix(case):
    """A feature holder whose leaves are shared beside a label holder with leaf values, and the other way round."""
    model, _, data, make = case
    other = (random_shared if make is random_vertical else random_vertical)(RNG(13), n_trees=3)
    foreign = {"shop": PartyData(other.rows(RNG(14), 20)["shop"], part=other.parts["shop"])}
    error = failure(job_for(model), {**data, **foreign})
    assert isinstance(error, InvalidInput)
    assert "shop: its part is of another kind than that of bank" in str(error)


def test_other_rows_and_parties_are_refused(case):
    """The party with other rows is named; so is who lacks, or took no part in training."""
    model, tables, data, make = case
    fewer = [Column(c.name, c.values[:19], c.levels) for c in tables["clinic"].columns]
    error = failure(job_for(model), {**data, "clinic": replace(data["clinic"], table=table_of(fewer, 19))})
    assert str(error).startswith("clinic: has 19 rows, but bank has 20")
    error = failure(replace(job_for(model), parties=("shop", "bank")), data)
    assert "clinic: " in str(error)
    assert "not take part in the scoring" in str(error)
    part = {**model.parts["shop"].to_dict(), "party": "pub"}
    if make is random_shared:
        part["holders"] = ["bank", "shop", "clinic", "pub"]
    pub = replace(data["shop"], part=part_from_dict(part))
    error = failure(replace(job_for(model), parties=(*model.parties, "pub")), {**data, "pub": pub})
    assert "pub: took no part in the training" in str(error)
    assert "brings no part" in str(failure(job_for(model), {**data, "bank": replace(data["bank"], part=None)}))


def test_another_label_holder_is_refused():
    """Of shared leaves, scores are for the label holder of the training."""
    model = random_shared(RNG(15), n_trees=2)
    data = model.data(model.rows(RNG(15), 5))
    error = failure(replace(job_for(model), label_holder="shop"), data)
    assert isinstance(error, InvalidInput)
    assert "the labels of its model are bank's, not shop's" in str(error)


def test_open_services_refuse_shared_leaves():
    """With a sentence that says what can be done instead."""
    model = random_shared(RNG(16), n_trees=2)
    job = ScoringJob(model.parties, "bank", "s", RUN_ID)
    played = play(OPEN_SCORING, job, model.data(model.rows(RNG(16), 5)))
    for party in model.parties:
        assert "vertical.closed_scoring can" in str(played.errors[party])


def test_scores_without_room_are_refused():
    """Leaf values that may add up to more than fits; up to there nothing overflows."""
    model = random_vertical(RNG(17), n_trees=3, depth=2)
    tables = model.rows(RNG(17), 20)
    large = [replace(t, value=np.full(t.n_nodes, LARGEST_SCORE / 3 * 0.999)) for t in model.pooled.trees]
    pooled = Ensemble(model.pooled.mapper, "squared", [0.0], trees=large)
    asks, _ = divide(pooled, model.owners, "bank", protocol="p", run_id=RUN_ID)
    data = model.data(tables)
    played = play(PROTOCOL, job_for(model), {**data, "bank": replace(data["bank"], part=asks)})
    assert np.allclose(played.results["bank"].raw, LARGEST_SCORE * 0.999, rtol=1e-6)
    for wrong in (LARGEST_SCORE / 3 * 1.001, np.inf, np.nan):
        trees = [replace(t, value=np.full(t.n_nodes, wrong)) for t in large]
        with pytest.raises(
            FixedPointOverflow, match=r"bank: leaf values may add up to .*, but closed scoring has room"
        ):
            encoded_leaves("bank", Ensemble(model.pooled.mapper, "squared", [0.0], trees=trees))


def rewriting(message):
    """An endpoint that sends this message instead of those of its kind."""

    class Lying(Recording):
        """The endpoint of a party that does not do what the protocol says."""

        def send(self, to, frame):
            """Hand over what the frame is rewritten to."""
            super().send(to, encode(message) if peek(frame)[0] == message.NAME else frame)

    return Lying


def test_shares_of_another_shape_are_refused():
    """The label holder takes as many words as it has rows."""
    model = random_vertical(RNG(18), n_trees=2)
    lying = rewriting(ScoreShare(np.zeros(8 * 19, np.uint8)))
    error = failure(job_for(model), model.data(model.rows(RNG(18), 20)), around={"shop": lying})
    assert isinstance(error, ProtocolError)
    assert "shop sent" in str(error)


def test_trees_that_are_none_are_refused():
    """A feature holder takes only trees in which its own handles stand, and sizes that fit them."""
    model = random_vertical(RNG(19), n_trees=1, depth=1)
    data = model.data(model.rows(RNG(19), 20))
    n = model.parts["shop"].n_handles
    one = np.array([3], np.int32)
    for told in (
        QuestionsInTrees(one, np.array([n, -1, -1], np.int32)),
        QuestionsInTrees(one, np.array([-2, -1], np.int32)),
        QuestionsInTrees(one, np.array([-1, -1, -1], np.int32)),
        QuestionsInTrees(one, np.array([-3, -1, -1], np.int32)),
        QuestionsInTrees(np.array([3, 0], np.int32), np.array([-2, -1, -1], np.int32)),
        QuestionsInTrees(one[None], np.array([-2, -1, -1], np.int32)),
    ):
        error = failure(job_for(model), data, around={"bank": rewriting(told)})
        assert isinstance(error, ProtocolError), told
        assert str(error).startswith(("bank sent shop what are not trees", f"bank sent {told.NAME} with "))
    many = QuestionsInTrees(np.array([1, 1, 1], np.int32), np.full(3, -1, np.int32))
    error = failure(job_for(model), data, around={"bank": rewriting(many)})
    assert "bank speaks of other leaves than those of shop" in str(error)


def test_sizes_that_cannot_be_are_refused():
    """By feature holders and by the dealer."""
    model = random_vertical(RNG(20), n_trees=1, depth=1)
    data = model.data(model.rows(RNG(20), 20))
    sizes = [(0, 1, [2]), (20, 0, [2]), (20, 21, [2]), (20, 19, [2]), (20, 20, []), (20, 20, [-1])]
    sizes += [(20, 20, [2**24]), (20, 1, [2**24, 1]), (20, 1, [2**40])]
    for n_rows, block_rows, n_leaves in sizes:
        wanted = ScoresWanted(n_rows, block_rows, np.array(n_leaves, np.int64))
        played = play(PROTOCOL, job_for(model), data, around={"bank": rewriting(wanted)})
        for party in ("shop", "dealer"):
            assert isinstance(played.errors[party], ProtocolError)
            said = str(played.errors[party])
            assert said.startswith(("bank wants scores of", f"bank sent {wanted.NAME} with "))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"parties": ("bank",)}, "at least 2 parties"),
        ({"label_holder": "pub"}, "label holder must be one of"),
        ({"dealer": "shop"}, "the dealer must be a party of its own"),
        ({"dealer": ""}, "the dealer must be a party of its own"),
        ({"batch_rows": 0}, "batch_rows must be a whole number"),
        ({"batch_rows": True}, "got True"),
    ],
)
def test_jobs_that_cannot_be_done_are_refused(changes, says):
    """With the name and the value of the parameter."""
    fields = {"parties": ("shop", "bank"), "label_holder": "bank", "run_id": "s", "model_run_id": "t"}
    with pytest.raises(InvalidParameter, match=says):
        ClosedScoringJob(**{**fields, **changes})


# --- as something to run ---------------------------------------------------------------------------------------------


def test_jobs_and_results_survive_json():
    """Exactly."""
    job = ClosedScoringJob(("shop", "bank"), "bank", "s", "t", dealer="d", batch_rows=np.int64(9))
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(job.to_dict(), allow_nan=False))) == job
    scores = ClosedScores(RNG(40).normal(size=(5, 3)), 12)
    read = PROTOCOL.result(json.loads(json.dumps(scores.to_dict())))
    assert np.array_equal(read.raw, scores.raw)
    assert read.rounds == 12
    assert PROTOCOL.result(json.loads(json.dumps(TookPart(5).to_dict()))) == TookPart(5)


def test_it_is_found_by_its_name_and_rehearses():
    """The service is there, everybody is linked to everybody, and it makes no job of a request to train."""
    protocol = find("vertical.closed_scoring")
    assert protocol is PROTOCOL
    job = ClosedScoringJob(("shop", "bank", "clinic"), "bank", "s", "t", dealer="a")
    assert protocol.parties(job) == ("bank", "shop", "clinic", "a")
    assert len(job.links) == 6
    warm_up(protocol, job)
    with pytest.raises(InvalidParameter, match="trains nothing"):
        asked(protocol, ("shop", "bank"), "r", "classification", None, 256)


def test_the_statement_says_what_holds():
    """Who learned what, on whom it rests, and what is not covered."""
    stated = PROTOCOL.statement(ClosedScoringJob(("shop", "bank"), "bank", "s", "t"), {"rounds": 3})
    words = " ".join(stated.words.split())
    assert "bank learned the scores, and about which way rows go only what scores themselves tell" in words
    assert "the shapes of the trees" in words
    assert "dealer, which knows all masks and has no data, works together with no other party" in words
    assert "Not covered:" in stated.words
    assert stated.facts["rounds"] == 3
    json.dumps(stated.to_dict(), allow_nan=False)
