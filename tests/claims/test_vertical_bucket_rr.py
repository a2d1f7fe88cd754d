"""What vertical.bucket_rr claims and does not claim, put to the test on what a label holder really received."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest

from experiments.bucket_guesses import attack
from experiments.moved_edges import compare, neighbour
from hedgerow.attacks.results import at_least, at_most, share
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import read_table
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import RandomisedResponse, from_dict
from hedgerow.privacy.mechanisms import randomised_response
from hedgerow.protocols.vertical.bucket_rr import buckets
from hedgerow.protocols.vertical.bucket_rr.buckets import bucketing_of, codes_of, pack, unpack
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.protocols.vertical.bucket_rr.messages import Buckets, ColumnKinds
from hedgerow.protocols.vertical.bucket_rr.spec import SPEC as PROTOCOL
from hedgerow.protocols.vertical.common.messages import ReadyToTrain
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import peek
from hedgerow.transport.transcripts import Recording

N_ROWS, N_COLUMNS, N_BUCKETS = 6000, 8, 16
RISK = 1e-4
"""That one of the bounds below is wrong by bad luck; seeds are fixed, so it either never happens or always."""


# --- randomised response by itself ---------------------------------------------------------------------------------


def epsilon_between(answers, others, n_codes):
    """A lower bound on epsilon from answers to one code and answers to another, over all answers there are."""
    risk = RISK / (4 * n_codes)
    counts = [np.bincount(own, minlength=n_codes) for own in (answers, others)]
    bounds = [
        np.log(np.maximum(at_least(counts[a], len(one), risk), 1e-12)) - np.log(at_most(counts[b], len(other), risk))
        for (a, one), (b, other) in (((0, answers), (1, others)), ((1, others), (0, answers)))
    ]
    return float(np.max(bounds))


def keeps_too_often(codes, *, categories, epsilon, random):
    """A code that is to be exchanged is drawn from all codes, itself included: a mistake that is easily made."""
    lost = random.random(len(codes)) >= math.exp(epsilon) / (math.exp(epsilon) + categories - 1)
    return np.where(lost, random.integers(0, categories, len(codes)), codes)


def honest(codes, **settings):
    """The library's own."""
    return randomised_response(codes, **settings).values


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_answers_to_two_codes_differ_by_e_to_the_epsilon_and_no_more(epsilon):
    """The bound comes close to epsilon, and is not above it; a twin that keeps codes too often is caught."""
    rng = np.random.default_rng(int(epsilon))
    n = 400_000
    found = {}
    for name, mechanism in (("honest", honest), ("broken", keeps_too_often)):
        answers, others = (
            mechanism(np.full(n, code), categories=N_BUCKETS, epsilon=epsilon, random=rng) for code in (3, 11)
        )
        found[name] = epsilon_between(answers, others, N_BUCKETS)
    assert epsilon - 0.15 < found["honest"] <= epsilon
    assert found["broken"] > epsilon


def test_a_fifth_is_exchanged_at_epsilon_4():
    """Of sixteen buckets: 21.55% of the elements move, as the paper's parameters ask."""
    codes = np.random.default_rng(1).integers(0, N_BUCKETS, 400_000)
    moved = (honest(codes, categories=N_BUCKETS, epsilon=4.0, random=np.random.default_rng(2)) != codes).mean()
    assert moved == pytest.approx(0.2155, abs=0.003)


# --- what the label holder has --------------------------------------------------------------------------------------


