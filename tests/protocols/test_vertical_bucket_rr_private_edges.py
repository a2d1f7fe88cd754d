"""vertical.bucket_rr with edges="private": useful edges, a bucket for gaps always, and charged with what they cost."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.table import Column, Table
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.ledger import reconcile
from hedgerow.privacy.accountants import BasicComposition
from hedgerow.privacy.choices import MOST_CANDIDATES, exponential
from hedgerow.privacy.events import Composed, DiscreteLaplace, Exponential, NonPrivate, RandomisedResponse, from_dict
from hedgerow.privacy.mechanisms import discrete_laplace
from hedgerow.protocols.vertical.bucket_rr import private_edges as module
from hedgerow.protocols.vertical.bucket_rr.buckets import bucketing_of, codes_of, together
from hedgerow.protocols.vertical.bucket_rr.cache import BOOK
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.protocols.vertical.bucket_rr.messages import ColumnKinds
from hedgerow.protocols.vertical.bucket_rr.private_edges import Candidates, level_sensitivities, planned, private_edges
from hedgerow.protocols.vertical.bucket_rr.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.runtime.running import warm_up
from hedgerow.schema import NumericColumn, Schema
from hedgerow.testing.transcripts import play
from hedgerow.transport.transcripts import Recording
from twins.parties import asked

SCHEMA = Schema.from_public(levels={"region": ["east", "north", "south"]})


def seeded(number=0):
    """Secret numbers that are the same in every run."""
    return SecureRandom.from_seed(bytes([number]) * 32)


def edges_of(values, *, n_buckets=15, edges_epsilon=0.5, column=None, number=0):
    """The private edges of one column."""
    return private_edges(values, n_buckets, edges_epsilon, Candidates.of(column), seeded(number)).values


def occupancy(values, edges):
    """Values in each bucket, as a multiple of an even share."""
    present = values[~np.isnan(values)]
    counts = np.bincount(np.searchsorted(edges, present, side="right"), minlength=len(edges) + 1)
    return counts * (len(edges) + 1) / len(present)


# --- edges ----------------------------------------------------------------------------------------------------------


def made_up(kind, n_values):
    """Columns of several shapes."""
    rng = np.random.default_rng(5)
    return {
        "normal": lambda: rng.normal(size=n_values),
        "float32": lambda: rng.normal(size=n_values).astype(np.float32),
        "lognormal": lambda: rng.lognormal(3.0, 2.0, n_values),
        "integer": lambda: rng.poisson(1e4, n_values).astype(np.float64),
        "cauchy": lambda: rng.standard_cauchy(n_values),
        "half missing": lambda: np.where(rng.random(n_values) < 0.5, np.nan, rng.normal(size=n_values)),
    }[kind]()


@pytest.mark.parametrize("kind", ["normal", "float32", "lognormal", "integer", "cauchy", "half missing"])
def test_buckets_are_nearly_equally_full(kind):
    """100,000 values, edges_epsilon 0.5, no bounds: fifteen buckets, each within 6% of an even share."""
    values = made_up(kind, 100_000)
    edges = edges_of(values)
    assert len(edges) == 14
    assert np.abs(occupancy(values, edges) - 1.0).max() < 0.06


def test_more_epsilon_and_bounds_make_better_edges():
    """Of 3,000 values: with bounds or ten times the epsilon they are spread more evenly than without."""
    values = made_up("normal", 3000)
    bounds = NumericColumn("x", -5.0, 5.0)
    ways = {"plain": {}, "bounds": {"column": bounds}, "epsilon": {"edges_epsilon": 5.0}}
    found = {
        name: np.mean([occupancy(values, edges_of(values, number=k, **how)).std() for k in range(8)])
        for name, how in ways.items()
    }
    assert found["bounds"] < found["plain"]
    assert found["epsilon"] < 0.1 < found["plain"]


@pytest.mark.parametrize("zeros", [0.5, 0.9, 0.97])
def test_a_heavy_tie_gets_one_bucket_and_the_rest_most_of_the_others(zeros):
    """A column that is mostly zero: no edge is wasted around zero, the other values are still told apart."""
    rng = np.random.default_rng(3)
    values = np.where(rng.random(50_000) < zeros, 0.0, rng.lognormal(5.0, 1.0, 50_000))
    edges = edges_of(values)
    shares = occupancy(values, edges) / (len(edges) + 1)
    assert np.count_nonzero(edges <= values[values > 0].min()) <= 1
    assert shares[0] == pytest.approx(zeros, abs=0.03)
    assert len(edges) >= 6
    assert shares[1:].max() < 0.4 * (1 - zeros)


def test_few_distinct_values_get_a_bucket_each():
    """And hardly any other: what looks empty is joined to its neighbour."""
    values = np.random.default_rng(0).choice([-7.0, 0.0, 1.0, 2.5], 20_000)
    edges = edges_of(values)
    assert len(np.unique(np.searchsorted(edges, [-7.0, 0.0, 1.0, 2.5], side="right"))) == 4
    assert len(edges) <= 4
    assert len(edges_of(np.full(20_000, 3.0))) <= 1


@pytest.mark.parametrize("values", [[], [1.0], [math.nan] * 9, [math.inf, -math.inf, 0.0], [1e300, -1e300, -0.0]])
def test_any_column_gets_edges(values):
    """Also one that is tiny, empty or infinite; edges are finite and increase."""
    for number in range(5):
        edges = edges_of(np.array(values), number=number)
        assert np.isfinite(edges).all()
        assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("n_buckets", [2, 3, 7, 255])
def test_any_number_of_buckets(n_buckets):
    """Never more than asked for; all of them where there is enough to see."""
    edges = edges_of(made_up("normal", 200_000), n_buckets=n_buckets, edges_epsilon=4.0)
    assert len(edges) == n_buckets - 1


# --- candidates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        None,
        NumericColumn("x", 0.0, 1.0),
        NumericColumn("x", -3.0, 1000.0),
        NumericColumn("x", 1e6, 1e6 + 10.0),
        NumericColumn("x", 1e200, 1e300),
        NumericColumn("x", 0, 7, integer=True),
        NumericColumn("x", -(10**9), 10**12, integer=True),
    ],
    ids=str,
)
def test_candidates_are_in_order_and_values_between_them(column):
    """A value's cell is the number of candidates that are not above it; edges lie within the bounds."""
    candidates = Candidates.of(column)
    low, high = candidates.bounds
    assert 1 <= candidates.count <= MOST_CANDIDATES
    rng = np.random.default_rng(1)
    which = np.unique(np.append(rng.integers(1, candidates.count + 1, 500), [1, candidates.count]))
    numbers = candidates.numbers(which)
    assert (np.diff(numbers) > 0).all()
    assert low < numbers[0]
    assert numbers[-1] <= high
    assert candidates.cells(numbers).tolist() == which.tolist()
    assert candidates.cells(np.array([low, -math.inf, high, math.inf])).tolist() == [0, 0, *[candidates.count] * 2]
    if column is not None and column.integer:
        assert (numbers == np.floor(numbers)).all()
        values = rng.integers(int(low), int(high) + 1, 500).astype(np.float64)
    else:
        exponents = rng.uniform(-30, 30, 500) if column is None else 0.0
        values = rng.uniform(-1, 1, 500) * 2.0**exponents if column is None else rng.uniform(low, high, 500)
    cells = candidates.cells(values)
    inside = (cells > 0) & (cells < candidates.count)
    # To the nearest float32 number, where those are the candidates.
    at, after = candidates.numbers(cells[inside]), candidates.numbers(cells[inside] + 1)
    rounded = values[inside].astype(np.float32) if candidates.line.kind == "float32" else values[inside]
    assert ((at <= rounded) & (rounded < after)).all()


