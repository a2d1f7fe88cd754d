from __future__ import annotations

import collections
import copy
import hashlib
import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.identifiers import IdRule, prepare_ids, sorted_runs
from hedgerow.crypto.psi import (
    ORDER,
    BlinderHere,
    BlindingKey,
    Departure,
    check_places,
    common_places,
    random_order,
    restored,
    shuffled,
    to_point,
    way_round,
)
from hedgerow.errors import InvalidInput, InvalidParameter, InvalidType, ProtocolError

NAMES = ["anna", "ben", "carla", "dmitri", "grün"]
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
KNOWN = "54745e4d7bd3f88015c25eb7f0015eafb4055db51af8a17a9ac8395b57f7d3c2"
"""The point of the digest 0, 1, 2, ... 31."""


# A slow twin: sets, and the curve in textbook form


def align_locally(
    ids, rule=None, *, context="local", comparer=None, duplicates="refuse", keys=None, random=None, n_threads=1,
    block=1 << 14, on_send=None,
):  # fmt: skip
    """The whole protocol in one process: for each party its rows of the records that all hold, in one common order.

    `comparer` is the first name by default; `keys` and `random` are new by default.
    """
    rule = IdRule() if rule is None else rule
    parties = sorted(ids)
    ways = {owner: way_round(parties, owner) for owner in parties}
    comparer = parties[0] if comparer is None else comparer
    if comparer not in ids:
        raise InvalidParameter(f"comparer must be one of {parties}, got {comparer!r}")
    prepared = {
        party: prepare_ids(ids[party], rule, context=context, party=party, duplicates=duplicates) for party in parties
    }
    keys = {party: BlindingKey.generate() for party in parties} if keys is None else keys
    random = {party: SecureRandom() for party in parties} if random is None else random
    post = on_send or (lambda _sender, _receiver, _what: None)

    stays, departures, final = {}, {}, {}  # stays: the orders at all parties after the owner
    for owner in parties:
        departures[owner] = Departure(prepared[owner], random[owner])
        blocks = departures[owner].blocks(BlinderHere(keys[owner], n_threads), block)
        final[owner], stays[owner] = round_the_ring(blocks, ways[owner], keys, random, n_threads, block, post)
        post(ways[owner][-1], comparer, final[owner])

    rows = {}
    found = common_places(final)
    for owner in parties:
        places, sender = found[owner], comparer
        for party, order in zip(reversed(ways[owner]), reversed(stays[owner]), strict=False):  # all but the owner
            post(sender, party, places)
            places, sender = restored(order, places, owner), party
        post(sender, owner, places)
        rows[owner] = departures[owner].restored(places)
    return rows


def round_the_ring(blocks, way, keys, random, n_threads, block, post):
    """The points of one set at the end of its way, and its orders at all parties after its owner."""
    orders = []
    for sender, party in itertools.pairwise(way):
        came = []
        for points in blocks:
            post(sender, party, points)
            came.append(keys[party].reblind(points, sender=sender, n_threads=n_threads))
        whole, order = shuffled(came, random[party])
        orders.append(order)
        blocks = [whole[start : start + block] for start in range(0, len(whole), block)]
    return whole, orders


def plain_intersection(ids, rule):
    """The ids that all have, normalised, and for each party its row of each."""
    rows = {party: {rule.normalised(value): row for row, value in enumerate(column)} for party, column in ids.items()}
    return set.intersection(*(set(found) for found in rows.values())), rows


