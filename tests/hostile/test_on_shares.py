"""Trainings on shares among peers that send what cannot be: everybody ends in order, and nothing reaches a kernel."""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from hedgerow.errors import InvalidInput, InvalidParameter, ProtocolError
from hedgerow.protocols.published.mp_fedxgb.job import MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import PredictionShare, Steps
from hedgerow.protocols.published.mp_fedxgb.spec import SPEC as MP_FEDXGB
from hedgerow.protocols.shares.columns import OneHotColumns
from hedgerow.protocols.shares.columns import Sizes as AllSizes
from hedgerow.protocols.shares.job import MOST_COLUMNS, MOST_ROWS
from hedgerow.protocols.shares.messages import AllColumns, ColumnSizes, Dealt, MaskedWords, Seed, SharingSeed
from hedgerow.protocols.vertical.private_histograms.job import PrivateHistogramsJob
from hedgerow.protocols.vertical.private_histograms.messages import Chosen, CountedColumns, SmoothAsked
from hedgerow.protocols.vertical.private_histograms.spec import SPEC as PRIVATE_HISTOGRAMS
from hedgerow.protocols.vertical.secret_shared import label_holder
from hedgerow.protocols.vertical.secret_shared.job import SecretSharedJob
from hedgerow.protocols.vertical.secret_shared.messages import ColumnShapes, Sizes, WhichWay, WinnerShare
from hedgerow.protocols.vertical.secret_shared.spec import SPEC as SECRET_SHARED
from hedgerow.schema import Schema
from hedgerow.testing.hostile import Case, cases, part_of, play_twisted
from twins.vertical import make_data, make_job, outcomes_of

SMALL = {"n_iterations": 1, "max_depth": 2, "max_bins": 4}


def secret_shared(n_parties, task="classification", n_columns=6):
    """With missing values."""
    data = make_data(n_parties, 40, n_columns, task=task, missing=0.1)
    return SECRET_SHARED, make_job(SecretSharedJob, data, task=task, **SMALL), data


def mp_fedxgb(**options):
    """With missing values."""
    data = make_data(2, 30, 4, missing=0.1)
    return MP_FEDXGB, make_job(MpFedXgbJob, data, accept_known_leaks=True, **SMALL, **options), data


def private_histograms(**options):
    """With noise."""
    data = make_data(2, 60, 4)
    bounds = {column.name: (-5.0, 5.0) for own in data.values() for column in own.table.columns}
    trees = {"max_bins": 4} if options.get("policy") else SMALL
    schema = Schema.from_public(bounds=bounds, classes=[0, 1])
    job = make_job(PrivateHistogramsJob, data, epsilon=50.0, schema=schema, l2=10.0, **trees, **options)
    return PRIVATE_HISTOGRAMS, job, data


SETTINGS = {
    "secret_shared, 2 holders": lambda: secret_shared(2),
    "secret_shared, 3 holders": lambda: secret_shared(3),
    "secret_shared, regression": lambda: secret_shared(2, "regression"),
    "mp_fedxgb, fractions": mp_fedxgb,
    "mp_fedxgb, division": lambda: mp_fedxgb(argmax="division"),
    "mp_fedxgb, first_layer_mask": lambda: mp_fedxgb(first_layer_mask=True),
    "private_histograms, winner": private_histograms,
    "private_histograms, histogram": lambda: private_histograms(reveal="histogram"),
    "private_histograms, smooth_then_trees": lambda: private_histograms(policy="smooth_then_trees"),
}
PER_KIND = 4
MANY = 10
"""Cases of a setting that every run of the tests tries."""


def sampled(found: list[Case], name: str) -> list[Case]:
    """Some cases that differ from setting to setting, of as many fields as may be; the same in every run."""
    order = sorted(found, key=lambda case: zlib.crc32(f"{name} {case}".encode()))
    first = {(case.message, case.field): case for case in reversed(order)}
    return [case for case in order if first[case.message, case.field] is case][:MANY]


# --- all twists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_twisted_messages_end_in_order(name):
    """A sample of all twists: each party ends with a result or an error of ours."""
    protocol, job, data = SETTINGS[name]()
    for case in sampled(cases(protocol, job, data, per_kind=PER_KIND), name):
        ends = play_twisted(protocol, job, data, case)
        assert ends.is_orderly, (case, ends)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SETTINGS)
def test_many_twisted_messages_end_in_order(name):
    """An eighth of all twists of every field of some messages of each kind."""
    protocol, job, data = SETTINGS[name]()
    tried = part_of(cases(protocol, job, data, per_kind=PER_KIND), name, 8)
    ends = {case: play_twisted(protocol, job, data, case) for case in tried}
    assert {case: end for case, end in ends.items() if not end.is_orderly} == {}


# --- one by one ------------------------------------------------------------------------------------------------------