def test_candidates_do_not_depend_on_the_values_or_their_type():
    """Whole numbers are such by the schema only: whether all values are whole is a secret."""
    whole = np.arange(1000.0)
    assert not np.array_equal(edges_of(whole), np.floor(edges_of(whole)))
    edges = edges_of(whole, column=NumericColumn("x", 0, 2000, integer=True))
    assert np.array_equal(edges, np.floor(edges))
    assert edges_of(whole.astype(np.float32)).tolist() == edges_of(whole).tolist()


def test_few_whole_numbers_need_no_choice():
    """Where there are fewer candidates than cells, each is an edge, unless its cell looks empty."""
    values = np.random.default_rng(0).integers(0, 7, 20_000).astype(np.float64)
    assert edges_of(values, column=NumericColumn("x", 0, 6, integer=True)).tolist() == [1, 2, 3, 4, 5, 6]
    assert edges_of(values, column=NumericColumn("x", 0, 12, integer=True)).tolist() == [1, 2, 3, 4, 5, 6]


# --- what it costs --------------------------------------------------------------------------------------------------


def test_sensitivities_of_levels():
    """1 where all parts are halved; the two largest uneven cuts together elsewhere, never above 4/3."""
    assert level_sensitivities(8) == (1.0, 1.0, 1.0)
    assert level_sensitivities(6) == (1.0, pytest.approx(4 / 3), 1.0)
    assert level_sensitivities(30) == (1.0, pytest.approx(16 / 15), pytest.approx(15 / 14 + 1 / 14), 4 / 3 * 1.0, 1.0)
    for n_cells in range(2, 511):
        assert len(level_sensitivities(n_cells)) == math.ceil(math.log2(n_cells))
        assert 1.0 <= max(level_sensitivities(n_cells)) <= 4 / 3 + 1e-12


