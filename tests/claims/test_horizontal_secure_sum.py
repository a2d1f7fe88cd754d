"""What horizontal.secure_sum claims and does not claim, put to the test by adversaries that have real transcripts."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from hedgerow.attacks.secure_sum.singleton_cells import (
    Public,
    as_seen,
    find_single_records,
    plan_of,
    score,
    summed_levels,
)
from hedgerow.crypto.masking import KeyPair, Position, pair_secret
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter, ProtocolError
from hedgerow.federation.federation import Federation
from hedgerow.privacy.calibrate import mu_for
from hedgerow.privacy.events import up
from hedgerow.protocols.central.bins import cells_of, grid_of
from hedgerow.protocols.central.gaussian.requests import COUNT_UNIT
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.levels import ExchangedCells
from hedgerow.protocols.horizontal.secure_sum.masks import TREES, Masks, nth, opened
from hedgerow.protocols.horizontal.secure_sum.messages import MaskedHistogram, NextStep, NoisySum, SumWanted, Unmasking
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import Vanished, play
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.transcripts import Recording
from twins.horizontal import codes_of, document, make_pooled, own_parts, share_out, vanishing_at

N_ROWS = 600
TREES_OF_THE_PAPER = BoostingParams(n_iterations=20, max_depth=3)


def make_run(n_owners, recorded, **changes):
    """Owners of equal size, a run, and what was recorded."""
    pooled = make_pooled(np.random.default_rng(1), N_ROWS)
    data = share_out(pooled, [N_ROWS // n_owners] * n_owners)
    job = Job(**{"owners": tuple(data), "run_id": "r", "boosting": TREES_OF_THE_PAPER, "max_bins": 64, **changes})
    played = play(PROTOCOL, job, data, around=dict.fromkeys(recorded, Recording))
    assert played.errors == {}
    model = played.results[job.coordinator]
    public = Public.of_job(ExchangedCells(model.mapper).first, N_ROWS)
    return played, pooled, data, job, model, public


def attacked(seen, public, pooled, rows, model):
    """The attack's score against some of the rows."""
    part = pooled.rows(rows)
    return score(find_single_records(seen, public), seen, codes_of(part, model), part.labels)


# --- D8, singleton cells -------------------------------------------------------------------------------------------


