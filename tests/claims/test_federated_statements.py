"""What statements of protocols between holders of columns say in words is what accountants prove, rounded up."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from hedgerow import Federation, Schema
from hedgerow.engine.losses import BoostingParams
from hedgerow.federation.run import Run
from hedgerow.privacy.calibrate import rho_for
from hedgerow.privacy.curves import zcdp_delta
from hedgerow.privacy.events import PRACTICALLY_NONE
from hedgerow.runtime.protocol import find, names, services
from hedgerow.statement import Statement
from policy.who_learns_what import EXAMPLES
from twins.parties import asked

PARTIES = ("anna", "ben", "carla")
SCHEMA = Schema.from_public(bounds={"age": (0, 120)}, classes=[0, 1])
VERTICAL = [name for name in (*names(), *services()) if name.startswith("vertical.")]


def stated(protocol, meta=None, **options):
    """The statement of a job, and its words in one line."""
    boosting = BoostingParams(min_child_weight=0.0, max_depth=3, l2=10.0)
    chosen = find(protocol)
    job = asked(chosen, PARTIES, "a run", "classification", boosting, 64, options, "anna")
    found = chosen.statement(job, meta or {})
    return found, " ".join(str(found).split())


def gaussian_delta(mu, epsilon):
    """The curve of Gaussian noise, by its formula."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def random_amounts(n=12):
    """Epsilons with many digits, deltas too."""
    rng = np.random.default_rng(3)
    return [
        (float(e), float(d)) for e, d in zip(np.exp(rng.uniform(-2, 2, n)), 10 ** rng.uniform(-8, -4, n), strict=True)
    ]


def printed(words):
    """All (epsilon, delta) that stand in words."""
    return [(float(e), float(d)) for e, d in re.findall(r"epsilon = ([\d.e-]+) and delta = ([\d.e-]+?)[,.)]* ", words)]


AMOUNTS = random_amounts()


@pytest.mark.parametrize(("epsilon", "delta"), [*AMOUNTS, (1.0004, 1.0049e-6)])
@pytest.mark.parametrize("reveal", ["winner", "histogram"])
def test_epsilons_and_deltas_of_private_histograms_are_rounded_up(epsilon, delta, reveal):
    """Whatever is printed is not below what the job asks for, and not far above."""
    privacy = {"epsilon": epsilon, "delta": delta, "accountant": "zCDP"}
    _, words = stated(
        "vertical.private_histograms", {"privacy": privacy}, epsilon=epsilon, delta=delta, schema=SCHEMA, reveal=reveal
    )
    assert len(printed(words)) == 2
    for told_epsilon, told_delta in printed(words):
        assert epsilon <= told_epsilon <= epsilon * 1.0001
        assert delta <= told_delta <= delta * 1.0001
    factor, plus = re.search(
        r"at most ([\d.]+|e\^[\d.]+) times as large with the row as without it, plus (\S+);", words
    ).groups()
    assert float(factor) >= math.exp(epsilon)
    assert float(plus) >= delta


@pytest.mark.parametrize(("epsilon", "delta"), AMOUNTS[:6])
def test_guessing_a_value_is_as_easy_as_replace_one_allows(epsilon, delta):
    """Twice the mu of Gaussian noise, or four times the rho, solved here by other means: not less, not much more."""
    mu = brentq(lambda x: gaussian_delta(x, epsilon) - delta, 1e-4, 20)
    exact = brentq(lambda x: gaussian_delta(2 * mu, x) - delta, 0, 200)
    how = {"epsilon": epsilon, "delta": delta, "schema": SCHEMA}
    privacy = {"epsilon": epsilon, "delta": delta, "accountant": "Gaussian DP"}
    found, words = stated("vertical.private_histograms", {"privacy": privacy}, **how, reveal="histogram")
    told = float(re.search(r"for that it is epsilon = ([\d.]+) at the same delta", words).group(1))
    assert exact * (1 - 1e-6) <= told <= exact * 1.001
    assert found.facts["epsilon_replace_one"] <= told
    assert told > epsilon
    _, words = stated("vertical.private_histograms", {"privacy": privacy}, **how)
    told = float(re.search(r"for that it is epsilon = ([\d.]+) at the same delta", words).group(1))
    assert zcdp_delta(4 * rho_for(epsilon, delta), told) <= delta
    assert zcdp_delta(4 * rho_for(epsilon, delta), told * 0.99) > delta