def total_of(*events):
    """What they cost one element or record, by the accountant of pure epsilons."""
    accountant = BasicComposition("replace_one")
    accountant.compose_all(events)
    return accountant.total


def test_the_event_is_what_ran(monkeypatch):
    """The plan, which is stated, equals the events of the mechanisms that were called; they use up edges_epsilon."""
    ran = []

    def listening(mechanism):
        def call(*arguments, **named):
            ran.append(mechanism(*arguments, **named))
            return ran[-1]

        return call

    monkeypatch.setattr(module, "exponential", listening(exponential))
    monkeypatch.setattr(module, "discrete_laplace", listening(discrete_laplace))
    for n_buckets, edges_epsilon in ((15, 0.5), (2, 1e-4), (255, 3.0)):
        ran.clear()
        released = private_edges(
            made_up("normal", 5000), n_buckets, edges_epsilon, Candidates.of(None), SecureRandom.from_seed(bytes(32))
        )
        assert Composed(tuple(release.event for release in ran)) == released.event == planned(n_buckets, edges_epsilon)
        assert edges_epsilon * (1 - 1e-9) < total_of(released.event) <= edges_epsilon


# --- runs -----------------------------------------------------------------------------------------------------------


def table_of(columns):
    """A table of named columns; a pair is codes and levels."""
    made = tuple(
        Column(name, *values) if isinstance(values, tuple) else Column(name, values) for name, values in columns.items()
    )
    return Table(made, len(made[0].values), tuple(columns), has_names=True)


def make_data(n_rows=4000, *, seed=0):
    """Bank has labels, shop numbers with gaps, mostly zeros and levels."""
    rng = np.random.default_rng(seed)
    income, basket = rng.normal(size=(2, n_rows))
    refunds = np.where(rng.random(n_rows) < 0.6, 0.0, rng.lognormal(size=n_rows))
    region = rng.integers(0, 3, n_rows)
    signal = income + np.sin(2 * basket) + (refunds > 1) + region % 2 + 0.3 * rng.normal(size=n_rows)
    shop = {
        "basket": np.where(rng.random(n_rows) < 0.1, np.nan, basket),
        "refunds": refunds.astype(np.float32),
        "region": (region.astype(np.int32), ("east", "north", "south")),
    }
    return {
        "bank": PartyData(table_of({"income": income}), (signal > np.median(signal)).astype(np.float64), (0, 1)),
        "shop": PartyData(table_of(shop)),
    }


