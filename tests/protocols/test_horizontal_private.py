"""horizontal.secure_sum with dp, and with private edges: noise in every sum, an event for each, nothing else leaves."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidInput, InvalidParameter, PeerLost, ProtocolError
from hedgerow.federation.federation import Federation
from hedgerow.ledger import reconcile
from hedgerow.privacy import events
from hedgerow.privacy.accountants import GaussianDP
from hedgerow.privacy.calibrate import share_of_sigma
from hedgerow.protocols.central.gaussian.rows import PrivateRows
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.messages import NoisyCells, NoisySum, Start, SumWanted
from hedgerow.protocols.horizontal.secure_sum.noisy_sums import COUNT_UNIT, NoisyGrid
from hedgerow.protocols.horizontal.secure_sum.private import read_request
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.runtime.checkpoint import Checkpoints
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import decode, encode, peek
from hedgerow.transport.transcripts import Recording
from twins.horizontal import document, make_pooled, pooled_model, share_out, vanishing_at
from twins.local_fit import fit_locally

BOUNDS = {"x0": (-4.0, 4.0), "x1": (-40.0, 40.0), "x2": (-400.0, 400.0), "few": (0.0, 2.0)}
LEVELS = {"kind": [f"level {letter}" for letter in "abcde"]}
HOW = {"bounds": BOUNDS, "levels": LEVELS, "integers": ["x1", "few"], "may_be_missing": True}
SCHEMA = Schema.from_public(**HOW, classes=[0, 1])
EPSILON, DELTA = 2.0, 1e-5


def make_owners(n_owners=3, n_rows=240, task="classification"):
    """Rows of a few owners, pooled and shared out."""
    pooled = make_pooled(np.random.default_rng(n_owners), n_rows, task=task)
    sizes = [n_rows // n_owners] * n_owners
    return pooled, share_out(pooled, sizes)


def private_job(data, **changes):
    """A dp job of these owners."""
    return Job(**{"owners": tuple(data), "run_id": "r", "dp": (EPSILON, DELTA), "schema": SCHEMA, **changes})


@pytest.fixture(scope="module")
def three():
    """A run of three owners, all of whose messages were recorded."""
    _, data = make_owners()
    around = dict.fromkeys(("coordinator", *data), Recording)
    return play(PROTOCOL, private_job(data), data, around=around), data


def accounted(ledger):
    """What the events of a ledger add up to."""
    accountant = GaussianDP()
    accountant.compose_all(events.from_dict(event) for event in ledger.events())
    return accountant


# --- dp ------------------------------------------------------------------------------------------------------------


def test_everybody_gets_the_same_model(three):
    """Owners and coordinator end with one model, and their books agree."""
    played, data = three
    assert played.errors == {}
    model = played.results["coordinator"]
    for name in data:
        assert document(played.results[name]) == document(model)
    reconcile({name: party.ledger for name, party in played.parties.items()})


def test_nothing_but_keys_and_noisy_sums_leaves_an_owner(three):
    """Under dp an owner sends its key, then noisy sums: no description of its table, no totals, no counts."""
    played, data = three
    for name in data:
        lines = played.parties[name].ledger.lines("disclosed")
        assert {line.message for line in lines} == {"horizontal.mask_key", "horizontal.noisy_sum"}
        assert [line.message for line in lines].count("horizontal.mask_key") == 1
        assert {line.peer for line in lines} == {"coordinator"}


def test_every_owners_ledger_has_the_events_that_were_accounted_for(three):
    """One event per noisy sum, the same at all owners; added up they are within what the model states."""
    played, data = three
    privacy = played.results["coordinator"].meta["privacy"]
    for name in data:
        ledger = played.parties[name].ledger
        noisy = [line for line in ledger.lines("disclosed") if line.message == "horizontal.noisy_sum"]
        assert all(line.event is not None for line in noisy)
        assert len(ledger.events()) == len(noisy) == privacy["releases"]
        assert ledger.events() == played.parties["anna"].ledger.events()
        assert 0.99 * EPSILON < accounted(ledger).epsilon(DELTA) <= EPSILON
    assert privacy["epsilon"] == EPSILON
    assert privacy["asked"] == [EPSILON, DELTA]
    assert not played.parties["coordinator"].ledger.events()


def exact_answers(played, pooled):
    """What each request asked for, without noise, on rows of all owners; scores follow the same updates."""
    rows = PrivateRows.read(pooled.table, pooled.labels, SCHEMA)
    answers = []
    for wanted in played.recording("anna").messages(SumWanted, "received"):
        if wanted.number >= 0:
            request = read_request("coordinator", wanted, len(SCHEMA.columns))
            answers.append((request, rows.answer(request)))
    return answers


def test_noise_is_in_every_sum_with_the_scale_that_was_promised(three):
    """Sum of all messages minus the exact sum: noise of l / (l - 1) times the variance the guarantee asks for."""
    played, data = three
    pooled, _ = make_owners()
    recording = played.recording("coordinator")
    sums = {name: recording.messages(NoisySum, "received", name) for name in data}
    scaled = []
    for number, (request, exact) in enumerate(exact_answers(played, pooled)):
        total = np.sum([sums[name][number].values for name in data], axis=0, dtype=np.uint64).view(np.int64)
        noise = total - exact
        assert noise.any()
        scaled.append(noise / request.sigma)
        for name in data:
            assert sums[name][number].sigma == share_of_sigma(request.sigma, 2)
    together = np.concatenate(scaled)
    assert len(together) > 2000
    # The standard deviation of n normal samples is within 4 / sqrt(2 n) of the true one, but for once in 10,000.
    assert np.std(together) == pytest.approx(math.sqrt(3 / 2), rel=4 / math.sqrt(2 * len(together)))
    assert abs(np.mean(together)) < 5 * math.sqrt(3 / 2) / math.sqrt(len(together))


def test_one_message_is_masked_beside_its_noise(three):
    """What the coordinator gets from one owner is no small number: masks cover sums and noise."""
    played, _ = three
    first = played.recording("coordinator").messages(NoisySum, "received", "ben")[1].values
    assert (np.abs(first.view(np.int64)) > 2**50).mean() > 0.9


def test_two_runs_differ():
    """The same rows, job and seed give other noise, so another model."""
    _, data = make_owners()
    models = [play(PROTOCOL, private_job(data), data).results["anna"] for _ in range(2)]
    assert document(models[0]) != document(models[1])


@pytest.mark.parametrize(
    ("n_owners", "honest", "coordinator", "counted"),
    [(2, None, "coordinator", 1), (4, None, "coordinator", 3), (4, 1, "coordinator", 1), (3, None, "ben", 2)],
)
def test_noise_is_shared_among_those_who_are_counted_on(n_owners, honest, coordinator, counted):
    """By default all but one; honest_owners=1 means the full noise from each. Two owners need no masks then."""
    _, data = make_owners(n_owners)
    job = private_job(data, honest_owners=honest, coordinator=coordinator)
    played = play(PROTOCOL, job, data, around={coordinator: Recording})
    assert played.errors == {}
    recording = played.recording(coordinator)
    wanted = recording.messages(SumWanted, "sent", "anna")[:-1]
    answers = recording.messages(NoisySum, "received", "anna")
    assert len(wanted) == len(answers) > 100
    for request, answer in zip(wanted, answers, strict=True):
        assert answer.sigma == share_of_sigma(request.sigma, counted)
    for event in played.parties["anna"].ledger.events():
        assert event["parties"] == counted
    privacy = played.results[coordinator].meta["privacy"]
    assert privacy["honest_owners_assumed"] == counted
    assert privacy["epsilon"] <= EPSILON
    words = str(PROTOCOL.statement(job, played.results[coordinator].meta))
    assert f"as long as at least {counted} of {n_owners} owners drew their noise and keep it secret" in words.replace(
        "\n  ", " "
    )


def test_labels_are_numbers():
    """Regression with public label bounds runs the same way."""
    pooled, data = make_owners(task="regression")
    schema = Schema.from_public(**HOW, label_bounds=(-6.0, 6.0))
    job = private_job(data, schema=schema, task="regression", boosting=BoostingParams(loss="squared"))
    played = play(PROTOCOL, job, data)
    assert played.errors == {}
    model = played.results["carla"]
    assert model.loss == "squared"
    assert model.raw_scores(pooled.table).shape[0] == pooled.n_rows
    assert accounted(played.parties["carla"].ledger).epsilon(DELTA) <= EPSILON


def test_with_plenty_of_rows_and_budget_the_model_learns():
    """Noise does not drown everything: the private model ranks made-up rows far better than chance."""
    pooled, data = make_owners(n_rows=6000)
    model = play(PROTOCOL, private_job(data, dp=(8.0, DELTA)), data).results["coordinator"]
    scores = model.raw_scores(pooled.table)[:, 0]
    ranks = np.argsort(np.argsort(scores))
    positive = pooled.labels == 1
    n_positive, n_negative = positive.sum(), (~positive).sum()
    area = (ranks[positive].sum() - n_positive * (n_positive - 1) / 2) / (n_positive * n_negative)
    assert area > 0.75


@pytest.mark.parametrize("coordinator", ["coordinator", "ben"])
def test_without_noise_it_is_the_recipe_on_pooled_rows(coordinator):
    """An infinite epsilon asks for no noise: the model is that of all rows in one place, bit for bit, and says so."""
    pooled, data = make_owners()
    job = private_job(data, dp=(math.inf, DELTA), coordinator=coordinator)
    played = play(PROTOCOL, job, data)
    assert played.errors == {}
    rows = PrivateRows.read(pooled.table, pooled.labels, SCHEMA)
    twin = fit_locally([rows], SCHEMA, epsilon=math.inf, delta=DELTA, random=SecureRandom(), seed=job.boosting.seed)
    for result in played.results.values():
        assert document(result) == document(twin.model)
    facts = PROTOCOL.statement(job, played.results[coordinator].meta).facts
    assert facts["stamp"] == "NOT PRIVATE"
    assert facts["model_is_private"] is False
    assert {event["kind"] for event in played.parties["anna"].ledger.events()} == {"non_private"}


class Greedy(Recording):
    """A coordinator that asks for less noise than the budget allows, and does not mind to get it."""

    def send(self, to, frame):
        """Ask for less."""
        if peek(frame)[0] == SumWanted.NAME:
            wanted = decode(frame, SumWanted)
            self.pretended = share_of_sigma(wanted.sigma, 2)
            frame = encode(replace(wanted, sigma=wanted.sigma / 1.5))
        super().send(to, frame)

    def recv(self, sender, timeout):
        """Believe that it was enough."""
        frame = super().recv(sender, timeout)
        if peek(frame)[0] == NoisySum.NAME:
            answer = decode(frame, NoisySum)
            frame = encode(replace(answer, sigma=self.pretended))
        return frame


def test_owners_keep_to_the_budget_of_the_job():
    """Each owner keeps its own account: once the job's budget is used up it answers nothing more."""
    _, data = make_owners()
    played = play(PROTOCOL, private_job(data), data, around={"coordinator": Greedy})
    assert played.results == {}
    refusals = [str(error) for error in played.errors.values() if isinstance(error, ProtocolError)]
    assert any("would go beyond epsilon = 2.0 at delta = 1e-05" in words for words in refusals)
    for name in data:
        ledger = played.parties[name].ledger
        assert len(ledger.events()) > 20
        assert 0.9 * EPSILON < accounted(ledger).epsilon(DELTA) <= EPSILON