def test_a_partner_of_two_reads_labels_off_unmasked_sums():
    """Two owners, one of them coordinating: the other's histograms arrive as they are, and labels with them."""
    played, pooled, _, _, model, public = make_run(2, ["ben"], coordinator="ben", accept_no_masking=True)
    seen = as_seen(summed_levels(played.recording("ben")), lambda summed: summed.parts["anna"])
    result = attacked(seen, public, pooled, np.arange(N_ROWS // 2), model)
    assert result.cells > 500
    assert result.right_cells / result.cells > 0.99
    assert result.records / result.n_records > 0.5


def test_a_partner_of_two_subtracts_its_own_part():
    """Two owners and a coordinator that tells one of them the sums: what it has not sent itself is the other's."""
    played, pooled, data, job, model, public = make_run(2, ["coordinator", "ben"], accept_no_masking=True)
    sums = as_seen(summed_levels(played.recording("coordinator")), lambda summed: summed.sums)
    own = own_parts(played.recording("ben"), data["ben"], job)
    others = [replace(level, sums=level.sums - part.view(np.int64)) for level, part in zip(sums, own, strict=True)]
    result = attacked(others, public, pooled, np.arange(N_ROWS // 2), model)
    assert result.right_cells / result.cells > 0.99
    assert result.records / result.n_records > 0.5
    both = attacked(sums, public, pooled, np.arange(N_ROWS), model)
    assert both.records / both.n_records < result.records / result.n_records


def test_deep_trees_expose_whole_records():
    """A record that is alone in a node shows all its bins."""
    deep = BoostingParams(n_iterations=20, max_depth=6, min_child_weight=0.0)
    played, pooled, _, _, model, public = make_run(2, ["ben"], coordinator="ben", accept_no_masking=True, boosting=deep)
    seen = as_seen(summed_levels(played.recording("ben")), lambda summed: summed.parts["anna"])
    result = attacked(seen, public, pooled, np.arange(N_ROWS // 2), model)
    assert result.right_cells / result.cells > 0.99
    assert result.whole_records > 5


def test_two_owners_are_refused_by_default():
    """Nobody gets into that situation without having written so, and then the model says it."""
    rng = np.random.default_rng(2)
    data = {name: (rng.normal(size=(60, 3)), rng.integers(0, 2, 60)) for name in ("anna", "ben")}
    federation = Federation.horizontal(data)
    with pytest.raises(InvalidParameter, match="with 2 owners protects nothing"):
        federation.fit("horizontal.secure_sum", n_estimators=2)
    run = federation.fit("horizontal.secure_sum", n_estimators=2, accept_no_masking=True)
    assert run.model.ensemble_.meta["stamp"] == "NO MASKING"
    assert "NO MASKING" in str(run.statement())


def test_one_owners_message_among_three_shows_nothing():
    """Under masks the attack finds no cell in any single message, nor in the sum of two of the three."""
    played, _, _, _, _, public = make_run(3, ["coordinator"])
    levels = list(summed_levels(played.recording("coordinator")))
    for names in (["anna"], ["ben"], ["anna", "carla"]):

        def part(summed, names=names):
            return np.sum([summed.parts[name] for name in names], axis=0, dtype=np.uint64)

        assert find_single_records(as_seen(levels, part), public) == []


def test_masked_messages_are_uniform():
    """All bytes of all messages of an owner are equally frequent, though most of the histogram is empty cells."""
    played, _, _, _, _, _ = make_run(3, ["coordinator"])
    for name in ("anna", "ben", "carla"):
        sent = played.recording("coordinator").messages(MaskedHistogram, "received", name)
        counts = np.bincount(np.concatenate([m.values.reshape(-1).view(np.uint8) for m in sent]), minlength=256)
        expected = counts.sum() / 256
        # 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * 22.6


def test_sums_over_all_owners_still_single_out_records():
    """Masking is no anonymity: a row alone in a cell, of all owners' rows, shows its label. The statement says so."""
    played, pooled, _, job, model, public = make_run(3, ["coordinator"])
    seen = as_seen(summed_levels(played.recording("coordinator")), lambda summed: summed.sums)
    result = attacked(seen, public, pooled, np.arange(N_ROWS), model)
    assert result.right_cells / result.cells > 0.99
    assert 0.02 < result.records / result.n_records < 1.0
    words = str(PROTOCOL.statement(job, model.meta))
    assert "Sums are not anonymous: where one row is alone in a cell, they show its gradient and so its label" in words


# --- dp ------------------------------------------------------------------------------------------------------------

SCHEMA = Schema.from_public(
    bounds={"x0": (-4.0, 4.0), "x1": (-40.0, 40.0), "x2": (-400.0, 400.0), "few": (0.0, 2.0)},
    levels={"kind": [f"level {letter}" for letter in "abcde"]},
    integers=["x1", "few"],
    may_be_missing=True,
    classes=[0, 1],
)


def test_under_dp_there_is_nothing_to_work_on():
    """No histogram of gradients is ever sent; and cells of noisy counts that look like one record are not."""
    pooled = make_pooled(np.random.default_rng(1), N_ROWS)
    data = share_out(pooled, [200, 200, 200])
    job = Job(owners=tuple(data), run_id="r", dp=(1.0, 1e-5), schema=SCHEMA)
    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    recording = played.recording("coordinator")
    assert list(summed_levels(recording)) == []
    parts = [recording.messages(NoisySum, "received", name)[1].values for name in data]
    pairs = np.sum(parts, axis=0, dtype=np.uint64).view(np.int64).reshape(-1, 2)
    grid = grid_of(SCHEMA)
    codes, labels = grid.transform(pooled.table), pooled.labels
    truth = np.concatenate(
        [
            np.stack([np.bincount(own[labels == y], minlength=n)[:n] for y in (1, 0)], axis=1)
            for own, n in zip(codes, cells_of(SCHEMA, grid), strict=True)
        ]
    )
    exact = truth.sum(axis=1) == 1
    assert exact.sum() > 50  # without noise there would be much to find
    nearest = np.round(pairs / COUNT_UNIT)
    claimed = (nearest.sum(axis=1) == 1) & (nearest.min(axis=1) == 0)
    right = claimed & (nearest == truth).all(axis=1)
    assert right.sum() <= 0.1 * exact.sum()
    assert np.abs(pairs / COUNT_UNIT - truth).mean() > 3


# --- masks are used once -------------------------------------------------------------------------------------------


def two_masks():
    """The masks of two owners of one round, as the protocol makes them."""
    anna, ben = KeyPair.generate(), KeyPair.generate()

    class Me:
        name = "anna"

    how = {"run_id": "r", "round_id": 1}
    masks = Masks(Me, Job(owners=("anna", "ben"), run_id="r", accept_no_masking=True))
    masks.renew({"ben": pair_secret(anna, ben.public, me="anna", peer="ben", **how)})
    return masks, pair_secret(ben, anna.public, me="ben", peer="anna", **how)


def test_a_position_cannot_be_used_twice():
    """The masks that owners really use refuse a position that is not later than the last one."""
    masks, _ = two_masks()
    values = np.zeros(5, np.uint64)
    masks.hide(values, Position(TREES, 3, 1, 0))
    for position in (Position(TREES, 3, 1, 0), Position(TREES, 3, 0, 5), Position(TREES, 2, 9), Position(0, 9)):
        with pytest.raises(ProtocolError, match="cannot be used"):
            masks.hide(values, position)
    masks.hide(values, Position(TREES, 3, 1, 1))


class Meddling(Recording):
    """A coordinator whose messages are changed, or repeated, on their way out."""

    kind = NextStep.NAME
    tree, level = 1, 1

    def send(self, to, frame):
        """Pass on what `meddle` makes of the frame."""
        for each in self.meddle(frame) if peek(frame)[0] == self.kind else [frame]:
            super().send(to, each)


def meddled(kind, n_owners=3, lost=None, **changes):
    """How a run ends whose coordinator does not keep to the rules."""
    pooled = make_pooled(np.random.default_rng(3), 200)
    data = share_out(pooled, [200 // n_owners] * n_owners)
    job = Job(
        **{"owners": tuple(data), "run_id": "r", "boosting": BoostingParams(n_iterations=4, max_depth=3), **changes}
    )
    around = {name: vanishing_at(*when) for name, when in (lost or {}).items()}
    return play(PROTOCOL, job, data, around={"coordinator": kind, **around}), data


def refusals(played, data):
    """The owners' own errors, in words."""
    return [str(played.errors[name]) for name in data if isinstance(played.errors.get(name), ProtocolError)]


def test_an_owner_is_asked_twice_for_a_level():
    """The same question again, with the same keys: the owner sends nothing and says why."""

    class Twice(Meddling):
        def meddle(self, frame):
            plan = plan_of(decode(frame, NextStep))
            return [frame, frame] if (plan.tree, plan.level) == (1, 1) else [frame]

    played, data = meddled(Twice)
    (refusal,) = refusals(played, data)[:1]
    assert "was asked for the sums of Position(purpose=3, tree=1, level=1, part=0) after those of" in refusal
    per_owner = [len(played.recording("coordinator").messages(MaskedHistogram, "received", name)) for name in data]
    assert max(per_owner) <= 5  # three levels of the first tree, two of the second, and none again


def test_an_owner_is_asked_for_an_earlier_level():
    """Going back to the level before is no better."""

    class Back(Meddling):
        def meddle(self, frame):
            step = decode(frame, NextStep)
            plan = plan_of(step)
            if (plan.tree, plan.level) == (1, 2):
                frame = encode(replace(step, plan=np.array(plan._replace(level=0), np.int64)))
            return [frame]

    played, data = meddled(Back)
    assert any(
        "level=0, part=0) after those of Position(purpose=3, tree=1, level=1" in s for s in refusals(played, data)
    )


def test_an_owner_is_asked_again_after_new_keys():
    """A level that was given with the old keys is not given with new ones: the two sums would differ by one owner."""

    class Again(Meddling):
        def meddle(self, frame):
            step = decode(frame, NextStep)
            plan = plan_of(step)
            if plan.new_round == 2:
                frame = encode(replace(step, plan=np.array(plan._replace(tree=1, level=1), np.int64)))
            return [frame]

    played, data = meddled(Again, n_owners=5, lost={"carla": (1, 1)}, min_owners=3)
    words = refusals(played, data)
    assert words
    assert all(
        "was asked for the sums of Position(purpose=3, tree=1, level=1, part=0) after" in sentence for sentence in words
    )


def test_an_owner_is_asked_to_go_back_to_old_keys():
    """Keys of a round that is over are never made again."""

    class Old(Meddling):
        def meddle(self, frame):
            step = decode(frame, NextStep)
            plan = plan_of(step)
            if (plan.tree, plan.level) == (1, 1):
                frame = encode(replace(step, plan=np.array(plan._replace(new_round=1), np.int64)))
            return [frame]

    played, data = meddled(Old)
    assert any("was asked to go back from key round 1 to 1" in sentence for sentence in refusals(played, data))


def test_a_noisy_sum_is_not_answered_twice():
    """Under dp a question that comes again is refused too: its second answer would halve the noise."""

    class Twice(Meddling):
        kind = SumWanted.NAME

        def meddle(self, frame):
            return [frame, frame] if decode(frame, SumWanted).number == 3 else [frame]

    played, data = meddled(Twice, dp=(1.0, 1e-5), schema=SCHEMA, boosting=BoostingParams())
    assert refusals(played, data)
    for name in data:
        assert len(played.recording("coordinator").messages(NoisySum, "received", name)) <= 4


# --- what a dropout gives away -------------------------------------------------------------------------------------


def test_sums_before_and_after_a_loss_tell_how_many_rows_were_lost_where():
    """Squared loss: hessian sums are row counts, so the last root with an owner minus the first without is its own.

    No node is summed both with and without the lost owner, but the root of every tree holds the same rows.
    """
    pooled = make_pooled(np.random.default_rng(5), 300, task="regression")
    data = share_out(pooled, [80, 70, 60, 50, 40])
    job = Job(
        owners=tuple(data), run_id="r", task="regression", min_owners=3, exact_label_range=True,
        boosting=BoostingParams(n_iterations=4, max_depth=3, loss="squared"),
    )  # fmt: skip
    played = play(PROTOCOL, job, data, around={"coordinator": Recording, "carla": vanishing_at(2, 1)})
    model = played.results["coordinator"]
    roots = {
        summed.plan.tree: summed.sums.view(np.int64)[0] & 0xFFFFFFFF
        for summed in summed_levels(played.recording("coordinator"))
        if summed.plan.level == 0 and summed.is_complete
    }
    assert set(roots) == {0, 1, 2, 3}
    codes = codes_of(pooled.rows(np.arange(150, 210)), model)
    lost = np.concatenate([np.bincount(own, minlength=f.n_codes) for own, f in zip(codes, model.features, strict=True)])
    unit = (roots[2] - roots[3]).sum() // lost.sum()
    np.testing.assert_array_equal(roots[2] - roots[3], lost * unit)


# --- rows that do not fit, under dp ----------------------------------------------------------------------------------

STRICT = {"bounds": {"age": (0.0, 100.0), "pay": (0.0, 10.0)}, "levels": {"town": ["a", "b"]}}
MISFITS = {
    "a level that is not listed": ([50.0, 5.0, "zebra"], 1),
    "a gap": ([np.nan, 5.0, "a"], 1),
    "a gap among levels": ([50.0, 5.0, None], 1),
    "a number beyond its bounds": ([1e9, -5.0, "a"], 1),
    "a class that is not listed": ([50.0, 5.0, "a"], 7),
    "no class": ([50.0, 5.0, "a"], None),
}


def offices(odd=None):
    """Three owners' tables and labels as people have them; anna's first row may be an odd one."""
    rng = np.random.default_rng(8)
    found = {}
    for name in ("anna", "ben", "carla"):
        rows = [[rng.uniform(0, 100), rng.uniform(0, 10), rng.choice(["a", "b"])] for _ in range(40)]
        labels = list(rng.integers(0, 2, 40).tolist())
        if odd is not None and name == "anna":
            rows[0], labels[0] = odd
        frame = pd.DataFrame(rows, columns=["age", "pay", "town"], dtype=object)
        found[name] = frame, np.array(labels, object)
    return found


def told_by_anna(odd):
    """What anna sends in a private run of all offices, up to the last table; the number of trees is a noisy one."""
    federation = Federation.horizontal(offices(odd), schema=Schema.from_public(**STRICT, classes=[0, 1]))
    run = federation.fit("horizontal.secure_sum", dp=(0.1, 1e-5))
    return [(line.message, line.peer) for line in run.ledgers["anna"].lines("disclosed")][: 2 + 10 * 3]


@pytest.fixture(scope="module")
def told_without_misfit():
    """What anna sends where all rows fit."""
    return told_by_anna(None)


@pytest.mark.parametrize("what", MISFITS)
def test_under_dp_no_row_makes_an_owner_fail(what, told_without_misfit):
    """The run ends as it would without the odd row, and its owner sends the same messages."""
    assert told_by_anna(MISFITS[what]) == told_without_misfit


def test_under_dp_an_unlisted_class_reaches_the_role_and_does_not_count():
    """Also where the tables were read without a schema, the owner's role itself maps what does not fit."""
    data = share_out(make_pooled(np.random.default_rng(1), 90, n_classes=3), [30, 30, 30])
    job = Job(owners=tuple(data), run_id="r", dp=(1.0, 1e-5), schema=SCHEMA)
    assert 2 in data["anna"].classes
    assert play(PROTOCOL, job, data).errors == {}


# --- what is in the model --------------------------------------------------------------------------------------------


def rows_per_leaf(model, pooled):
    """How many of the rows are in each leaf of the first tree."""
    leaves = model.apply(read_table(pooled.table, like=model.features, where="rows"))[:, 0]
    return np.bincount(leaves, minlength=model.trees[0].n_nodes)


@pytest.mark.parametrize("shared", [False, True])
def test_owners_cannot_count_the_others_rows_in_a_leaf_unless_covers_are_shared(shared):
    """Squared loss: a leaf's cover is its rows, so two owners subtract theirs and know the third one's."""
    pooled = make_pooled(np.random.default_rng(5), 300, task="regression")
    data = share_out(pooled, [100, 100, 100])
    job = Job(
        owners=tuple(data), run_id="r", task="regression", share_cover=shared,
        boosting=BoostingParams(n_iterations=2, max_depth=3, loss="squared", label_range=(-50.0, 50.0)),
    )  # fmt: skip
    played = play(PROTOCOL, job, data)
    for party in ("anna", "coordinator"):
        model = played.results[party]
        tree = model.trees[0]
        known = rows_per_leaf(model, pooled.rows(np.arange(200)))
        others = (tree.cover - known)[tree.is_leaf]
        truth = rows_per_leaf(model, pooled.rows(np.arange(200, 300)))[tree.is_leaf]
        assert np.allclose(others, truth) == shared
    words = str(PROTOCOL.statement(job, model.meta)).replace("\n  ", " ")
    assert ("owners can compute how many rows of the others are in a leaf" in words) == shared
    assert ("has no exact gains or covers of nodes" in words) != shared


def test_models_without_covers_predict_the_same_bits():
    """Stand-ins stand for what predicting never looks at, at every party alike; leaf values are the same."""
    pooled = make_pooled(np.random.default_rng(6), 200)
    data = share_out(pooled, [80, 70, 50])
    models = []
    for shared in (False, True):
        job = Job(owners=tuple(data), run_id="r", boosting=TREES_OF_THE_PAPER, share_cover=shared)
        results = play(PROTOCOL, job, data).results
        assert document(results["anna"]) == document(results["coordinator"])
        models.append(results["anna"])
    table = read_table(pooled.table, like=models[0].features, where="rows")
    np.testing.assert_array_equal(models[0].raw_scores(table), models[1].raw_scores(table))
    for bare, full in zip(models[0].trees, models[1].trees, strict=True):
        np.testing.assert_array_equal(bare.value[bare.is_leaf], full.value[full.is_leaf])
        inner = ~bare.is_leaf
        # From values of inner nodes and gains covers could be computed as well: none of them is the exact one.
        assert not np.array_equal(bare.value[inner], full.value[inner])
        assert not np.array_equal(bare.gain[inner], full.gain[inner])


# --- late messages ---------------------------------------------------------------------------------------------------


class Late(Recording):
    """An owner whose first sums of one tree do not leave in time: they are kept, and it is taken for lost."""

    def send(self, to, frame):
        """Hand over a frame, or keep it and go."""
        if peek(frame)[0] == MaskedHistogram.NAME and len(self.messages(MaskedHistogram, "sent")) == 2 * 3:
            self.kept = decode(frame, MaskedHistogram).values
            raise Vanished
        super().send(to, frame)


@pytest.mark.parametrize("double_masking", [None, False, True])
def test_a_late_message_does_not_open_its_owners_part(double_masking):
    """Of the root of a tree the others give a new sum without the lost one; the late message must not give the old."""
    pooled = make_pooled(np.random.default_rng(7), 250)
    data = share_out(pooled, [80, 70, 60, 40])
    job = Job(
        owners=tuple(data), run_id="r", boosting=BoostingParams(n_iterations=4, max_depth=3), min_owners=3,
        double_masking=double_masking,
    )  # fmt: skip
    played = play(PROTOCOL, job, data, around={"coordinator": Recording, "carla": Late})
    assert played.errors == {}
    attempts = [summed for summed in summed_levels(played.recording("coordinator")) if summed.plan[3:5] == (2, 0)]
    assert [attempt.is_complete for attempt in attempts] == [False, True]
    full = attempts[0].masked_sums + played.endpoints["carla"].kept
    part = full - attempts[1].sums  # what carla alone has
    mine = own_parts(played.endpoints["carla"], data["carla"], job)[-1]
    assert np.array_equal(part, mine) == (double_masking is False)
    words = str(PROTOCOL.statement(job, played.results["coordinator"].meta)).replace("\n  ", " ")
    assert ("a coordinator that kept both can compute that owner's part" in words) == (double_masking is False)


def test_where_a_loss_ends_the_run_no_sum_is_asked_for_again():
    """Three owners, or all that min_owners asks for: no second masks, no second attempt, and no model."""
    pooled = make_pooled(np.random.default_rng(7), 250)
    for sizes, fewest in (([80, 70, 60], None), ([80, 70, 60, 40], 4)):
        data = share_out(pooled, sizes)
        boosting = BoostingParams(n_iterations=4, max_depth=3)
        job = Job(owners=tuple(data), run_id="r", boosting=boosting, min_owners=fewest)
        assert not job.has_own_masks(is_first=True)
        words = str(PROTOCOL.statement(job, {})).replace("\n  ", " ")
        assert "A run ends when an owner is given up as silent, and no sum is asked for again." in words
        played = play(PROTOCOL, job, data, around={"coordinator": Recording, "carla": Late})
        assert "coordinator" not in played.results
        attempts = [s for s in summed_levels(played.recording("coordinator")) if s.plan[3:5] == (2, 0)]
        assert [attempt.is_complete for attempt in attempts] == [False]


def test_double_masks_under_dp_open_the_same_sums():
    """With double_masking=True a noisy sum takes the owners' help to be read, and a run ends as without."""
    pooled = make_pooled(np.random.default_rng(1), 90)
    data = share_out(pooled, [30, 30, 30])
    job = Job(owners=tuple(data), run_id="r", dp=(1.0, 1e-5), schema=SCHEMA, double_masking=True)
    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    assert played.errors == {}
    recording = played.recording("coordinator")
    parts = [recording.messages(NoisySum, "received", name)[1].values for name in data]
    total = np.sum(parts, axis=0, dtype=np.uint64).view(np.int64)
    assert (np.abs(total) > 2**50).mean() > 0.9  # all parts together are still masked
    answers = {name: recording.messages(Unmasking, "received", name)[1] for name in data}
    assert np.abs(opened(total.view(np.uint64), nth(1), frozenset(data), answers).view(np.int64)).max() < 2**40


# --- what the statement says -----------------------------------------------------------------------------------------


def dp_statement(epsilon, delta, **changes):
    """Of three owners under dp, without a run."""
    job = Job(**{"owners": ("a", "b", "c"), "run_id": "r", "dp": (epsilon, delta), "schema": SCHEMA, **changes})
    privacy = {"epsilon": epsilon, "delta": delta, "accountant": "Gaussian DP"}
    return PROTOCOL.statement(job, {"privacy": privacy, "date": "2026-01-01T00:00:00+00:00"})


def test_noise_must_be_kept_secret_and_what_remains_is_said():
    """Told by two of three owners, epsilon 1 is 1.455; of two owners nothing would remain."""
    words = str(dp_statement(1.0, 1e-6)).replace("\n  ", " ")
    assert "at least 2 of 3 owners drew their noise and keep it secret" in words
    facts = dp_statement(1.0, 1e-6).to_dict()
    assert facts["one_owner_fewer"] == pytest.approx(1.455, abs=1e-3)
    assert f"If only 1 keep it secret, what remains is epsilon = {up(facts['one_owner_fewer'])}" in words
    alone = str(dp_statement(1.0, 1e-6, owners=("a", "b"))).replace("\n  ", " ")
    assert "If no owner keeps its noise secret, nothing is guaranteed" in alone


def test_a_statement_rounds_up_and_says_what_is_proved():
    """No epsilon is printed smaller than it is; the chance beyond, the best guess and the date are there."""
    found = dp_statement(1.0004, 1.0049e-6)
    words = str(found).replace("\n  ", " ")
    assert "epsilon = 1.0004 and delta = 1.0049e-6" in words
    assert "delta is not that chance" in words
    assert "right in at most 73.12 of 100 cases; blind guessing reaches 50" in words
    assert "2026-01-01T00:00:00+00:00" in words
    assert found.to_dict()["registry"]["loss"]["epsilon"] == 1.0004
    assert found.to_dict()["registry"]["model"] == "distributed"
    chance = float(re.search(r"as without it is at most ([0-9.e-]+):", words)[1])
    assert NormalDist().cdf(mu_for(1.0004, 1.0049e-6) / 2 - 1.0004 / mu_for(1.0004, 1.0049e-6)) < chance < 3e-4


@pytest.mark.parametrize(
    "phrase",
    ["Repeated trainings", "several rows", "rows at two owners", "stopped with an error", "how long anything took"],
)
def test_what_is_not_covered_is_named(phrase):
    """Each of them would make epsilon larger, or tell something beside it."""
    assert phrase in " ".join(dp_statement(1.0, 1e-5).not_covered)


def test_two_owners_under_dp_are_said_to_go_without_masks():
    """Where an owner coordinates another one, there is nobody to share masks with."""
    words = str(dp_statement(1.0, 1e-5, owners=("a", "b"), coordinator="a")).replace("\n  ", " ")
    assert "There was one owner beside a: its noisy parts came without masks." in words