def lifted(x):
    """A point with this x coordinate in textbook form, None if there is none."""
    square = (x**3 - 3 * x + B) % P
    y = pow(square, (P + 1) // 4, P)
    return (x, y) if x < P and y * y % P == square else None


def added(p, q):
    """The sum of two points; None is the neutral element."""
    if p is None or q is None:
        return p or q
    if p[0] == q[0] and (p[1] + q[1]) % P == 0:
        return None
    slope = (3 * p[0] ** 2 - 3) * pow(2 * p[1], -1, P) if p == q else (q[1] - p[1]) * pow(q[0] - p[0], -1, P)
    x = (slope**2 - p[0] - q[0]) % P
    return x, (slope * (p[0] - x) - p[1]) % P


def multiplied(k, p):
    """k times a point, by doubling and adding."""
    total = None
    while k:
        if k & 1:
            total = added(total, p)
        p, k = added(p, p), k >> 1
    return total


def hashed_slowly(digest):
    """The x coordinate of a digest's point."""
    tries = (hashlib.sha256(b"hedgerow psi point v1" + bytes([c]) + digest).digest() for c in range(256))
    return next(x for x in (int.from_bytes(each, "big") for each in tries) if lifted(x))


def as_points(*numbers):
    """x coordinates as a block."""
    return np.array([list(x.to_bytes(32, "big")) for x in numbers], np.uint8).reshape(-1, 32)


def digests(*values, context="run"):
    """The digests of some ids."""
    return prepare_ids(values, IdRule(), context=context, party="anna").digests


def key(number):
    """A key that is the same in every run of the tests."""
    return BlindingKey.from_number(int.from_bytes(hashlib.sha256(b"%d" % number).digest(), "big") % (ORDER - 1) + 1)


def keys_of(names, number=0):
    """The same keys for the same names in every run."""
    return {name: key(100 * number + i) for i, name in enumerate(sorted(names))}


def generator(number):
    """A generator that draws the same in every run."""
    return SecureRandom.from_seed(bytes([number]) * 32)


def transcript(ids, **options):
    """(sender, receiver, array) of every message of a run."""
    seen = []
    align_locally(ids, on_send=lambda *message: seen.append(message), **options)
    return seen


def rows_of(table):
    """A block as a set of byte strings."""
    return {bytes(row) for row in table}


# The law


@settings(max_examples=50, deadline=None)
@given(data=st.data(), n_parties=st.integers(2, 5))
def test_result_is_the_intersection_in_one_order(data, n_parties):
    """All parties get their rows of exactly the common ids, in one order, whoever compares and however they are cut."""
    names = data.draw(st.permutations(NAMES))[:n_parties]
    rule = data.draw(st.sampled_from([IdRule(), IdRule(case="fold"), IdRule("integer")]))
    pool = [str(i) for i in range(8)] if rule.kind == "integer" else ["a", "b", " c", "D", "é", "e\u0301x", "7", "水"]
    column = st.lists(st.sampled_from(pool), unique=True, max_size=8)
    ids = {name: data.draw(column) for name in names}
    for name in names[1:]:  # so that there is something in common, most times
        ids[name] += [value for value in ids[names[0]][:4] if value not in ids[name]]

    rows = align_locally(ids, rule, comparer=data.draw(st.sampled_from(names)), block=data.draw(st.integers(1, 9)))

    common, expected = plain_intersection(ids, rule)
    lists = [[rule.normalised(ids[name][row]) for row in rows[name]] for name in names]
    assert all(one == lists[0] for one in lists)
    assert len(lists[0]) == len(common)
    assert set(lists[0]) == common
    assert all(rows[name].tolist() == [expected[name][value] for value in lists[0]] for name in names)


@settings(max_examples=15, deadline=None)
@given(data=st.data(), n_parties=st.integers(2, 4))
def test_order_is_independent_of_the_rows_and_shuffles(data, n_parties):
    """Given the keys, the common order of ids is the same for any order of rows, any comparer and fresh shuffles."""
    names = NAMES[:n_parties]
    ids = {name: [*"abcdef", name] for name in names}
    first = align_locally(ids, keys=keys_of(names))
    mixed = {name: data.draw(st.permutations(ids[name])) for name in names}
    second = align_locally(mixed, keys=keys_of(names), comparer=names[-1])
    for name in names:
        assert [ids[name][row] for row in first[name]] == [mixed[name][row] for row in second[name]]


def test_order_changes_with_the_keys():
    """Under other keys the common order is another one: it says nothing about the ids."""
    ids = {name: [str(i) for i in range(30)] for name in ("anna", "ben")}
    orders = [align_locally(ids, keys=keys_of(ids, number))["anna"].tolist() for number in range(3)]
    assert all(one != other for one, other in itertools.combinations(orders, 2))
    assert list(range(30)) not in orders


def test_all_is_determined_by_keys_and_shuffles():
    """The same keys and seeds give the same messages, byte for byte, also with two threads."""
    ids = {"anna": list("abcdef"), "ben": list("defghi"), "carla": list("efxy")}

    def messages(n_threads):
        random = {name: generator(i) for i, name in enumerate(ids)}
        seen = transcript(ids, keys=keys_of(ids), random=random, n_threads=n_threads)
        return [(sender, receiver, what.tobytes()) for sender, receiver, what in seen]

    assert messages(1) == messages(2)


def test_duplicates_and_missing_ids_are_refused_by_count():
    """The driver passes on the rules for single columns; "first" links the first row."""
    with pytest.raises(InvalidInput, match=r"ben: column 'id' holds 1 rows of 3"):
        align_locally({"anna": ["x"], "ben": ["y", "x", "x "]})
    with pytest.raises(InvalidInput, match=r"anna: column 'id' holds 1 missing ids of 1"):
        align_locally({"anna": [None], "ben": ["y"]})
    rows = align_locally({"anna": ["x"], "ben": ["y", "x", "x "]}, duplicates="first")
    assert {party: found.tolist() for party, found in rows.items()} == {"anna": [0], "ben": [1]}


# The group


def test_points_are_those_of_the_textbook():
    """Hashing, blinding and blinding again give what slow arithmetic on the curve gives."""
    seeds = digests("a", "b", "c", "d", "e")
    numbers = [1, 2, ORDER - 1, 0x123456789ABCDEF]
    for number in numbers:
        slow = [multiplied(number, lifted(hashed_slowly(bytes(seed))))[0] for seed in seeds]
        assert np.array_equal(BlindingKey.from_number(number).blind(seeds), as_points(*slow))
    points = BlindingKey.from_number(7).blind(seeds)
    again = BlindingKey.from_number(11).reblind(points, sender="anna")
    assert np.array_equal(again, BlindingKey.from_number(77).blind(seeds))


def test_hash_to_the_group_does_not_change():
    """A known answer: parties with different versions of Hedgerow must find the same points."""
    known = to_point(bytes(range(32))).public_numbers().x
    assert known == hashed_slowly(bytes(range(32)))
    assert f"{known:064x}" == KNOWN


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(4)))
def test_blinding_commutes(order):
    """The order of the parties on the way makes no difference to the points."""
    seeds = digests("a", "b", "c")
    points = key(order[0]).blind(seeds)
    for number in order[1:]:
        points = key(number).reblind(points, sender="anna")
    product = np.prod([key(n)._private.private_numbers().private_value for n in range(4)], dtype=object) % ORDER
    assert np.array_equal(points, BlindingKey.from_number(int(product)).blind(seeds))


