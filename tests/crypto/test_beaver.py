from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import beaver, limbs, shares
from hedgerow.crypto.beaver import Triple
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.dealing import Dealer, Hand, Label
from hedgerow.crypto.ring import rows_times
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, XOR64, Share, limbs_kind
from hedgerow.errors import InvalidType
from twins.openings import Opening, repeated_masks

KINDS = [SUM32, SUM64, XOR8, XOR64, limbs_kind(4), limbs_kind(5)]
SUMS = [SUM32, SUM64]
LABEL = Label(tree=3, level=1)


class Table:
    """A dealer, all parties, and the wire between them, for one step."""

    def __init__(self, n_parties, run=0):
        self.random = SecureRandom.from_seed(run.to_bytes(32, "little"))
        seeds = [self.random.bytes(32) for _ in range(n_parties)]
        self.n_parties = n_parties
        self.dealer = Dealer(seeds)
        self.hands = [Hand(seed, me, n_parties) for me, seed in enumerate(seeds)]
        self.opened = []

    def deal(self, deal, take, label=LABEL, members=None):
        """What each party takes of what was dealt."""
        step = self.dealer.step(label)
        deal(step)
        parcels = step.corrections()
        taken = {}
        for me in range(self.n_parties) if members is None else members:
            mine = self.hands[me].step(label, parcels.get(me))
            taken[me] = take(mine) if members is None else take(mine, me)
            mine.finish()
        return taken

    def words(self, kind, shape):
        """Uniform words."""
        shape = kind.words_shape(shape)
        raw = self.random.bytes(int(np.prod(shape)) * kind.dtype.itemsize)
        return np.frombuffer(raw, kind.dtype).reshape(shape)

    def split(self, value, kind):
        """Shares of a value, for every party."""
        others = [self.words(kind, value.shape[:-1] if kind.limbs else value.shape) for _ in range(self.n_parties - 1)]
        return [Share(words, kind) for words in (*others, reduce(kind.sub, others, value))]

    def open(self, kind, parts, name="opened"):
        """What the words that all parties send make."""
        value = kind.total(list(parts))
        self.opened.append(Opening(name, value, "limbs" if kind.limbs else "bits" if kind.is_xor else "sum"))
        return value


def value_of(shares):
    """The value behind the shares of all parties."""
    return shares[0].kind.total([share.words for share in shares])


def masked(x, a):
    """What a party sends of x under the mask a."""
    return shares.masked("x", x, a).words


def at_holder_of(E, b, c):
    """What a holder of y has of [X y], before y is known: E [B] + [C]."""
    return Share(b.kind.add(rows_times(E, b.words), c.words), b.kind)


def at_owner_of(X, F, c):
    """What the owner of X has of [X y]: X F + [C]."""
    return Share(c.kind.add(rows_times(X, F), c.words), c.kind)


def deal_fixed(step, A, vectors, kind, *, holders, among):
    """Vectors B among their holders, and A B' among those who get the result; gives B."""
    B = step.mask((vectors, A.shape[1]), kind, holders)
    step.share(rows_times(A, B), kind, among)
    return B


def whole(words, kind):
    """Python's integers."""
    return limbs.to_ints(words, signed=False) if kind.limbs else words.astype(object)


def modulus(kind):
    """The ring is modulo this."""
    return 1 << (8 * kind.number_bytes)


def multiply(table, x, y, kind):
    """Shares of x y by the protocol."""
    triples = table.deal(
        lambda step: beaver.deal_product(step, x[0].shape, kind),
        lambda step: beaver.take_product(step, x[0].shape, kind),
    )
    e = table.open(kind, [masked(x[m], triples[m].a) for m in triples], "e")
    f = table.open(kind, [masked(y[m], triples[m].b) for m in triples], "f")
    return [beaver.product(e, f, triples[m], is_first=m == 0) for m in triples]


# The laws


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), n_parties=st.integers(2, 8), run=st.integers(0, 2**30), n=st.integers(0, 6))
def test_product(kind, n_parties, run, n):
    """[x y] opens to x y, against Python's integers."""
    table = Table(n_parties, run)
    x, y = table.words(kind, n), table.words(kind, n)
    found = whole(value_of(multiply(table, table.split(x, kind), table.split(y, kind), kind)), kind)
    expected = whole(x & y, kind) if kind.is_xor else whole(x, kind) * whole(y, kind) % modulus(kind)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("owner", [1, 2])