def make_job(epsilon=4.0, **changes):
    """A small job with private edges."""
    fields = {"edges": "private", "schema": SCHEMA, "boosting": BoostingParams(n_iterations=6, max_depth=3)}
    return Job(("bank", "shop"), "bank", "a test", epsilon=epsilon, **{**fields, **changes})


@pytest.fixture
def always_the_same(monkeypatch):
    """Every party draws the same secret numbers in every test."""
    monkeypatch.setattr("hedgerow.runtime.party.SecureRandom", seeded)


def run(job, data):
    """All parties' parts, with the books of all compared."""
    played = play(PROTOCOL, job, data, around=dict.fromkeys(("bank", "shop"), Recording))
    assert played.errors == {}
    reconcile({name: party.ledger for name, party in played.parties.items()})
    return played


def scores_of(played, data):
    """Scores of the training rows."""
    bank, shop = played.results["bank"], played.results["shop"]
    answers = {"shop": shop.answers(shop.codes(shop.read(data["shop"].table, "shop")))}
    return bank.raw_scores(bank.codes(data["bank"].table), answers)[:, 0]


@pytest.mark.usefixtures("always_the_same")
def test_a_run_is_charged_with_buckets_and_edges():
    """The ledger's event is edges and randomised response of each column, and adds up to what is stated."""
    job, data = make_job(), make_data()
    played = run(job, data)
    (event,) = played.parties["shop"].ledger.events()
    basket, refunds, region = from_dict(event).parts()
    for column in (basket, refunds):
        kinds = [type(leaf) for leaf, _ in column.leaves()]
        assert kinds == [Exponential] * 5 + [DiscreteLaplace, RandomisedResponse]
        assert total_of(column) == pytest.approx(4.5, rel=1e-9)
    assert isinstance(region, RandomisedResponse)
    assert region.categories == 4
    stated = PROTOCOL.statement(job, played.results["bank"].meta)
    assert stated.facts["per_element"] == 4.5
    assert stated.facts["is_bound"]
    assert stated.facts["edges_epsilon"] == 0.5
    assert stated.facts["transfers"]["shop"]["per_record"] == 13.0
    assert total_of(from_dict(event)) == pytest.approx(13.0, rel=1e-9)
    assert total_of(from_dict(event)) <= 13.0
    for words in (
        "So one element has 4 + 0.5 = 4.5",
        "shop: epsilon = 4.5 for one element, 3 columns x 4 + 2 columns' edges x 0.5 = 13 for one record.",
    ):
        assert words in str(stated)
    meta = played.results["shop"].meta
    assert (meta["edges"], meta["edges_epsilon"], meta["history"]["is_bound"]) == ("private", 0.5, True)
    assert "4.5 for one element, and as often that" in str(PROTOCOL.statement(job, {}))
    assert np.corrcoef(scores_of(played, data), data["bank"].labels)[0, 1] > 0.5


@pytest.mark.usefixtures("always_the_same")
def test_columns_of_numbers_only_are_stated_plainly():
    """Columns x (epsilon + edges_epsilon)."""
    data = make_data()
    data["shop"] = PartyData(table_of({c.name: c.values for c in data["shop"].table.columns[:2]}))
    job = make_job(1.0, edges_epsilon=0.25, schema=None)
    stated = PROTOCOL.statement(job, run(job, data).results["bank"].meta)
    assert "shop: epsilon = 1.25 for one element, 2 columns x 1.25 = 2.5 for one record." in str(stated)


def test_every_column_has_a_bucket_for_missing_values():
    """Whether any is missing does not show, and no column is left out, however little there is in it."""
    data = make_data(300)
    columns = {"basket": np.arange(300.0), "gaps": np.where(np.arange(300) < 299, np.nan, 1.0), "still": np.ones(300)}
    data["shop"] = PartyData(table_of(columns))
    played = run(make_job(), data)
    (kinds,) = played.recording("bank").messages(ColumnKinds, "received", "shop")
    assert kinds.may_be_missing.tolist() == [True] * 3