class Lying(Recording):
    """A coordinator whose requests claim that one row moves the sums less than it does."""

    def send(self, to, frame):
        """Change the claim on its way out."""
        if peek(frame)[0] == SumWanted.NAME:
            frame = encode(replace(decode(frame, SumWanted), sensitivity_squared=1))
        super().send(to, frame)


def test_owners_check_what_a_request_claims():
    """A request that understates its sensitivity is refused by the owner, before it sends anything."""
    _, data = make_owners()
    played = play(PROTOCOL, private_job(data), data, around={"coordinator": Lying})
    assert isinstance(played.errors["anna"], ProtocolError)
    assert "horizontal.noisy_sum" not in {line.message for line in played.parties["anna"].ledger.lines("disclosed")}


@pytest.mark.parametrize("own_masks", [False, True])
def test_a_lost_owner_ends_the_run(own_masks):
    """Its noise would be missing from the sum: nobody gets a model, and the coordinator says whom it lost."""
    _, data = make_owners(4)

    class Leaving(Recording):
        def send(self, to, frame):
            from hedgerow.testing.transcripts import Vanished

            if len(self.messages(NoisySum, "sent")) == 5:
                raise Vanished
            super().send(to, frame)

    job = private_job(data, min_owners=2, double_masking=own_masks)
    played = play(PROTOCOL, job, data, around={"ben": Leaving}, checkpoints={"coordinator": Checkpoints()})
    assert played.results == {}
    assert {"coordinator", "anna", "carla", "dora"} <= set(played.errors)
    assert isinstance(played.errors["coordinator"], PeerLost)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda X: X.drop(columns="x1"), "ben.*x1"),
        (lambda X: X.assign(few="many"), None),
        (lambda X: X.assign(kind="level q"), None),
    ],
    ids=["lacks", "text", "level"],
)
def test_tables_that_contradict_the_schema(change, sentence):
    """A column that is not there is named, with its owner; what rows hold is no error."""
    schema = Schema.from_public(bounds=BOUNDS, levels=LEVELS, classes=[0, 1])
    rng = np.random.default_rng(1)
    data = {}
    for name in ("anna", "ben", "carla"):
        frame = pd.DataFrame({"x0": rng.normal(size=40), "x1": rng.normal(size=40), "x2": rng.normal(size=40)})
        frame["few"], frame["kind"] = rng.integers(0, 3, 40), rng.choice(LEVELS["kind"], 40)
        data[name] = (frame, rng.integers(0, 2, 40))
    data["ben"] = (change(data["ben"][0]), data["ben"][1])
    with nullcontext() if sentence is None else pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        Federation.horizontal(data).fit("horizontal.secure_sum", dp=(1.0, 1e-5), schema=schema)


