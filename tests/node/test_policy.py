"""What a party's policy refuses: every rule with its code and its sentence."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.node.budgets import Budgets
from hedgerow.node.party_file import Limits, Policy
from hedgerow.node.policy import LEAKING, Asked, RefusalCode, refusals
from hedgerow.privacy import budget_file
from hedgerow.privacy.events import Composed, Exponential, Gaussian, Laplace, NonPrivate, RandomisedResponse
from hedgerow.runtime import protocol as registry
from hedgerow.runtime.budgets import epsilon_of
from hedgerow.runtime.protocol import Planned

ASKED = Asked("ab12", "vertical.secret_shared", ("shop",), "customers", ("age", "income"), 500, 300)
COST = replace(ASKED, planned=Planned(Exponential(1.0, 0.5)))
NO_GUARANTEE = replace(ASKED, planned=Planned(NonPrivate("without noise")))


def codes(policy, asked, **known):
    """The codes of all refusals."""
    return [refusal.code for refusal in refusals(policy, asked, **known)]


def test_the_default_policy_takes_what_holds_what_it_says():
    """Every protocol but the two that leak, with everybody, on all columns, also without noise."""
    for name in (*registry.names(), *registry.services()):
        found = codes(Policy(), replace(NO_GUARANTEE, protocol=name))
        assert found == ([RefusalCode.PROTOCOL] if name in LEAKING else [])


def test_those_that_leak_are_those_that_were_published():
    """The list of protocols that must be named is that of the folder of published ones."""
    assert {name for name, folder in registry._TRAINING.items() if folder.startswith("published.")} == LEAKING
    assert codes(Policy(protocols=("vertical.mp_fedxgb",)), replace(ASKED, protocol="vertical.mp_fedxgb")) == []


FEW = Policy(columns={"customers": ("age",), "others": ("income",)})
RULES = [
    (
        Policy(protocols=("vertical.bucket_rr", "vertical.aligning")),
        ASKED,
        RefusalCode.PROTOCOL,
        "[policy] protocols does not list 'vertical.secret_shared'; it lists vertical.bucket_rr, vertical.aligning",
    ),
    (
        Policy(protocols=()),
        ASKED,
        RefusalCode.PROTOCOL,
        "[policy] protocols does not list 'vertical.secret_shared'; it lists none",
    ),
    (
        Policy(),
        replace(ASKED, protocol="vertical.masked_gradients"),
        RefusalCode.PROTOCOL,
        (
            "vertical.masked_gradients is run as published, and leaks: it takes part only in policies that list it in "
            "protocols"
        ),
    ),
    (
        Policy(),
        replace(ASKED, protocol="vertical.best"),
        RefusalCode.PROTOCOL,
        "there is no protocol 'vertical.best' here",
    ),
    (
        Policy(peers=("shop",)),
        replace(ASKED, peers=("shop", "club", "pub")),
        RefusalCode.PEER,
        "[policy] peers does not list 'club', 'pub'",
    ),
    (
        Policy(),
        replace(ASKED, dataset=None),
        RefusalCode.DATASET,
        "columns are asked for ('age', 'income'), but of no dataset",
    ),
    (
        FEW,
        ASKED,
        RefusalCode.COLUMN,
        "[policy.columns] does not let 'income' of 'customers' take part; a column that is not listed never does",
    ),
    (
        FEW,
        replace(ASKED, dataset="third", columns=tuple("abcdefg")),
        RefusalCode.COLUMN,
        (
            "[policy.columns] does not let 'a', 'b', 'c', 'd', 'e' and 2 more of 'third' take part; a column that is "
            "not listed never does"
        ),
    ),
    (
        Policy(minimum_rows=501),
        ASKED,
        RefusalCode.TOO_FEW_ROWS,
        "'customers' has 500 rows, [policy] minimum_rows is 501",
    ),
    (
        Policy(minimum_matched=301),
        ASKED,
        RefusalCode.TOO_FEW_MATCHED,
        "300 rows match, [policy] minimum_matched is 301",
    ),
    (
        Policy(epsilon_per_run=0.25),
        COST,
        RefusalCode.EPSILON,
        "the run would cost epsilon 0.5 at delta 0, [policy] epsilon_per_run is 0.25",
    ),
    (
        Policy(epsilon_per_run=9.0),
        NO_GUARANTEE,
        RefusalCode.EPSILON,
        "[policy] limits epsilon, and the run releases something of these rows without a guarantee",
    ),
    (
        Policy(budget_of_peers={"club": Limits(1.0)}),
        NO_GUARANTEE,
        RefusalCode.EPSILON,
        "[policy] limits epsilon, and the run releases something of these rows without a guarantee",
    ),
    (
        Policy(epsilon_per_run=9.0),
        replace(ASKED, planned=Planned(Gaussian(1.0, 1.0))),
        RefusalCode.EPSILON,
        "[policy] limits epsilon, and the run releases something of these rows without a guarantee",
    ),
    (
        Policy(epsilon_per_run=9.0),
        replace(ASKED, planned=Planned(Composed((Laplace(1.0, 1.0), RandomisedResponse(2, 0.1))))),
        RefusalCode.EPSILON,
        (
            "what the run costs cannot be counted: an event with two notions of neighbours cannot be charged: neither "
            "implies the other"
        ),
    ),
    (
        Policy(budget=Limits(0.25)),
        COST,
        RefusalCode.BUDGET,
        "the run alone would cost epsilon 0.5; the limit 'all' of [policy.budget] is 0.25",
    ),
    (
        Policy(budget_of_peers={"shop": Limits(0.25), "club": Limits(0.1)}),
        COST,
        RefusalCode.BUDGET,
        "the run alone would cost epsilon 0.5; the limit 'peer:shop' of [policy.budget] is 0.25",
    ),
    (
        Policy(budget_of_datasets={"customers": Limits(0.25), "others": Limits(0.1)}),
        COST,
        RefusalCode.BUDGET,
        "the run alone would cost epsilon 0.5; the limit 'data:customers' of [policy.budget] is 0.25",
    ),
    (
        Policy(budget=Limits(5.0, 1e-7)),
        replace(ASKED, planned=Planned(Gaussian(1.0, 5.0), 1e-6)),
        RefusalCode.BUDGET,
        "the run alone would cost delta 1e-06; the limit 'all' of [policy.budget] is 1e-07",
    ),
]


@pytest.mark.parametrize(("policy", "asked", "code", "sentence"), RULES)
def test_each_rule_has_a_code_and_a_sentence(policy, asked, code, sentence):
    """One rule is broken at a time; the code is the peer's, the sentence names what party.toml says."""
    (refusal,) = refusals(policy, asked)
    assert (refusal.code, refusal.sentence) == (code, sentence)