def test_what_is_not_in_the_group_is_refused():
    """Every x without a point on the curve, or not below the prime, is counted and refused, naming the sender."""
    good = key(0).blind(digests("a", "b", "c"))
    off_curve = next(x for x in itertools.count(1) if lifted(x) is None)
    on_curve = next(x for x in itertools.count(1) if lifted(x))
    for bad in (off_curve, P, P + on_curve, 2**256 - 1):
        block = np.concatenate([good, as_points(bad)])
        for n_threads in (1, 2):
            with pytest.raises(ProtocolError, match="ben sent 1 points of 4 that are not in the group"):
                key(1).reblind(block, sender="ben", n_threads=n_threads)
    assert len(key(1).reblind(as_points(on_curve), sender="ben")) == 1


def test_random_bytes_are_in_the_group_half_of_the_time():
    """The check is the one of the textbook, on bytes of all kinds."""
    for x in np.random.default_rng(0).integers(0, 256, (60, 32), dtype=np.uint8):
        in_group = lifted(int.from_bytes(bytes(x), "big")) is not None
        try:
            key(0).reblind(x[None], sender="ben")
        except ProtocolError:
            assert not in_group
        else:
            assert in_group


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (np.zeros((2, 31), np.uint8), ProtocolError),
        (np.zeros(32, np.uint8), ProtocolError),
        (np.zeros((2, 32), np.int8), InvalidType),
        (b"bytes", InvalidType),
    ],
)
def test_blocks_of_other_shapes_are_refused(block, error):
    """Neither key nor stay nor comparer takes what is no block of points."""
    for use in (
        key(0).blind,
        lambda block: key(0).reblind(block, sender="ben"),
        lambda block: shuffled([block], generator(0)),
        lambda block: common_places({"anna": block, "ben": block}),
    ):
        with pytest.raises(error):
            use(block)