def test_no_schema_no_dp():
    """`fit` refuses dp without public bounds in a sentence that says what to pass."""
    rng = np.random.default_rng(1)
    data = {name: (rng.normal(size=(30, 2)), rng.integers(0, 2, 30)) for name in ("a", "b", "c")}
    with pytest.raises(InvalidParameter, match=r"schema=Schema.from_public\(\.\.\.\)"):
        Federation.horizontal(data).fit("horizontal.secure_sum", dp=(1.0, 1e-5))


# --- quantiles="private" -------------------------------------------------------------------------------------------


def edges_job(data, **changes):
    """A job without dp whose edges come from a noisy histogram."""
    return Job(
        **{
            "owners": tuple(data),
            "run_id": "r",
            "schema": SCHEMA,
            "quantiles": "private",
            "quantile_epsilon": 1.0,
            "quantile_delta": 1e-6,
            "max_bins": 32,
            "boosting": BoostingParams(n_iterations=3, max_depth=3),
            **changes,
        }
    )


@pytest.mark.parametrize("coordinator", ["coordinator", "ben"])
def test_private_edges_lie_within_public_bounds(coordinator):
    """Edges are cells of the public grid, few enough for max_bins; the rest of the training is exact as ever."""
    pooled, data = make_owners(n_rows=900)
    job = edges_job(data, coordinator=coordinator)
    played = play(PROTOCOL, job, data)
    assert played.errors == {}
    model = played.results[coordinator]
    for feature in model.features:
        if feature.edges is None:
            continue
        low, high = BOUNDS[feature.name]
        assert ((feature.edges > low) & (feature.edges <= high)).all()
        assert feature.n_codes <= 32
        assert (np.diff(feature.edges) > 0).all()
    assert max(len(feature.edges) for feature in model.features if feature.edges is not None) >= 3
    assert document(model) == document(pooled_model(job, pooled, model))
    for name in data:
        assert document(played.results[name]) == document(model)