def test_what_a_party_has_is_looked_at_where_it_is_known():
    """Peers that are not paired and datasets that are not there are refused once they are passed."""
    assert codes(Policy(), ASKED, paired=("shop",), datasets=("customers",)) == []
    peer, data = refusals(Policy(), ASKED, paired=("club",), datasets=("others", "more"))
    assert (peer.code, peer.sentence) == (RefusalCode.PEER, "not paired with 'shop'; hedgerow pair does that")
    assert data.sentence == "party.toml has no [data.customers]; there are more, others"


def test_unattended_needs_an_approved_hash():
    """--yes works for hashes that the policy lists; a person may accept any that fit."""
    assert codes(Policy(), ASKED) == []
    assert codes(Policy(approved=("ab12",)), ASKED, unattended=True) == []
    (refusal,) = refusals(Policy(approved=("ab13",)), ASKED, unattended=True)
    assert refusal.code is RefusalCode.NOT_APPROVED
    assert refusal.sentence.startswith("the proposal ab12 is not in [policy] approved")


def test_all_reasons_are_given_at_once():
    """Whoever has to change a policy sees everything, in the order of the codes."""
    policy = Policy((), (), {"x": ()}, 1000, 1000, 0.1, (), Limits(0.1))
    found = codes(policy, COST, datasets=(), unattended=True)
    elsewhere = (RefusalCode.BY_HAND, RefusalCode.SCORING, RefusalCode.ROWS_PER_DAY)
    assert found == [code for code in RefusalCode if code not in elsewhere]


def test_what_is_not_counted_yet_is_no_reason():
    """Rows and matches that nobody knows yet are asked about again later."""
    policy = Policy(minimum_rows=10**9, minimum_matched=10**9, epsilon_per_run=0.1)
    assert codes(policy, replace(ASKED, n_rows=None, n_matched=None)) == []


def test_codes_are_public_and_stay():
    """Peers of other versions know the numbers; each has words without data in them."""
    assert {code.name: int(code) for code in RefusalCode} == {
        "PROTOCOL": 1, "PEER": 2, "DATASET": 3, "COLUMN": 4, "TOO_FEW_ROWS": 5, "TOO_FEW_MATCHED": 6, "EPSILON": 7,
        "BUDGET": 8, "NOT_APPROVED": 9, "BY_HAND": 10, "SCORING": 11, "ROWS_PER_DAY": 12,
    }  # fmt: skip
    assert all(code.words for code in RefusalCode)


def test_the_cost_of_a_run_is_that_of_budgets():
    """The smallest epsilon of any accountant, under the event's own notion of neighbours; none without a guarantee."""
    noise = Planned(Gaussian(1.0, 5.0, "replace_one"), 1e-6)
    assert epsilon_of(noise) == budget_file.epsilon_of(noise.event, 1e-6, "replace_one")
    assert epsilon_of(Planned(RandomisedResponse(2, 0.5))) == budget_file.epsilon_of(
        RandomisedResponse(2, 0.5), 0.0, "replace_one"
    )
    assert epsilon_of(Planned(NonPrivate("?"))) == math.inf