def test_fixed_matrix_and_a_private_vector(kind, owner):
    """The owner's matrix is opened once to the holder; each vector then costs one message, and two parties have X y."""
    rows, columns, holder = 7, 50, 0
    table = Table(3)
    X = (table.words(kind, (rows, columns)) & kind.dtype.type(1)).astype(kind.dtype)
    setup = table.dealer.step(Label())
    A = setup.mask((rows, columns), kind, (owner,))
    a = table.hands[owner].step(Label()).mask((rows, columns), kind, (owner,))
    E = kind.sub(X, a.words)
    table.opened.append(Opening("E", E))
    for tree, vectors in enumerate((2, 4), start=1):
        y = table.words(kind, (vectors, columns))
        label = Label(tree=tree)
        step = table.dealer.step(label)
        B = deal_fixed(step, A, vectors, kind, holders=(holder,), among=(holder, owner))
        parcels = step.corrections()
        assert sum(map(len, parcels.values())) <= vectors * rows * kind.dtype.itemsize + 16 + 7

        at_holder = table.hands[holder].step(label, parcels.get(holder))
        b = at_holder.mask((vectors, columns), kind, (holder,))
        assert np.array_equal(b.words, B)
        ahead = at_holder_of(E, b, at_holder.share((vectors, rows), kind, (holder, owner)))
        F = kind.sub(y, b.words)
        table.opened.append(Opening("F", F))

        at_owner = table.hands[owner].step(label, parcels.get(owner))
        c = at_owner.share((vectors, rows), kind, (holder, owner))
        its_own = at_owner_of(X, F, c)
        assert np.array_equal(value_of([ahead, its_own]), y @ X.T)