def test_private_edges_have_their_event():
    """One event in each owner's ledger, with the message that carries it; together they cost what the model says."""
    _, data = make_owners(n_rows=900)
    job = edges_job(data)
    played = play(PROTOCOL, job, data, around={"coordinator": Recording})
    spent = played.results["coordinator"].meta["edges_privacy"]
    assert 0.99 < spent["epsilon"] <= 1.0
    assert spent["delta"] == 1e-6
    for name in data:
        ledger = played.parties[name].ledger
        carrying = [line for line in ledger if line.event is not None]
        assert [line.message for line in carrying] == ["horizontal.noisy_cells"]
        assert accounted(ledger).epsilon(1e-6) == pytest.approx(spent["epsilon"], rel=1e-9)
        assert carrying[0].event["parties"] == 2
    words = str(PROTOCOL.statement(job, played.results["coordinator"].meta))
    assert "one noisy histogram per column over public bounds" in words
    assert "The model is not differentially private" in words


def test_private_edges_come_from_noisy_counts():
    """The cells that the coordinator adds up differ from the true ones by noise of the promised scale."""
    pooled, data = make_owners(n_rows=900)
    played = play(PROTOCOL, edges_job(data), data, around={"coordinator": Recording})
    recording = played.recording("coordinator")
    parts = {name: recording.messages(NoisyCells, "received", name)[0] for name in data}
    total = np.sum([part.values for part in parts.values()], axis=0, dtype=np.uint64).view(np.int64)
    sigma = parts["anna"].sigma
    assert {part.sigma for part in parts.values()} == {sigma}
    grid = NoisyGrid(edges_job(data), ["x0", "x1", "x2", "few"])
    exact = []
    for feature, column in zip(grid.features, pooled.columns, strict=False):
        present = column.values[~np.isnan(column.values)]
        exact.append(np.bincount(np.searchsorted(feature.edges, present, side="right"), minlength=feature.n_value_bins))
    noise = total - np.concatenate(exact) * COUNT_UNIT
    assert np.std(noise) == pytest.approx(sigma * math.sqrt(3), rel=4 / math.sqrt(2 * len(noise)))
    assert sigma == share_of_sigma(grid.sigma, 2)


