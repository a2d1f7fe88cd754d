from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.identifiers import IdRule, first_rows, is_missing, prepare_ids, sorted_runs
from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, InvalidType

RULES = [
    IdRule(unicode_form=form, case=case, strip=strip)
    for form, case, strip in itertools.product(("NFC", "NFKC", "as_is"), ("keep", "fold"), (True, False))
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NOBODY = "Mr-Nobody-4711"


def prepared(values, rule=None, **options):
    """The prepared ids of a party called anna."""
    return prepare_ids(values, rule or IdRule(), context="run 1", party="anna", column="customer", **options)


# The rule


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, rule=st.sampled_from(RULES))
def test_normalising_twice_changes_nothing(text, rule):
    """A normalised id is its own normal form, under every rule."""
    once = rule.normalised(text)
    assert rule.normalised(once) == once


@pytest.mark.parametrize(
    ("rule", "same", "different"),
    [
        (IdRule(), [" caf\u00e9\t", "cafe\u0301"], ["Caf\u00e9", "cafe", "caf \u00e9"]),
        (IdRule(strip=False), ["caf\u00e9", "cafe\u0301"], ["caf\u00e9 "]),
        (IdRule(unicode_form="as_is"), ["a", " a"], ["\uff41"]),
        (IdRule(unicode_form="as_is"), ["caf\u00e9"], ["cafe\u0301"]),
        (IdRule(unicode_form="NFKC"), ["a", "\uff41"], ["A"]),
        (IdRule(case="fold"), ["stra\u00dfe", "STRASSE", "Strasse"], ["strase"]),
        (IdRule(case="fold"), ["\u00c9", "e\u0301"], ["e"]),
        (IdRule(unicode_form="NFKC", case="fold"), ["\u1d2c", "A", "a"], ["b"]),  # a raised capital A
        (IdRule("integer"), [7, "007", " +7 ", np.int64(7), np.uint8(7)], [-7, "70"]),
        (IdRule("integer"), [0, "-0"], [1]),
        (IdRule("integer"), [2**70, str(2**70)], [2**70 + 1]),
    ],
)
def test_what_is_equal(rule, same, different):
    """Each rule makes equal what it says, and nothing else."""
    assert len({rule.normalised(value) for value in same}) == 1
    assert not {rule.normalised(value) for value in same} & {rule.normalised(value) for value in different}


def test_rule_is_data():
    """A rule survives being written down; different rules have different fingerprints."""
    rules = [*RULES, IdRule("integer")]
    assert [IdRule.from_dict(rule.to_dict()) for rule in rules] == rules
    assert len({rule.fingerprint for rule in rules}) == len(rules)
    # Recorded by parties with earlier versions: it may not change.
    assert IdRule().canonical == '{"case":"keep","kind":"text","strip":true,"unicode_form":"NFC"}'


@pytest.mark.parametrize(
    "options",
    [{"kind": "float"}, {"unicode_form": "NFD"}, {"case": True}, {"strip": 1}, {"kind": "integer", "case": "fold"}],
)
def test_unknown_choices_are_refused(options):
    """A rule that means nothing cannot be made."""
    with pytest.raises(InvalidParameter):
        IdRule(**options)


def test_rules_with_other_fields_are_refused():
    """A rule from another version, with a field more or less, is not read as if it were ours."""
    for data in ({}, {**IdRule().to_dict(), "soundex": True}):
        with pytest.raises(InvalidParameter, match="has the fields"):
            IdRule.from_dict(data)


# Preparing


@settings(max_examples=60, deadline=None)
@given(ids=st.lists(st.sampled_from(["a", "A", " a", "b", "c", "c "]), max_size=12), fold=st.booleans())
def test_first_of_equal_ids_is_kept(ids, fold):
    """With "first", the rows kept are those of a dictionary filled in order; with "refuse" a repetition is an error."""
    rule = IdRule(case="fold" if fold else "keep")
    first = {}
    for row, value in enumerate(ids):
        first.setdefault(rule.normalised(value), row)
    kept = prepared(ids, rule, duplicates="first")
    assert kept.rows.tolist() == list(first.values())
    assert len(kept) == len(first) == len({bytes(digest) for digest in kept.digests})
    assert np.array_equal(kept.digests, prepared([ids[row] for row in kept.rows], rule).digests)
    if len(first) < len(ids):
        with pytest.raises(InvalidInput, match=rf"anna: column 'customer' holds {len(ids) - len(first)} rows"):
            prepared(ids, rule)