@pytest.mark.parametrize("kind", SUMS)
def test_fixed_matrix_and_a_shared_vector(kind):
    """With y shared among all, everybody computes E [B] + [C], and the owner adds X F."""
    rows, columns, vectors, owner = 5, 40, 2, 1
    table = Table(4)
    X, y = table.words(kind, (rows, columns)), table.words(kind, (vectors, columns))
    A = table.dealer.step(Label()).mask((rows, columns), kind, (owner,))
    E = kind.sub(X, table.hands[owner].step(Label()).mask((rows, columns), kind, (owner,)).words)
    taken = table.deal(
        lambda step: deal_fixed(step, A, vectors, kind, holders=None, among=None),
        lambda step: (step.mask((vectors, columns), kind), step.share((vectors, rows), kind)),
    )
    F = table.open(kind, [masked(share, taken[m][0]) for m, share in enumerate(table.split(y, kind))])
    shares = []
    for m, (b, c) in taken.items():
        if m == owner:
            c = at_owner_of(X, F, c)  # noqa: PLW2901 - its share of C with X F in it
        shares.append(at_holder_of(E, b, c))
    assert np.array_equal(value_of(shares), y @ X.T)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from([SUM64, XOR8, limbs_kind(4), limbs_kind(5)]), n_parties=st.integers(2, 5),
    run=st.integers(0, 2**30), n=st.integers(1, 4), group=st.integers(1, 6),
)  # fmt: skip
def test_cross_products(kind, n_parties, run, n, group):
    """[P_i Q_j - P_j Q_i] opens to it for all pairs, with one dealt number each and two opened per member."""
    table = Table(n_parties, run)
    P, Q = table.words(kind, (n, group)), table.words(kind, (n, group))
    P_shares, Q_shares = table.split(P, kind), table.split(Q, kind)
    triples = table.deal(
        lambda step: beaver.deal_cross_products(step, n, group, kind),
        lambda step: beaver.take_cross_products(step, n, group, kind),
    )
    e = table.open(kind, [masked(P_shares[m], triples[m].a) for m in triples])
    f = table.open(kind, [masked(Q_shares[m], triples[m].b) for m in triples])
    found = whole(value_of([beaver.cross_products(e, f, triples[m], is_first=m == 0) for m in triples]), kind)
    P, Q = whole(P, kind), whole(Q, kind)
    for p, (i, j) in enumerate(zip(*beaver.pairs_of(group), strict=True)):
        if kind.is_xor:
            expected = (P[:, i] & Q[:, j]) ^ (P[:, j] & Q[:, i])
        else:
            expected = (P[:, i] * Q[:, j] - P[:, j] * Q[:, i]) % modulus(kind)
        assert np.array_equal(found[:, p], expected)
    assert found.shape == (n, group * (group - 1) // 2)


@pytest.mark.parametrize("kind", KINDS)
def test_private_product(kind):
    """The reader gets s t from the one of the others whose t is wanted; its S is the same for all of them."""
    n, reader, others = 20, 0, (1, 2, 3)
    table = Table(4)
    s, t = table.words(kind, n), table.words(kind, n)
    label = Label(tree=3)
    taken = table.deal(
        lambda step: beaver.deal_private_product(step, n, kind, reader=reader, others=others),
        lambda step, me: (
            beaver.take_as_reader(step, n, kind, reader=reader, others=others)
            if me == reader
            else beaver.take_as_other(step, n, kind, reader=reader, me=me)
        ),
        label,
        range(4),
    )
    for other in others:
        S = beaver.hidden_input(s, taken[reader][other])
        T = beaver.hidden_input(t, taken[other])
        u = beaver.answer_to_reader(S, t, taken[other])
        assert np.array_equal(beaver.private_product(T, u, taken[reader][other]), kind.mul(s, t))


@pytest.mark.parametrize("kind", SUMS)
def test_rows_times(kind):
    """The sum over columns, modulo 2**32 or 2**64, for sizes beside those of the kernel's vectors and tiles."""
    table = Table(2)
    for rows, columns, vectors in [(1, 1, 1), (3, 4099, 2), (8, 64, 9), (5, 0, 3), (0, 9, 1)]:
        X, y = table.words(kind, (rows, columns)), table.words(kind, (vectors, columns))
        assert np.array_equal(rows_times(X, y), y @ X.T)


# What others see


def z_score(words):
    """Chi-square of the bytes of some words against the uniform distribution, as a z-score."""
    found = np.bincount(np.ascontiguousarray(words).view(np.uint8).reshape(-1), minlength=256)
    expected = found.sum() / 256
    return (np.sum((found - expected) ** 2) / expected - 255) / np.sqrt(2 * 255)


@pytest.mark.parametrize("kind", [SUM32, XOR8, limbs_kind(5)])
@pytest.mark.parametrize("missing", [0, 2])
def test_what_all_but_one_see_is_uniform(kind, missing):
    """For fixed secrets, what M-1 parties hold, what is opened, and all differences of any two of these are uniform."""
    x = y = np.zeros(kind.words_shape(16), kind.dtype)
    views = []
    for run in range(300):
        table = Table(3, run)
        x_shares, y_shares = table.split(x, kind), table.split(y, kind)
        triples = table.deal(
            lambda step: beaver.deal_product(step, 16, kind), lambda step: beaver.take_product(step, 16, kind)
        )
        e = table.open(kind, [masked(x_shares[m], triples[m].a) for m in triples])
        f = table.open(kind, [masked(y_shares[m], triples[m].b) for m in triples])
        seen = [part.words for m in range(3) if m != missing for part in (*triples[m], x_shares[m], y_shares[m])]
        views.append([*seen, e, f])
    columns = [np.stack(column) for column in zip(*views, strict=True)]
    for place, column in enumerate(columns):
        assert abs(z_score(column)) < 5
        for other in columns[:place]:
            assert abs(z_score(kind.sub(column, other))) < 5


def runs_of(openings, n_runs):
    """What is opened in several runs over the same data."""
    return [openings(run) for run in range(n_runs)]


@pytest.mark.parametrize(("kind", "n_runs"), [(SUM32, 4), (limbs_kind(5), 4), (XOR64, 64)])
def test_no_mask_covers_two_values(kind, n_runs):
    """Nothing that a chain of products opens moves together with anything else from seed to seed."""

    def openings(run):
        table = Table(3, run)
        fixed = Table(2, 10**6)  # the same values in every run
        x, y = fixed.words(kind, 40), fixed.words(kind, 40)
        multiply(table, table.split(x, kind), table.split(y, kind), kind)
        return table.opened

    assert repeated_masks(runs_of(openings, n_runs)) == []


@pytest.mark.parametrize(("kind", "n_runs"), [(SUM32, 4), (limbs_kind(5), 4), (XOR64, 64)])
def test_a_triple_used_twice_is_found(kind, n_runs):
    """The control: two products under one triple are found, each masked number of the first with that of the second."""

    def openings(run):
        table = Table(3, run)
        fixed = Table(2, 10**6)
        triples = table.deal(
            lambda step: beaver.deal_product(step, 10, kind), lambda step: beaver.take_product(step, 10, kind)
        )
        for name in ("first", "second"):
            x = table.split(fixed.words(kind, 10), kind)
            table.open(kind, [masked(x[m], triples[m].a) for m in triples], name)
        return table.opened

    n = 10 * 64 if kind.is_xor else 10
    found = repeated_masks(runs_of(openings, n_runs))
    assert [(first, second) for first, second, _ in found] == [(("first", k), ("second", k)) for k in range(n)]
    assert {relation for *_, relation in found} == {"same"}


# Bad input


def test_opened_words_of_another_kind():
    """Words of the wrong width are refused, not broadcast."""
    triple = Triple(*(Share(np.zeros(3, np.uint64), SUM64) for _ in range(3)))
    good, bad = np.zeros(3, np.uint64), np.zeros(3, np.uint32)
    with pytest.raises(InvalidType, match="sum64"):
        beaver.product(bad, good, triple, is_first=True)
    with pytest.raises(InvalidType, match="sum64"):
        beaver.product(good, bad, triple, is_first=False)
    with pytest.raises(InvalidType, match="do not go together"):
        masked(Share(bad, SUM32), triple.a)