def test_given_the_edges_one_value_decides_about_one_bucket():
    """The second factor of the proof: with the same edges a replaced value, or gap, moves its own bucket only."""
    values = made_up("normal", 2000)
    table = table_of({"x": values})
    bucketing = bucketing_of("shop", table, make_job(), random=seeded())
    before = codes_of("shop", table, bucketing)
    for new in (1e9, math.nan, -math.inf):
        moved = values.copy()
        moved[7] = new
        after = codes_of("shop", table_of({"x": moved}), bucketing)
        assert np.flatnonzero((before != after)[0]).tolist() in ([7], [])


@pytest.mark.usefixtures("always_the_same")
def test_without_noise_only_the_edges_are_private():
    """The stamp stays, the ledger names both, nothing is promised."""
    job = make_job(math.inf)
    played = run(job, make_data())
    (event,) = played.parties["shop"].ledger.events()
    kinds = {type(leaf) for leaf, _ in from_dict(event).leaves()}
    assert kinds == {Exponential, DiscreteLaplace, NonPrivate}
    stated = PROTOCOL.statement(job, played.results["bank"].meta)
    assert (stated.facts["stamp"], stated.facts["per_element"], stated.facts["is_bound"]) == ("NO NOISE", "inf", False)
    assert "Only the edges are private" in str(stated)


@pytest.mark.usefixtures("always_the_same")
def test_nearly_as_good_as_equal_frequency():
    """Scores go with the labels as well as with edges="quantile", but for little."""
    data = make_data(20_000)
    found = {}
    for edges in ("private", "quantile"):
        scores = scores_of(run(make_job(edges=edges, schema=SCHEMA), data), data)
        labels = data["bank"].labels == 1
        order = np.argsort(np.argsort(scores))
        n = labels.sum()
        found[edges] = (order[labels].sum() - n * (n - 1) / 2) / (n * (len(labels) - n))
    assert found["private"] > found["quantile"] - 0.01 > 0.8


# --- the cache ------------------------------------------------------------------------------------------------------


def lines_of(folder):
    """The shop's book."""
    return [json.loads(line) for line in (folder / "shop" / BOOK).read_text().splitlines()]


def test_edges_are_drawn_once_for_a_transfer(tmp_path):
    """A later run has the same edges and sends nothing; sending again draws and charges anew."""
    data, job = make_data(500), make_job(cache=str(tmp_path))
    first, second = run(job, data), run(job, data)
    assert second.results["shop"].features == first.results["shop"].features
    assert second.results["bank"].ensemble.trees == first.results["bank"].ensemble.trees
    assert second.parties["shop"].ledger.events() == []
    (line,) = lines_of(tmp_path)
    assert (line["per_element"], line["per_record"]) == (4.5, 13.0)
    assert first.parties["shop"].ledger.events() == [line["event"]]
    again = run(replace(job, transfer="again"), data)
    assert again.results["shop"].features != first.results["shop"].features
    history = again.results["shop"].meta["history"]
    assert history == {"transfers": 2, "others": 0, "per_element": 9.0, "per_record": 26.0, "is_bound": True}
    latest = run(job, data)
    assert latest.results["shop"].features == again.results["shop"].features


def test_another_edges_epsilon_is_another_transfer(tmp_path):
    """Neither party takes the one for the other."""
    data, job = make_data(500), make_job(cache=str(tmp_path))
    run(job, data)
    other = run(replace(job, edges_epsilon=1.0), data)
    assert len(lines_of(tmp_path)) == 2
    assert other.results["shop"].meta["history"]["per_record"] == 13.0 + 14.0
    settings = {line["settings"] for line in lines_of(tmp_path)}
    assert len(settings) == 2
    assert len(list((tmp_path / "bank").glob("shop.*.npz"))) == 2