def test_kinds_of_columns():
    """Lists, arrays, series and arrow columns of the same ids are prepared alike."""
    texts, numbers = ["x", "y", "z"], [3, 1, 2]
    for column in (np.array(texts), np.array(texts, object), pd.Series(texts), pa.array(texts), tuple(texts)):
        assert np.array_equal(prepared(column).digests, prepared(texts).digests)
    rule = IdRule("integer")
    for column in (np.array(numbers, np.uint16), pd.Series(numbers, dtype="Int64"), pa.array(numbers), ["3", "1", "2"]):
        assert np.array_equal(prepared(column, rule).digests, prepared(numbers, rule).digests)


@pytest.mark.parametrize(
    ("column", "rule", "error", "words"),
    [
        ([NOBODY, None, "", "  ", float("nan")], IdRule(), InvalidInput, "4 missing ids of 5"),
        (pd.Series([NOBODY, None], dtype="string"), IdRule(), InvalidInput, "1 missing ids of 2"),
        (pd.Series([1, None], dtype="Int64"), IdRule("integer"), InvalidInput, "1 missing ids of 2"),
        (np.ma.array([1, 2], mask=[False, True]), IdRule("integer"), InvalidInput, "1 missing ids of 2"),
        ([NOBODY, 4711, b"4711", 4.0], IdRule(), InvalidType, "3 ids of 4 that are not text"),
        ([4711, True, 4711.0], IdRule("integer"), InvalidType, "2 ids of 3 that are not whole"),
        ([4711, NOBODY, "1" * 5000, "\u0661"], IdRule("integer"), InvalidInput, "3 ids of 4 that cannot"),
        ([NOBODY, NOBODY + "\ud800"], IdRule(), InvalidInput, "1 ids of 2 that cannot"),
        ([NOBODY, NOBODY + " "], IdRule(), InvalidInput, "1 rows of 2 whose id stands in an earlier row"),
        (NOBODY, IdRule(), InvalidType, "must be a column"),
    ],
)
def test_errors_count_and_name_no_id(column, rule, error, words):
    """What cannot be used is refused with party, column and a count; no value is shown."""
    with pytest.raises(error, match=words) as raised:
        prepared(column, rule)
    shown = str(raised.value)
    assert shown.startswith("anna: column 'customer'")
    assert NOBODY not in shown
    assert "4711" not in shown


def test_policy_for_duplicates_is_explicit():
    """There is no third policy."""
    with pytest.raises(InvalidParameter, match="duplicates"):
        prepared(["a"], duplicates="last")
    assert issubclass(InvalidInput, HedgerowError)


def test_digests_depend_on_rule_and_context():
    """The same id under another rule or in another run has another digest; nothing of it is in the repr."""
    first = prepared([NOBODY])
    others = [
        prepared([NOBODY], IdRule(unicode_form="NFKC")),  # which leaves the text as it is
        prepare_ids([NOBODY], IdRule(), context="run 2", party="anna"),
    ]
    assert len({bytes(ids.digests[0]) for ids in (first, *others)}) == 3
    assert NOBODY not in repr(first)
    assert bytes(first.digests[0]).hex() not in repr(first)
    same = prepare_ids([NOBODY], IdRule(), context="run 1", party="ben", column="patient")
    assert np.array_equal(same.digests, first.digests)


@settings(max_examples=60, deadline=None)
@given(picks=st.lists(st.integers(0, 5), max_size=15), seed=st.integers(0, 9))
def test_sorting_is_that_of_bytes(picks, seed):
    """Rows of 32 bytes are sorted as Python sorts bytes, equal ones by row; first rows are those of a dictionary."""
    pool = np.random.default_rng(seed).integers(0, 3, (6, 32), dtype=np.uint8)
    table = pool[np.array(picks, np.int64)]
    order, is_new = sorted_runs(table)
    keys = [bytes(row) for row in table]
    assert order.tolist() == sorted(range(len(keys)), key=lambda row: (keys[row], row))
    in_order = [keys[row] for row in order]
    assert is_new.tolist() == [i == 0 or in_order[i] != in_order[i - 1] for i in range(len(keys))]
    assert first_rows(table).tolist() == [row for row, key in enumerate(keys) if keys.index(key) == row]


def test_missing_values_are_known():
    """What stands for "none" is told from what stands for something."""
    assert all(map(is_missing, (None, float("nan"), np.float32("nan"), pd.NA, pd.NaT, np.ma.masked)))
    assert not any(map(is_missing, (0, "", "nan", False, 1.0)))