def test_empty_blocks_stay_empty():
    """No ids, no points; nobody has anything in common with a party that has none."""
    assert key(0).blind(digests()).shape == (0, 32)
    assert key(0).reblind(np.empty((0, 32), np.uint8), sender="ben").shape == (0, 32)
    rows = align_locally({"anna": [], "ben": ["x"], "carla": ["x"]})
    assert {name: found.tolist() for name, found in rows.items()} == {"anna": [], "ben": [], "carla": []}


def test_threads_give_the_same_points():
    """Blocks dealt out to threads come back in their order."""
    seeds = digests(*map(str, range(37)))
    alone = key(0).blind(seeds)
    for n_threads in (2, 3, 30):
        assert np.array_equal(key(0).blind(seeds, n_threads=n_threads), alone)
    with pytest.raises(InvalidParameter, match="n_threads"):
        key(0).blind(seeds, n_threads=0)


@pytest.mark.parametrize("number", [0, -1, ORDER, ORDER + 1])
def test_keys_are_invertible(number):
    """Zero and what is no residue is no key, and the error does not show it."""
    with pytest.raises(InvalidParameter):
        BlindingKey.from_number(number)


def test_keys_are_fresh_and_stay_where_they_are():
    """Two generated keys differ; a key can neither be copied nor be shown."""
    one, other = BlindingKey.generate(), BlindingKey.generate()
    seeds = digests("a")
    assert not np.array_equal(one.blind(seeds), other.blind(seeds))
    with pytest.raises(ProtocolError, match="cannot be copied"):
        copy.copy(one)
    assert repr(one) == "BlindingKey(hidden)"


def test_keys_are_refused_in_another_process(monkeypatch):
    """A process that inherited a key may not use it."""
    mine = key(0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ProtocolError, match="forked"):
        mine.blind(digests("a"))


# What is sent


def test_nothing_of_the_ids_is_sent():
    """No message holds an id, its digest, its bare point, or any of them in the clear; all points are in the group."""
    ids = {name: [f"customer-number-{i:04}" for i in range(8 + k)] for k, name in enumerate(NAMES[:3])}
    seen = transcript(ids)
    sent = b"".join(what.tobytes() for _, _, what in seen)
    known = prepare_ids(ids["carla"], IdRule(), context="local", party="carla")
    bare = BlindingKey.from_number(1).blind(known.digests)
    assert not any(value.encode() in sent for value in ids["carla"])
    assert not any(bytes(row) in sent for row in (*known.digests, *bare))
    for _, _, what in seen:
        if what.dtype == np.uint8:
            key(0).reblind(what, sender="anna")


def test_bytes_of_points_look_uniform():
    """Over 2000 blinded ids in a row, the bytes of the points pass a chi-square test."""
    points = key(5).blind(digests(*map(str, range(2000))))
    found = np.bincount(points.reshape(-1), minlength=256)
    expected = points.size / 256
    z = (np.sum((found - expected) ** 2) / expected - 255) / np.sqrt(2 * 255)
    assert abs(z) < 4


@pytest.mark.parametrize("n_parties", [2, 3, 4])
def test_no_party_but_the_comparer_sees_comparable_points(n_parties):
    """With equal ids everywhere, no point that a party gets occurs twice: sets are under different products of keys."""
    names = NAMES[:n_parties]
    ids = {name: list("abcdefgh") for name in names}
    comparer = names[1]
    seen = transcript(ids, comparer=comparer)
    for me in names:
        points = [bytes(row) for _, to, what in seen if to == me and what.dtype == np.uint8 for row in what]
        occurrences = collections.Counter(points).values()
        if me == comparer:
            # The fully blinded sets: eight points, each once for every party.
            assert sorted(occurrences)[-8:] == [n_parties] * 8
            assert sorted(occurrences)[:-8] == [1] * (8 * (n_parties - 1))
        else:
            assert set(occurrences) == {1}
            assert len(points) == 8 * (n_parties - 1)