def make_table(loading, seed=0):
    """Columns of a shop that follow one latent factor, between public bounds."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(N_ROWS, 1))
    values = loading * factor + math.sqrt(1.0 - loading**2) * rng.normal(size=(N_ROWS, N_COLUMNS))
    return pd.DataFrame(np.clip(values, -3.0, 3.0), columns=[f"c{j}" for j in range(N_COLUMNS)])


class Run:
    """A run of bank and shop, and what passed between them."""

    def __init__(self, table, epsilon=2.0, edges="public"):
        schema = Schema.from_public(bounds=dict.fromkeys(table.columns, (-3.0, 3.0)))
        self.job = Job(
            ("bank", "shop"),
            "bank",
            "r",
            boosting=BoostingParams(n_iterations=2, max_depth=3, loss="logistic"),
            epsilon=epsilon,
            buckets=N_BUCKETS,
            edges=edges,
            schema=schema if edges == "public" else None,
        )
        self.table = read_table(table)
        labels = (table.sum(axis=1) > 0).to_numpy(np.float64)
        own = read_table(pd.DataFrame({"own": np.random.default_rng(9).normal(size=len(table))}))
        data = {"bank": PartyData(own, labels, (0, 1)), "shop": PartyData(self.table)}
        with pytest.MonkeyPatch.context() as patch:  # the same noise every time
            patch.setattr("hedgerow.runtime.party.SecureRandom", lambda: SecureRandom.from_seed(bytes(32)))
            self.played = play(PROTOCOL, self.job, data, around={"bank": Recording, "shop": Recording})
        assert self.played.errors == {}
        bucketing = bucketing_of("shop", self.table, self.job)
        self.truth = codes_of("shop", self.table, bucketing)
        self.kinds = self.played.recording("bank").messages(ColumnKinds, "received", "shop")[0]
        self.categories = self.kinds.n_values.astype(np.int64) + self.kinds.may_be_missing

    @property
    def received(self):
        """The buckets [columns, rows], from the bank's frames alone."""
        (message,) = self.played.recording("bank").messages(Buckets, "received", "shop")
        out = np.empty((len(self.categories), self.table.n_rows), np.uint8)
        unpack(message.packed, self.categories, out)
        return out


@pytest.fixture(scope="module")
def correlated():
    """A run on columns that go together."""
    return Run(make_table(0.95))


def test_what_is_received_is_what_randomised_response_gave(monkeypatch):
    """Nothing but the noisy codes travels: the received buckets are the mechanism's answers, to the last one."""
    given = []

    def remember(*arguments):
        given.append(randomise(*arguments))
        return given[-1]

    randomise = buckets.randomise
    monkeypatch.setattr(buckets, "randomise", remember)
    run = Run(make_table(0.5))
    (noised,) = given
    assert (run.received == noised.values).all()
    assert (run.received != run.truth).any(axis=1).all()


def test_the_shop_sends_noisy_buckets_and_sizes_only(correlated):
    """Three messages; true buckets and values are in none of them."""
    sent = [passed.frame for passed in correlated.played.recording("shop").passed if passed.direction == "sent"]
    assert [peek(frame)[0] for frame in sent] == [ReadyToTrain.NAME, ColumnKinds.NAME, Buckets.NAME]
    assert sum(map(len, sent)) < N_ROWS * N_COLUMNS // 2 + 2000  # half a byte for each element
    everything = b"".join(sent)
    for column, true in zip(correlated.table.columns, correlated.truth, strict=True):
        packed = pack(true[None, :], np.array([N_BUCKETS])).tobytes()
        assert not any(packed[k : k + 16] in everything for k in range(0, len(packed) - 16, 16))
        values = np.ascontiguousarray(column.values)
        assert not any(value.tobytes() in everything for value in values[:200])


def test_answers_in_a_run_keep_to_epsilon(correlated):
    """Rows of one true bucket against rows of another, all columns: as the claim says, and not by far less."""
    truth, received = correlated.truth.reshape(-1), correlated.received.reshape(-1)
    low, high = (received[truth == code] for code in (6, 9))
    assert 1.5 < epsilon_between(low, high, N_BUCKETS) <= correlated.job.epsilon
    stays = math.exp(2) / (math.exp(2) + N_BUCKETS - 1)
    kept = share(int((truth == received).sum()), len(truth), 1.0 - RISK)
    assert kept.low < stays < kept.high


def test_a_run_whose_noise_is_too_weak_is_caught(monkeypatch):
    """A feature holder that draws exchanged codes from all of them: its answers refute the claim."""

    def broken(codes, categories, epsilon, random):
        released = randomise(codes, categories, epsilon, random)
        rng = np.random.default_rng(0)
        draw = partial(keeps_too_often, categories=N_BUCKETS, epsilon=epsilon, random=rng)
        return released._replace(values=draw(codes.reshape(-1)).reshape(codes.shape).astype(np.uint8))

    randomise = buckets.randomise
    monkeypatch.setattr(buckets, "randomise", broken)
    run = Run(make_table(0.0), epsilon=1.0)
    truth, received = run.truth.reshape(-1), run.received.reshape(-1)
    kept = share(int((truth == received).sum()), len(truth), 1.0 - RISK)
    assert kept.low > math.exp(1) / (math.exp(1) + N_BUCKETS - 1)
    assert epsilon_between(received[truth == 7], received[truth == 8], N_BUCKETS) > 1.0