# --- the job, and bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"edges_epsilon": 0}, "edges_epsilon must be a number between 0.0001 and 1e+06, got 0"),
        ({"edges_epsilon": -1.0}, "got -1.0"),
        ({"edges_epsilon": math.inf}, "got inf"),
        ({"edges_epsilon": math.nan}, "got nan"),
        ({"edges_epsilon": "1"}, "got '1'"),
        ({"edges_epsilon": True}, "got True"),
        ({"edges": "quantile", "edges_epsilon": 1.0}, "goes with edges='private' only, got 1.0"),
        ({"buckets": 2}, "at least 3 buckets"),
    ],
    ids=str,
)
def test_bad_parameters(changes, words):
    """Each is refused with its name and value."""
    with pytest.raises(InvalidParameter) as caught:
        make_job(**changes)
    assert words in str(caught.value)


def test_levels_come_from_the_schema_only():
    """Without an entry the run stops with an error that names party and column; with one they cost no more."""
    data = make_data(300)
    errors = play(PROTOCOL, make_job(schema=None), data).errors
    assert isinstance(errors["shop"], InvalidInput)
    assert "shop: column 'region' has levels, but no entry in the schema" in str(errors["shop"])
    numbers = Schema.from_public(levels={"few": [0, 1, 2]})
    found = bucketing_of("shop", table_of({"few": np.arange(9.0) % 4}), make_job(schema=numbers), random=seeded())
    assert found.categories.tolist() == [4]
    codes = codes_of("shop", table_of({"few": np.arange(9.0) % 4}), found)
    assert codes[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]  # a level that is not listed counts as missing
    with pytest.raises(InvalidParameter, match="3 levels and missing values, more than buckets=3"):
        bucketing_of("shop", data["shop"].table, make_job(buckets=3), random=seeded())
    bounds = Schema.from_public(bounds={"region": (0, 1)})
    assert not play(PROTOCOL, make_job(schema=bounds), data).errors  # text among numbers is mapped
    errors = play(PROTOCOL, make_job(schema=bounds, on_bad_rows="raise"), data).errors
    assert "shop: column 'region' is numeric in the model, but holds text here" in str(errors["shop"])
    with pytest.raises(InvalidParameter, match="random must be given"):
        bucketing_of("shop", data["shop"].table, make_job())


def test_bounds_of_the_schema_are_used():
    """Edges lie between them, under the column's name or with the party in front."""
    schema = Schema.from_public(bounds={"shop.x": (0, 1), "k": (0, 300)}, integers=["k"])
    rng = np.random.default_rng(0)
    table = table_of({"x": rng.normal(size=3000), "k": rng.poisson(100, 3000).astype(np.float64)})
    x, k = (f.edges for f in bucketing_of("shop", table, make_job(schema=schema), random=seeded()).features)
    assert x.min() > 0
    assert x.max() <= 1
    assert np.array_equal(k, np.floor(k))


def test_job_by_request_through_json_and_rehearsed():
    """The option is the protocol's, has a default, and comes back; a rehearsal keeps nothing and raises nothing."""
    options = {"epsilon": 4, "edges": "private"}
    request = (("bank", "shop"), "r", "classification", BoostingParams(max_depth=3), 256, options, "bank")
    job = asked(PROTOCOL, *request)
    assert job.edges_epsilon == 0.5
    given = asked(PROTOCOL, *request[:-2], {**options, "edges_epsilon": 2}, "bank")
    assert PROTOCOL.job.from_dict(json.loads(json.dumps(given.to_dict(), allow_nan=False))) == given
    warm_up(PROTOCOL, given)


def test_the_label_holder_keeps_the_same_event(tmp_path):
    """What the label holder writes down beside kept buckets is what the feature holder has in its book."""
    job = make_job(cache=str(tmp_path))
    run(job, make_data(500))
    (kept,) = (tmp_path / "bank").glob("shop.*.npz")
    with np.load(kept) as stored:
        about = json.loads(stored["about"].tobytes())
    assert about["event"] == lines_of(tmp_path)[0]["event"]
    assert together(job, (), ()) == Composed(())