def spoiled(setting, kind, change, *, party, error=ProtocolError):
    """How a party refuses messages of a kind that were changed, in words."""
    protocol, job, data = setting

    def spoil(message):
        return change(message) if isinstance(message, kind) else message

    outcomes, _ = outcomes_of(protocol, job, data, spoil=spoil)
    refused = outcomes[party].error
    assert isinstance(refused, error), refused
    return str(refused)


HUGE = np.iinfo(np.int64).max


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bins": [HUGE]}, "with bins = 9223372036854775807"),
        ({"candidates": [HUGE]}, "with candidates = 9223372036854775807"),
        ({"bins": [2**40], "candidates": [2**40]}, "with bins = 1099511627776"),
        ({"bins": [12], "candidates": [11]}, r"\[11\] possible splits of \[12\] bins"),
        ({"bins": [12], "candidates": [25]}, r"\[25\] possible splits of \[12\] bins"),
        ({"n_rows": 2**31}, "with n_rows = 2147483648"),
    ],
)
def test_the_dealer_makes_no_room_for_sizes_that_cannot_be(changes, says):
    """Whatever the label holder tells it."""
    changes = {name: np.array(v, np.int64) if isinstance(v, list) else v for name, v in changes.items()}
    refused = spoiled(secret_shared(2), Sizes, lambda m: replace(m, **changes), party="dealer")
    assert pytest.raises(ProtocolError, match=f"anna s.*{says}").matches(ProtocolError(refused))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_columns": np.zeros(0, np.int32)}, "n_columns of shape (0,), expected (2,)"),
        ({"n_columns": np.array([2, 3], np.int32)}, "anna sent bins of 4 columns, but counts 5"),
        ({"n_columns": np.array([-1, 5], np.int32)}, "n_columns = -1"),
        ({"n_bins": np.full(4, 2**31 - 1, np.int32)}, "n_bins = 2147483647"),
        ({"n_bins": np.full(4, -(2**31), np.int32)}, "n_bins = -2147483648"),
        ({"has_missing": np.full(4, 2, np.uint8)}, "has_missing = 2"),
        ({"n_rows": 2**40}, "n_rows = 1099511627776"),
    ],
)
@pytest.mark.parametrize("setting", [mp_fedxgb, private_histograms])
def test_the_dealer_makes_no_room_for_columns_that_cannot_be(setting, changes, says):
    """The same where all columns are masked."""
    assert says in spoiled(setting(), AllColumns, lambda m: replace(m, **changes), party="dealer")


def test_sizes_beyond_the_memory_are_refused_before_they_are_allocated():
    """What a job allows may still be more than there is room for here."""
    sizes = AllSizes(MOST_ROWS, ((256,) * MOST_COLUMNS,) * 2, ((True,) * MOST_COLUMNS,) * 2)
    with pytest.raises(InvalidInput, match=r"^dealer: 33,554,432 bins of 2,147,483,647 rows.* need about .* GiB"):
        sizes.checked("dealer", SimpleNamespace(holders=("anna", "ben")))
    refused = spoiled(
        mp_fedxgb(), AllColumns, lambda m: replace(m, n_rows=MOST_ROWS), party="dealer",
        error=(InvalidInput, InvalidParameter),
    )  # fmt: skip
    assert "2,147,483,647 rows" in refused


@pytest.mark.parametrize("kind", [ColumnShapes, ColumnSizes])
def test_more_columns_than_a_party_may_have_are_refused(kind):
    """Nobody counts the possible splits of columns beyond what was announced and allowed."""
    many = np.ones(MOST_COLUMNS + 1, np.int32)
    setting = secret_shared(2) if kind is ColumnShapes else mp_fedxgb()
    none = np.zeros(len(many), np.uint8)
    told = ColumnShapes(many, none, none) if kind is ColumnShapes else ColumnSizes(many, none)
    refused = spoiled(setting, kind, lambda _: told, party="anna")
    assert "n_bins of" in refused
    assert "65537" in refused


def test_a_party_with_too_many_columns_hears_it_from_itself():
    """Before it sends anything."""
    _, job, data = secret_shared(2)
    with (
        patch.object(SecretSharedJob, "most_columns", 2),
        pytest.raises(InvalidInput, match=r"^ben: brings 3 columns, and a party may have 2 at most"),
    ):
        OneHotColumns.by_quantiles("ben", job, data["ben"])


def test_a_party_counts_no_more_columns_than_the_schema_has():
    """The noise of its edges is accounted for by that number."""
    refused = spoiled(private_histograms(), CountedColumns, lambda _: CountedColumns(9), party="ben")
    assert "n_counted = 9, which is not between 0 and most_columns, from 0 to 8" in refused