def test_the_dealer_is_named_as_unprotected_against():
    """By its name: in the guarantee, and in what is assumed of it."""
    privacy = {"epsilon": 1.0, "delta": 1e-6, "accountant": "zCDP"}
    for policy in ("grown_trees", "smooth_then_trees"):
        boosting = {} if policy == "grown_trees" else {"policy": policy}
        protocol = find("vertical.private_histograms")
        own = {"epsilon": 1.0, "schema": SCHEMA, "dealer": "notary", **boosting}
        trees = BoostingParams(n_iterations=60, max_depth=3, learning_rate=0.3, l2=10.0, min_child_weight=0.0)
        job = asked(protocol, PARTIES, "a run", "classification", trees, 64, own, "anna")
        found = protocol.statement(job, {"privacy": privacy})
        assert "everybody who gets the model, but not towards notary, who knows the noise" in found.guarantee[0]
        assert any("notary draws the noise and knows it" in sentence for sentence in found.assumed_of_parties)
        assert "Opened to all but notary" in " ".join(str(found).split())


@pytest.mark.parametrize(("epsilon", "delta"), [*AMOUNTS[:6], (1.0004, 1.0049e-6)])
def test_labels_under_noised_gradients(epsilon, delta):
    """Amounts rounded up; the printed chance of exceptions is not below that of the noise itself."""
    mu = brentq(lambda x: gaussian_delta(x, epsilon) - delta, 1e-4, 20)
    privacy = {"epsilon": epsilon, "delta": delta, "mu": mu, "accountant": "Gaussian DP", "releases": 1}
    found, words = stated("vertical.noised_gradients", {"privacy": privacy}, epsilon=epsilon, delta=delta)
    ((told_epsilon, told_delta),) = printed(words)
    assert epsilon <= told_epsilon <= epsilon * 1.0001
    assert delta <= told_delta <= delta * 1.0001
    beyond = float(re.search(r"with another is at most (\S+): delta is not that chance", words).group(1))
    assert beyond >= norm.cdf(mu / 2 - epsilon / mu) > delta
    guess = float(re.search(r"is right in at most ([\d.]+) of 100 cases; blind guessing reaches 50", words).group(1))
    assert guess >= 100 * (1 - (1 - delta) / (1 + math.exp(epsilon)))
    assert found.registry.loss["epsilon"] == epsilon
    assert "row" not in found.guarantee[1]  # nothing is said of a row that is there or not


@pytest.mark.parametrize("columns", [1, 2, 11])
@pytest.mark.parametrize("epsilon", [0.3, 1.00004, 4.0])
def test_buckets_say_what_epsilon_means_for_a_person(epsilon, columns):
    """4 for one element is 44 for a record of 11 columns, which is practically no protection; little is not."""
    total = columns * epsilon
    history = {"transfers": 1, "others": 0, "per_element": epsilon, "per_record": total, "is_bound": True}
    own = {
        "columns": columns,
        "columns_with_levels": 0,
        "per_element": epsilon,
        "per_record": total,
        "history": history,
    }
    found, words = stated(
        "vertical.bucket_rr", {"transfers": {"ben": own, "carla": own}}, epsilon=epsilon, schema=SCHEMA
    )
    element, each, record = re.search(
        r"ben: epsilon = (\S+) for one element, \d+ columns x (\S+) = (\S+) for one record", words
    ).groups()
    assert epsilon <= float(element) <= epsilon * 1.0001
    assert element == each
    assert total <= float(record) <= total * 1.0001
    assert ("practically no protection" in words) == (total >= math.log(99))
    if total >= math.log(99):
        guess = float(re.search(r"is right in up to ([\d.]+) of 100 cases", words).group(1))
        assert guess >= 100 / (1 + math.exp(-total)) * (1 - 1e-12)
        assert 100 / (1 + math.exp(-PRACTICALLY_NONE)) >= 99 - 1e-9
        assert "From epsilon = 4.6 on it is 99 of 100 or more" in words
    guess = float(re.search(r"an element has, is right in at most ([\d.]+) of 100", words).group(1))
    assert guess >= 100 / (1 + math.exp(-epsilon))
    assert found.registry.loss["epsilon"] == epsilon