def test_the_ledger_has_the_event_of_every_column(correlated):
    """What was sent with noise stands in the shop's ledger with its epsilon, once per column."""
    lines = [line for line in correlated.played.parties["shop"].ledger if line.message == Buckets.NAME]
    (line,) = lines
    events = [event for event, _ in from_dict(line.event).leaves()]
    assert events == [RandomisedResponse(N_BUCKETS, 2.0)] * N_COLUMNS


# --- D3: columns together --------------------------------------------------------------------------------------------


def test_all_columns_tell_about_one(correlated):
    """What the bank received is enough to guess buckets beyond the epsilon of one element, within that of a record."""
    run = correlated
    results = attack(run.received, run.categories.tolist(), run.job.epsilon, run.truth, n_rounds=80)
    for result in results:
        assert result.own.accuracy.low <= result.ceiling_of_element
        assert result.all.accuracy.low > result.own.accuracy.high
        assert result.all.correlation > result.own.correlation + 0.2
        assert result.all.accuracy.high <= result.ceiling_of_record
        assert result.all.surest > result.ceiling_of_element
    facts = PROTOCOL.statement(run.job, run.played.results["bank"].ensemble.meta).facts
    assert facts["transfers"]["shop"]["per_record"] == N_COLUMNS * run.job.epsilon


def test_columns_that_do_not_go_together_keep_their_own_epsilon():
    """The same run on independent columns: the others add nothing to a column's own answer."""
    run = Run(make_table(0.0))
    for result in attack(run.received, run.categories.tolist(), run.job.epsilon, run.truth, n_rounds=80):
        assert result.all.accuracy.low <= result.ceiling_of_element
        assert result.all.correlation < result.own.correlation + 0.02
        assert not result.verdict().startswith("ALARM")


# --- D2: edges from the rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("edges", "changed"), [("public", 1), ("quantile", N_BUCKETS)])
def test_one_value_costs_what_the_statement_says(edges, changed):
    """Epsilon of one element in the statement is the likelihood ratio that one moved value reaches."""
    values = np.random.default_rng(3).permutation(np.linspace(-2.9, 1.9, 960))
    schema = Schema.from_public(bounds={"c": (-3.0, 3.0)})
    job = Job(("bank", "shop"), "bank", "r", epsilon=2.0, buckets=N_BUCKETS, edges=edges, schema=schema)
    codes = []
    for column in (values, neighbour(values)):
        table = read_table(pd.DataFrame({"c": column}))
        codes.append(codes_of("shop", table, bucketing_of("shop", table, job))[0])
    result = compare(*codes, N_BUCKETS, 2.0)
    facts = PROTOCOL.statement(job, {}).facts
    assert result.changed == changed
    assert result.epsilon_of_element == facts["per_element"]
    assert result.refutes != facts["is_bound"]


def test_with_quantile_edges_a_new_value_shows_in_the_number_of_buckets():
    """Where values are few each has a bucket: one that nobody else has is announced, whatever epsilon is."""
    table = pd.DataFrame({"c": np.repeat(np.arange(10.0), 60) / 10.0})
    moved = table.copy()
    moved.loc[0, "c"] = 0.55
    assert [Run(own, edges="quantile", epsilon=0.1).categories.tolist() for own in (table, moved)] == [[10], [11]]
    assert [Run(own, epsilon=0.1).categories.tolist() for own in (table, moved)] == [[16], [16]]


@pytest.mark.parametrize(
    ("column", "way_out"),
    [
        ([1.0, 2.0, 3.0], "bounds={'c': (low, high)}), or must be chosen with noise: edges='private'"),
        (["a", "b", "a"], "levels={'c': [...]})"),
    ],
)
def test_an_error_recommends_no_edges_whose_guarantee_is_false(column, way_out):
    """A column without public buckets: the way out is a schema, or private edges for numbers, never quantiles."""
    job = Job(("bank", "shop"), "bank", "r", epsilon=2.0, schema=Schema.from_public(bounds={"other": (0.0, 1.0)}))
    with pytest.raises(InvalidParameter) as refused:
        bucketing_of("shop", read_table(pd.DataFrame({"c": column})), job)
    assert str(refused.value).endswith(f"its buckets must be public: schema=Schema.from_public({way_out}")
    assert "quantile" not in str(refused.value)