@pytest.mark.parametrize("kind", [Seed, SharingSeed])
@pytest.mark.parametrize("length", [0, 31, 33])
def test_seeds_have_their_length(kind, length):
    """A shorter one could be guessed."""
    party = "dealer" if kind is Seed else "anna"
    assert f"({length},), expected (32,)" in spoiled(mp_fedxgb(), kind, lambda _: kind(bytes(length)), party=party)


def test_words_of_another_size_are_refused():
    """In the rounds in which masked words are opened, before they are put together."""
    refused = spoiled(
        secret_shared(2), MaskedWords, lambda m: MaskedWords(np.append(m.words, m.words[:1])), party="anna"
    )
    assert refused.startswith("ben sent vertical.on_shares.masked_words with words of shape")


def test_a_parcel_that_is_dealt_twice_is_refused():
    """It would be put aside, once more each time."""
    refused = spoiled(secret_shared(2), Dealt, lambda m: replace(m, lane="tournament 0", step=3), party="anna")
    assert "dealer dealt step 3 of 'tournament 0' twice" in refused


# --- what was opened -------------------------------------------------------------------------------------------------


def all_splits_are_bens():
    """The label holder's only column is always the same."""
    protocol, job, data = secret_shared(2, n_columns=12)
    flat = replace(data["anna"].table.columns[0], values=np.ones(40))
    data["anna"] = replace(data["anna"], table=replace(data["anna"].table, columns=(flat,), names=(flat.name,)))
    return protocol, job, data


@pytest.mark.parametrize("n_parties", [2, 3])
@pytest.mark.parametrize("word", [0, 255])
def test_a_winner_whom_nobody_entered_is_refused(n_parties, word):
    """Words that are no shares make a handle of any size, which must not become an index."""
    refused = spoiled(
        secret_shared(n_parties), WinnerShare, lambda m: WinnerShare(np.full_like(m.words, word)), party="anna"
    )
    assert "words that are not shares of it" in refused


def test_the_label_holder_wins_only_with_a_split_of_its_own():
    """Where it has none a node that it "won" would have children without rows of any kind."""
    protocol, job, data = all_splits_are_bens()
    won = np.full(1, label_holder.LABEL_HOLDERS, np.uint32)
    with patch.object(label_holder._Forest, "play", lambda *_: won):
        outcomes, _ = outcomes_of(protocol, job, data)
    assert isinstance(outcomes["anna"].error, ProtocolError)
    assert "won by what anna did not enter" in str(outcomes["anna"].error)


def test_new_questions_are_numbered_one_after_the_other():
    """A number that was left out would be a question that its owner does not know."""

    def skip(message):  # the root asked question 0, so its children may ask 0, 1 and, after 1, 2
        return replace(message, handles=np.full(2, 2, np.int32)) if len(message.handles) == 2 else message

    refused = spoiled(all_splits_are_bens(), WhichWay, skip, party="anna")
    assert refused == "ben sent handles [2, 2]: a new question gets the next number"


@pytest.mark.parametrize("byte", [0, 255])
def test_steps_of_leaves_are_within_what_was_planned(byte):
    """They become numbers of turns, and what is shifted by."""
    refused = spoiled(mp_fedxgb(), Steps, lambda m: replace(m, words=np.full_like(m.words, byte)), party="ben")
    assert "the sums of hessians of leaves are not between" in refused


def test_values_of_trees_are_within_those_of_leaves():
    """They are added to scores."""
    high = np.frombuffer(np.full(30, 2**62, np.uint64).tobytes(), np.uint8)
    refused = spoiled(mp_fedxgb(), PredictionShare, lambda m: replace(m, words=high), party="anna")
    assert "beyond that of any leaf" in refused


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([0, 0, 0, 1], "chose columns [[0, 0], [0, 1]], which are not in order"),
        ([0, 1, 1, 0], "which are not in order"),
        ([0, 1, 0, 4], "values = 4, which is not between lowest and highest, from 0 to 3"),
        ([-1, 1, 0, 1], "values = -1"),
    ],
)
def test_columns_that_the_label_holder_draws_are_different_ones(values, says):
    """Noise is dealt for so many bins of different columns, and for no more."""

    def drawn(message):
        return Chosen(np.array(values, np.int64)) if len(message.values) == 4 else message

    assert says in spoiled(private_histograms(reveal="histogram"), Chosen, drawn, party="ben")


# --- smooth_then_trees -----------------------------------------------------------------------------------------------


def test_sides_of_a_tree_are_left_or_right():
    """Ways of rows are made of them, by which a kernel adds up."""

    def odd(message):
        return replace(message, goes_right=np.full_like(message.goes_right, 3))

    refused = spoiled(private_histograms(policy="smooth_then_trees"), SmoothAsked, odd, party="ben")
    assert "goes_right = 3, which is not between 0 and 1" in refused