def test_two_searches_agree_and_two_private_ones_do_not():
    """Exact counts give the same edges again; noisy ones do not."""
    _, data = make_owners(n_rows=600)

    def edges(**changes):
        played = play(PROTOCOL, edges_job(data, **changes), data, around={"anna": Recording})
        return played.recording("anna").messages(Start, "received")[0].edges.tolist()

    exact = {"quantiles": "search", "quantile_epsilon": None, "quantile_delta": None, "schema": None}
    assert edges(**exact) == edges(**exact)
    assert edges() != edges()


def test_a_numeric_column_without_bounds_is_named():
    """Private edges need bounds for every numeric column."""
    _, data = make_owners()
    schema = Schema.from_public(bounds={"x0": (-4.0, 4.0)}, classes=[0, 1])
    played = play(PROTOCOL, edges_job(data, schema=schema), data)
    assert any("no bounds for the numeric column 'x1'" in str(error) for error in played.errors.values())


def test_dropouts_after_private_edges():
    """Only dp ends with a loss; a training that merely bought its edges goes on."""
    _, data = make_owners(5, n_rows=500)
    played = play(PROTOCOL, edges_job(data, min_owners=3), data, around={"dora": vanishing_at(1, 1)})
    assert played.errors == {}
    assert played.results["coordinator"].meta["lost_owners"] == {"dora": 1}