def test_equal_ids_under_other_keys_or_contexts_are_unlinkable():
    """Two runs over the same ids, with new keys or with a new context, share no point."""
    ids = {name: list("abcdef") for name in ("anna", "ben")}
    runs = [
        transcript(ids, keys=keys_of(ids, 1)),
        transcript(ids, keys=keys_of(ids, 2)),
        transcript(ids, keys=keys_of(ids, 1), context="another run"),
    ]
    points = [set().union(*(rows_of(what) for _, _, what in run if what.dtype == np.uint8)) for run in runs]
    assert all(not one & other for one, other in itertools.combinations(points, 2))


def test_sizes_of_messages_tell_sizes_of_sets_only():
    """Ids of any length and kind give messages of the same sizes, 32 bytes for each point."""
    short = {"anna": list("abc"), "ben": list("abxy")}
    long = {name: [value * 500 for value in column] for name, column in short.items()}
    sizes = [[(sender, to, what.nbytes) for sender, to, what in transcript(ids)] for ids in (short, long)]
    assert sizes[0] == sizes[1]
    assert ("anna", "ben", 3 * 32) in sizes[0]


# The way round


def test_way_round_the_ring():
    """Every set visits every party once and begins at its owner; every step goes to the next name."""
    names = ["carla", "anna", "ben"]
    assert [way_round(names, owner) for owner in sorted(names)] == [
        ("anna", "ben", "carla"),
        ("ben", "carla", "anna"),
        ("carla", "anna", "ben"),
    ]
    for parties, owner in ((["anna"], "anna"), (["anna", "anna"], "anna"), (names, "eve")):
        with pytest.raises(InvalidParameter):
            way_round(parties, owner)
    with pytest.raises(InvalidParameter, match="comparer"):
        align_locally({"anna": [], "ben": []}, comparer="eve")


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 40), size=st.integers(1, 50), seed=st.integers(0, 255))
def test_a_set_is_shuffled_and_restored(n, size, seed):
    """What leaves is what came in another order, whatever the blocks; places lead back to the order of arrival."""
    points = np.random.default_rng(seed).integers(0, 256, (n, 32), dtype=np.uint8)
    came = [points[start : start + size] for start in range(0, n, size)]
    left, order = shuffled(came, generator(seed))
    assert came == []
    assert sorted(map(bytes, left)) == sorted(map(bytes, points))
    places = random_order(n, generator(seed))[: n // 2].astype(np.int64)
    assert np.array_equal(points[restored(order, places, "anna")], left[places])


@settings(max_examples=20, deadline=None)
@given(n=st.integers(0, 30), size=st.integers(1, 40), seed=st.integers(0, 255))
def test_own_ids_leave_in_a_random_order(n, size, seed):
    """What leaves are the own points in another order, whatever the blocks; places lead back to rows of the table."""
    values = [str(i // 2) for i in range(2 * n)]
    prepared = prepare_ids(values, IdRule(), context="run", party="anna", duplicates="first")
    departure = Departure(prepared, generator(seed))
    left = np.concatenate([np.empty((0, 32), np.uint8), *departure.blocks(BlinderHere(key(1)), size)])
    assert rows_of(left) == rows_of(key(1).blind(prepared.digests))
    places = random_order(n, generator(seed))[: n // 2].astype(np.int64)
    rows = departure.restored(places)
    assert np.array_equal(key(1).blind(digests(*(values[row] for row in rows))), left[places])
    assert not np.any(rows % 2)
    with pytest.raises(ProtocolError, match="released"):
        next(departure.blocks(BlinderHere(key(1))))


def test_own_ids_do_not_leave_in_the_order_of_rows():
    """With 200 ids, hardly any leaves at the place of its row, and two parties' orders differ."""
    prepared = prepare_ids(map(str, range(200)), IdRule(), context="run", party="anna")
    orders = [Departure(prepared, generator(seed)).restored(np.arange(200)) for seed in (1, 2)]
    assert all(sorted(order.tolist()) == list(range(200)) for order in orders)
    assert np.mean(orders[0] == np.arange(200)) < 0.1
    assert np.mean(orders[0] == orders[1]) < 0.1
    assert "200 points" in repr(Departure(prepared, generator(1)))


def test_every_party_shuffles():
    """On each step of its way a set is in an order that neither its rows nor the step before explain."""
    names = NAMES[:3]
    ids = {name: [str(i) for i in range(50)] for name in names}
    keys = keys_of(names)
    steps = {}
    for sender, to, what in transcript(ids, keys=keys, comparer="ben"):
        if what.dtype == np.uint8:
            steps.setdefault((sender, to), []).append(what)
    digested = prepare_ids(ids["anna"], IdRule(), context="local", party="anna").digests
    unshuffled = [keys["anna"].blind(digested)]
    unshuffled.append(keys["ben"].reblind(steps["anna", "ben"][0], sender="anna"))
    unshuffled.append(keys["carla"].reblind(steps["ben", "carla"][0], sender="ben"))
    arrived = [steps["anna", "ben"][0], steps["ben", "carla"][0], steps["carla", "ben"][0]]
    for before, after in zip(unshuffled, arrived, strict=True):
        assert rows_of(before) == rows_of(after)
        assert np.mean(np.all(before == after, axis=1)) < 0.2


def test_orders_are_uniform():
    """All six orders of three points are drawn about equally often."""
    random = generator(3)
    drawn = collections.Counter(tuple(random_order(3, random).tolist()) for _ in range(3000))
    assert len(drawn) == 6
    assert all(abs(count - 500) < 5 * np.sqrt(3000 * 5 / 36) for count in drawn.values())


def test_order_is_drawn_again_on_a_tie():
    """Two equal words would favour the order of arrival, so they are not used."""

    class Tied:
        draws = iter([np.array([5, 5, 1], np.uint64), np.array([9, 4, 6], np.uint64)])

        def words(self, n):
            assert n == 3
            return next(self.draws)

    assert random_order(3, Tied()).tolist() == [1, 2, 0]


@pytest.mark.parametrize("places", [[-1], [3], [0, 0]])
def test_impossible_places_are_refused(places):
    """Places outside the set, or twice the same, are no answer of a comparer."""
    with pytest.raises(ProtocolError, match="set of anna"):
        check_places(np.array(places, np.int64), 3, "anna")


def test_places_of_other_types_are_refused():
    """Places are a list of 64-bit numbers."""
    for places in (np.array([0.0]), np.array([[0]]), [0]):
        with pytest.raises(InvalidType, match="set of anna"):
            check_places(places, 3, "anna")


@settings(max_examples=60, deadline=None)
@given(sets=st.lists(st.lists(st.integers(0, 9), unique=True, max_size=10), min_size=2, max_size=5))
def test_comparer_finds_what_all_have(sets):
    """Places name, in every set, the points of the plain intersection in the order of their values."""
    pool = np.random.default_rng(1).integers(0, 2, (10, 32), dtype=np.uint8)  # alike in their first bytes
    tables = {name: pool[np.array(picks, np.int64)] for name, picks in zip(NAMES, sets, strict=False)}
    expected = sorted(set.intersection(*(rows_of(table) for table in tables.values())))
    for name, places in common_places(tables).items():
        assert [bytes(row) for row in tables[name][places]] == expected
        check_places(places, len(tables[name]), name)


@pytest.mark.parametrize("differing", [0, 7, 8, 16, 31])
def test_rows_are_sorted_by_all_of_their_bytes(differing):
    """Rows that are alike but for one byte, wherever it is, are told apart; of equal ones the earlier is first."""
    table = np.full((9, 32), 7, np.uint8)
    table[:, differing] = [3, 1, 200, 1, 0, 3, 255, 2, 1]
    order, is_new = sorted_runs(table)
    assert order.tolist() == [4, 1, 3, 8, 7, 0, 5, 2, 6]
    assert is_new.tolist() == [True, True, False, False, True, True, False, True, True]


def test_comparer_refuses_repeated_points():
    """A set with a point twice would count it twice; it is refused with its owner's name."""
    points = key(0).blind(digests("a", "b", "c"))
    with pytest.raises(ProtocolError, match="the set of ben holds 1 points of 4 twice"):
        common_places({"anna": points, "ben": np.concatenate([points, points[:1]])})
    with pytest.raises(InvalidParameter, match="two or more"):
        common_places({"anna": points})
