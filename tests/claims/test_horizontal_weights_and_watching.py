"""What horizontal.secure_sum says of weights, of rows that are watched and of draws of rows, held against messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.boosting import log_losses
from hedgerow.engine.ensemble import predictions_from
from hedgerow.engine.exact_sums import N_LIMBS, exact_limbs, nearest_above
from hedgerow.engine.rows import sampled_rows
from hedgerow.protocols.horizontal.secure_sum.messages import (
    CommonWeights,
    MaskedMetric,
    MaskedTotals,
    MaskedWeights,
    Start,
)
from hedgerow.protocols.horizontal.secure_sum.owner import sample_seed
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.testing.transcripts import play
from hedgerow.transport.transcripts import Recording
from twins.horizontal import job_for, make_pooled, share_out, vanishing_at

SIZES = [60, 50, 40, 30]


def make_run(around=None, **changes):
    """Four owners with weights, some of whose rows are watched."""
    pooled = make_pooled(np.random.default_rng(3), sum(SIZES))
    rng, data = np.random.default_rng(4), share_out(pooled, SIZES)
    data = {
        name: replace(each, weight=rng.random(len(each.labels)) + 0.1, validation=rng.random(len(each.labels)) < 0.3)
        for name, each in data.items()
    }
    job = job_for(data, **{"early_stopping_rounds": 3, "n_iterations": 6, **changes})
    played = play(PROTOCOL, job, data, around={"coordinator": Recording, "anna": Recording, **(around or {})})
    assert played.errors == {}
    return played, job, data


def words_of(job, model):
    """The statement on one line."""
    return " ".join(str(PROTOCOL.statement(job, model.meta)).split())


def test_the_total_weight_is_told_and_nobodys_own():
    """All learn the exact total; what an owner sends is under masks, and is not what it would be without."""
    played, job, data = make_run(class_weight="balanced")
    learned = {name: each.weight[~each.validation] for name, each in data.items()}
    heard = played.recording("anna")
    told = heard.messages(CommonWeights, "received")
    assert [len(each.totals) for each in told] == [2, 1]
    start = heard.messages(Start, "received")[0]
    assert start.total_weight == told[1].totals[0]
    assert start.class_totals.tolist() == told[0].totals.tolist()
    exact = nearest_above(sum(exact_limbs(weight) for weight in learned.values()))
    assert told[0].totals.sum() == pytest.approx(exact)
    seen = played.recording("coordinator").messages(MaskedWeights, "received")
    assert len(seen) == 2 * len(data)
    for message in seen:
        high = message.values >> np.uint64(32)
        assert np.count_nonzero(high) > 0.9 * len(high)  # digits are below 2**32, and masks are not
    words = words_of(job, played.results["coordinator"])
    assert "all parties learned the exact total weight of all owners' rows, and that of each class" in words
    assert "that of each class" not in words_of(*reversed_pair(make_run()))


def reversed_pair(run):
    """The job and the coordinator's model."""
    played, job, _ = run
    return job, played.results["coordinator"]


def test_one_exact_loss_per_iteration_is_what_the_coordinator_learns():
    """The opened number is the loss of all watched rows; one owner's word is masked; the model has the curve."""
    played, job, data = make_run()
    model = played.results["coordinator"]
    curve = model.meta["learning_curve"]["logloss"]
    sent = played.recording("coordinator").messages(MaskedMetric, "received")
    assert len(sent) == len(curve) * len(data)
    assert len({int(message.values[0]) for message in sent}) == len(sent)
    labels = np.concatenate([each.labels[each.validation] for each in data.values()])
    weight = np.concatenate([each.weight[each.validation] for each in data.values()])
    kept = model.n_iterations
    raw = np.concatenate([model.raw_scores(watched_table(each), n_iterations=kept) for each in data.values()])
    wanted = np.average(log_losses(labels, predictions_from("logistic", raw)), weights=weight)
    assert curve[kept - 1] == pytest.approx(wanted, rel=1e-9)
    words = words_of(job, model)
    assert "one number, the exact loss of all of them together" in words
    assert "the total weight of the rows that were watched" in words
    totals = played.recording("coordinator").messages(MaskedTotals, "received")
    opened = sum(message.values[-N_LIMBS:] for message in totals)
    assert nearest_above(opened.view(np.int64)) == pytest.approx(weight.sum())
    assert "stopped early" not in words_of(*reversed_pair(make_run(early_stopping_rounds=None)))


def watched_table(brought):
    """The rows of an owner that are watched."""
    columns = tuple(replace(c, values=c.values[brought.validation]) for c in brought.table.columns)
    return replace(brought.table, columns=columns, n_rows=int(brought.validation.sum()))


def test_losses_before_and_after_an_owner_is_gone_are_of_different_rows():
    """With one iteration between them their difference is about the lost owner's loss, which the statement says."""
    played, job, _ = make_run({"dora": vanishing_at(2, 0)}, min_owners=3, early_stopping_rounds=9, learning_rate=1e-6)
    model = played.results["coordinator"]
    curve = model.meta["learning_curve"]["logloss"]
    assert curve[1] - curve[2] > 0.05  # the same scores, and some rows fewer, over the weight of all
    words = words_of(job, model)
    assert "their difference tells about its rows, too" in words
    assert "their difference tells" not in words_of(*reversed_pair(make_run()))


def test_draws_of_rows_are_public():
    """Whoever knows the seed knows which rows of an owner are drawn, by their numbers there."""
    _, job, data = make_run(subsample=0.5)
    chosen = []
    for owner in range(len(data)):
        starts, stops, out = np.array([0]), np.array([1000]), np.empty(1000, np.uint32)
        seed = np.uint64(sample_seed(job.boosting.seed, owner))
        n_rows = sampled_rows(seed, np.uint64(0), np.uint64(2**63), starts, stops, np.array([0]), out)
        numbered = np.empty(1000, np.uint32)
        same = sampled_rows(
            np.uint64(job.boosting.seed),
            np.uint64(0),
            np.uint64(2**63),
            starts,
            stops,
            np.array([owner << 32]),
            numbered,
        )
        assert out[:n_rows].tolist() == numbered[:same].tolist()
        chosen.append(set(out[:n_rows].tolist()))
        assert 400 < n_rows < 600
    assert len(chosen[0] & chosen[1]) < 350
    assert "The draw is public" in words_of(job, make_run(subsample=0.5)[0].results["coordinator"])