def test_what_has_been_spent_counts(tmp_path):
    """A run that fits the limit alone is refused once others have used it up; another peer's limit does not matter."""
    policy = Policy(budget_of_peers={"shop": Limits(0.75)})
    budgets = Budgets(tmp_path / "budget.sqlite", policy)
    assert codes(policy, COST, budgets=budgets) == []
    with budgets.of_run(peers=("shop",), dataset=None).reserve(COST.planned.event, what="run 1"):
        pass
    (refusal,) = refusals(policy, COST, budgets=budgets)
    assert refusal.code is RefusalCode.BUDGET
    assert "'peer:shop': epsilon does not fit: asked 0.5, spent 0.5, left 0.25" in refusal.sentence
    assert codes(policy, replace(COST, peers=("club",)), budgets=budgets) == []
    assert codes(Policy(), NO_GUARANTEE, budgets=budgets) == [RefusalCode.EPSILON]


# --- laws ------------------------------------------------------------------------------------------------------------

PROTOCOLS = st.sampled_from(["vertical.secret_shared", "vertical.bucket_rr", "vertical.mp_fedxgb", "vertical.best"])
PARTIES = st.sampled_from(["bank", "shop", "club"])
COLUMNS = st.sampled_from(["age", "income", "town"])
DATASETS = st.sampled_from(["customers", "others"])
AMOUNTS = st.sampled_from([0.1, 0.5, 1.0, 3.0])
LIMITS = st.builds(Limits, AMOUNTS, st.sampled_from([0.0, 1e-6]))
POLICIES = st.builds(
    Policy,
    st.none() | st.lists(PROTOCOLS, unique=True).map(tuple),
    st.none() | st.lists(PARTIES, unique=True).map(tuple),
    st.dictionaries(DATASETS, st.lists(COLUMNS, unique=True).map(tuple)),
    st.integers(0, 4),
    st.integers(0, 4),
    st.none() | AMOUNTS,
    st.lists(st.sampled_from("ab"), unique=True).map(tuple),
    st.none() | LIMITS,
    st.dictionaries(PARTIES, LIMITS),
    st.dictionaries(DATASETS, LIMITS),
)
EVENTS = st.sampled_from(
    [
        None,
        Planned(NonPrivate("?")),
        *(Planned(Exponential(1.0, e)) for e in (0.1, 0.5, 1.0)),
        Planned(Gaussian(1.0, 5), 1e-6),
    ]
)
PROPOSALS = st.builds(
    Asked,
    st.sampled_from("ab"),
    PROTOCOLS,
    st.lists(PARTIES, unique=True, min_size=1).map(tuple),
    DATASETS,
    st.lists(COLUMNS, unique=True).map(tuple),
    st.none() | st.integers(0, 4),
    st.none() | st.integers(0, 4),
    EVENTS,
)


@st.composite
def loosened(draw, policy):
    """The policy with one rule loosened."""

    def wider(limit):
        return Limits(limit.epsilon * 2, limit.delta + 1e-6)

    # the two that leak are named or they are not in: None is no wider than a list with them
    protocols = None if policy.protocols is None else (*policy.protocols, draw(PROTOCOLS))
    peers = draw(st.sampled_from([None, None if policy.peers is None else (*policy.peers, draw(PARTIES))]))
    columns = {name: (*listed, draw(COLUMNS)) for name, listed in policy.columns.items()}
    changes = {
        "protocols": protocols,
        "peers": peers,
        "columns": draw(st.sampled_from([columns, {}])),
        "minimum_rows": policy.minimum_rows - 1,
        "minimum_matched": policy.minimum_matched - 1,
        "epsilon_per_run": draw(st.sampled_from([None, policy.epsilon_per_run and policy.epsilon_per_run * 2])),
        "approved": (*policy.approved, "b"),
        "budget": draw(st.sampled_from([None, policy.budget and wider(policy.budget)])),
        "budget_of_peers": {name: wider(limit) for name, limit in policy.budget_of_peers.items()},
        "budget_of_datasets": {},
    }
    name = draw(st.sampled_from(sorted(changes)))
    return replace(policy, **{name: changes[name]})


@given(st.data())
def test_what_fits_a_policy_fits_every_looser_one(data):
    """Loosening any rule adds no refusal of any kind."""
    policy, asked, unattended = data.draw(POLICIES), data.draw(PROPOSALS), data.draw(st.booleans())
    looser = data.draw(loosened(policy))
    before, after = (codes(each, asked, unattended=unattended) for each in (policy, looser))
    assert set(after) <= set(before)


@given(POLICIES, PROPOSALS)
def test_less_is_asked_less_is_refused(policy, asked):
    """A run with fewer peers, fewer columns and no cost is never refused for more reasons."""
    less = replace(asked, peers=asked.peers[:1], columns=asked.columns[:1], planned=None)
    assert set(codes(policy, less)) <= set(codes(policy, asked))