def test_quantile_edges_claim_no_bound():
    """No sentence gives a bound that the edges break, and the registry has none."""
    found, words = stated("vertical.bucket_rr", epsilon=4.0, edges="quantile")
    assert "NO BOUND is claimed" in words
    assert "is right in at most" not in words
    assert found.registry.flavour == "none"


@pytest.mark.parametrize("name", VERTICAL)
def test_statements_have_the_order_and_the_gaps_of_all(name):
    """Sections in their order; lies, errors and aborts are named; whoever claims an epsilon names repeated runs."""
    protocol = find(name)
    for example in EXAMPLES[name]:
        boosting = BoostingParams()
        request = (example.parties, "example", "classification", boosting, 256, example.options, example.parties[0])
        found = protocol.statement(example.job or asked(protocol, *request), example.meta)
        assert isinstance(found, Statement)
        words = str(found)
        titles = ["What is guaranteed", "What is assumed of the parties", "What is assumed of the data", "Not covered:"]
        places = [words.index(title) for title in titles if title in words]
        assert places == sorted(places)
        assert len(places) >= 3
        gaps = " ".join(found.not_covered)
        assert "from an error, from a run that is broken off, or from how long something takes" in gaps
        assert "lies" in gaps
        json.dumps(found.to_dict(), allow_nan=False)
        if found.registry is not None and found.registry.flavour != "none":
            assert re.search("repeated|again", gaps)
            assert set(found.registry.to_dict()) == {"flavour", "loss", "unit", "model", "accounting", "implementation"}
            assert re.search(r"epsilon = [\d.]+", found.guarantee[0])
            assert name == "vertical.scoring" or "several rows of one person" in gaps
        else:
            assert "is right in at most" not in words


@pytest.fixture(scope="module")
def matched():
    """A run over rows that were matched by ids."""
    rng = np.random.default_rng(0)
    bank = pd.DataFrame({"id": np.arange(60), "x": rng.normal(size=60)})
    shop = pd.DataFrame({"id": np.arange(10, 70), "z": rng.normal(size=60)})
    fed = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", bank["x"] > 0), id="id")
    schema = Schema.from_public(bounds={"x": (-3, 3), "z": (-3, 3)})
    return fed.fit("vertical.bucket_rr", epsilon=2.0, schema=schema, n_estimators=1, max_depth=1)


def test_matching_by_ids_is_in_the_statement_of_the_run(matched):
    """Who learned what from matching, and what it does not cover."""
    found = matched.statement()
    words = " ".join(str(found).split())
    assert "rows were matched by ids" in words
    assert "50 ids are common to all (bank 60, shop 60)." in words
    assert found.facts["aligning"]["n_common"] == 50
    assert any("it can test for ids of its choice" in gap for gap in found.not_covered)


def test_runs_are_dated_and_keep_their_date(matched, tmp_path):
    """Saved and read again; runs that were saved without a date can still be read."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", matched.finished)
    assert matched.finished in str(matched.statement())
    matched.save(tmp_path / "run")
    again = Run.load(tmp_path / "run")
    assert (again.finished, str(again.statement())) == (matched.finished, str(matched.statement()))
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["statement"]["date"] == matched.finished
    del about["finished"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(about))
    assert Run.load(tmp_path / "run").finished is None
