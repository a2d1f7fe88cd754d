from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import dealing
from hedgerow.crypto.csprng import CHUNK_BYTES, Keystream, SecureRandom
from hedgerow.crypto.dealing import MAX_STEP_BYTES, Dealer, Hand, Label
from hedgerow.crypto.masking import derived
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, XOR16, XOR32, XOR64, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

KINDS = [SUM32, SUM64, XOR8, XOR16, XOR32, XOR64, limbs_kind(1), limbs_kind(4), limbs_kind(5)]
kinds = st.sampled_from(KINDS)


def seeds_of(n_parties, run=0):
    """One seed per party."""
    random = SecureRandom.from_seed(run.to_bytes(32, "little"))
    return [random.bytes(32) for _ in range(n_parties)]


def table(n_parties, run=0, **options):
    """A dealer and the hands of all parties."""
    seeds = seeds_of(n_parties, run)
    return Dealer(seeds, **options), [Hand(seed, me, n_parties, **options) for me, seed in enumerate(seeds)]


def any_words(kind, shape, run=0):
    """Words of a kind, the same for the same run."""
    n_words = int(np.prod(kind.words_shape(shape)))
    raw = SecureRandom.from_seed((run + 1000).to_bytes(32, "little")).bytes(n_words * kind.dtype.itemsize)
    return np.frombuffer(raw, kind.dtype).reshape(kind.words_shape(shape))


def python_total(kind, parts):
    """What words of all parties make, with Python's own integers: the twin of Kind.total."""
    if kind.limbs:
        whole = [
            [int.from_bytes(row.astype("<u4").tobytes(), "little") for row in p.reshape(-1, kind.limbs)] for p in parts
        ]
        bits = 32 * kind.limbs
    else:
        whole = [[int(word) for word in part.reshape(-1)] for part in parts]
        bits = 8 * kind.dtype.itemsize
    result = []
    for numbers in zip(*whole, strict=True):
        total = 0
        for number in numbers:
            total = total ^ number if kind.is_xor else (total + number) % (1 << bits)
        result.append(total)
    return result


# The law


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n_parties=st.integers(2, 8))
def test_shares_make_the_value(data, n_parties):
    """Words and corrections add up to the mask or the value, for every kind, among any parties, whatever the order."""
    dealer, hands = table(n_parties)
    groups = st.one_of(
        st.none(), st.sets(st.integers(0, n_parties - 1), min_size=1).map(lambda chosen: tuple(sorted(chosen)))
    )
    draws = data.draw(st.lists(st.tuples(st.booleans(), kinds, groups, st.integers(0, 7)), min_size=1, max_size=6))
    draws = [(is_mask or (among is not None and len(among) < 2), kind, among, n) for is_mask, kind, among, n in draws]
    label = data.draw(st.builds(Label, *(st.integers(0, 255) for _ in range(5))))

    step = dealer.step(label)
    values = []
    for run, (is_mask, kind, among, n) in enumerate(draws):
        if is_mask:
            values.append(step.mask(n, kind, among))
        else:
            values.append(any_words(kind, n, run))
            step.share(values[-1], kind, among)
    parcels = step.corrections()
    steps = [hand.step(label, parcels.get(hand.me)) for hand in hands]
    for (is_mask, kind, among, n), value in zip(draws, values, strict=True):
        members = range(n_parties) if among is None else among
        shares = [steps[m].mask(n, kind, among) if is_mask else steps[m].share(n, kind, among) for m in members]
        assert all(share.kind is kind and share.shape == (n,) for share in shares)
        found = kind.total([share.words for share in shares])
        assert np.array_equal(found, value)
        assert python_total(kind, [share.words for share in shares]) == python_total(kind, [value])
    for step in steps:
        step.finish()


@pytest.mark.parametrize("kind", [SUM32, XOR8, limbs_kind(5)])
def test_more_words_than_fit_the_cache(kind):
    """Pieces are put together without a gap, and draws follow each other: rows may be streamed in blocks."""
    n = 2 * CHUNK_BYTES // kind.number_bytes + 37
    (dealer, hands), (other, _) = table(3), table(3)
    whole = dealer.step(Label()).mask(n, kind)
    step = other.step(Label())
    assert np.array_equal(np.concatenate([step.mask(11, kind), step.mask(n - 11, kind)]), whole)
    parts = [hand.step(Label()) for hand in hands]
    assert np.array_equal(kind.total([part.mask(n, kind).words for part in parts]), whole)


def test_the_words_are_the_keystream():
    """Party m's words are AES-256-CTR under the key of its seed and lane, from the counter that names the label."""
    label = Label(1, 2, 3, 4, 5)
    hand = Hand(bytes(range(32)), 1, 2, lane="ahead")
    words = hand.step(label).mask(6, SUM32).words
    stream = Keystream(derived(bytes(range(32)), "dealt words v1", "ahead"))
    stream.start(bytes.fromhex("00010000000203000400050000000000"))
    expected = bytearray(24)
    stream.fill(memoryview(expected))
    assert words.astype("<u4").tobytes() == bytes(expected)


def test_masks_cost_nothing():
    """Only shares of values that the dealer chose are sent: one number each, to one party, after 16 bytes of label."""
    dealer, _ = table(4)
    step = dealer.step(Label())
    step.mask(1000, SUM32)
    assert step.corrections() == {}
    step.share(any_words(SUM32, 1000), SUM32)
    assert sum(len(parcel) for parcel in step.corrections().values()) == 16 + 4000


@pytest.mark.parametrize("among", [None, (0, 2), (1, 2, 4)])
def test_corrections_go_round(among):
    """Over the labels of a tree and over the shares of one step, every party gets equally many corrections."""
    dealer, _ = table(5)
    members = range(5) if among is None else among
    over_labels = [dealer.step(Label(tree=t)).share(any_words(XOR8, 3), XOR8, among) for t in range(30)]
    step = dealer.step(Label(tree=30))
    in_one_step = [step.share(any_words(XOR8, 3), XOR8, among) for _ in range(30)]
    for given_to in (over_labels, in_one_step):
        assert {party: given_to.count(party) for party in members} == dict.fromkeys(members, 30 // len(members))


def test_the_dealer_works_ahead():
    """A whole tree is dealt before any party begins; steps that nobody needs are thrown away."""
    dealer, hands = table(3)
    labels = [Label(tree=1, level=level) for level in range(4)]
    dealt = []
    for label in labels:
        step = dealer.step(label)
        dealt.append((step.mask(5, SUM64), step.corrections()))
    for label, (value, _) in list(zip(labels, dealt, strict=True))[::2]:
        assert np.array_equal(SUM64.total([hand.step(label).mask(5, SUM64).words for hand in hands]), value)


# Uniformity


def z_score(words):
    """Chi-square of the bytes of some words against the uniform distribution, as a z-score."""
    found = np.bincount(np.ascontiguousarray(words).view(np.uint8).reshape(-1), minlength=256)
    expected = found.sum() / 256
    return (np.sum((found - expected) ** 2) / expected - 255) / np.sqrt(2 * 255)


@pytest.mark.parametrize("kind", [SUM32, XOR8, limbs_kind(5)])
def test_all_but_one_see_uniform_words(kind):
    """The shares of any M-1 parties of a fixed value are uniform, and so is their sum, which lacks one party's."""
    value = np.zeros(kind.words_shape(8), kind.dtype)
    views = [[] for _ in range(3)]
    for run in range(400):
        dealer, hands = table(3, run)
        step = dealer.step(Label(tree=run))
        step.share(value, kind)
        parcels = step.corrections()
        words = [hand.step(Label(tree=run), parcels.get(hand.me)).share(8, kind).words for hand in hands]
        for missing in range(3):
            seen = [part for party, part in enumerate(words) if party != missing]
            views[missing].append([*seen, kind.total(seen)])
    for view in views:
        for position in range(3):
            assert abs(z_score(np.stack([seen[position] for seen in view]))) < 5


# Never twice


def test_a_label_is_used_once():
    """The same label and an earlier one are refused, at the dealer and at a party."""
    dealer, (hand, _) = table(2)
    for one in (dealer, hand):
        one.step(Label(3, 1, 0, 1))
        for label in (Label(3, 1, 0, 1), Label(3, 1, 0, 0, 7), Label(3, 0, 9)):
            with pytest.raises(ProtocolError, match="already used"):
                one.step(label)
        one.step(Label(3, 1, 0, 1, 1))
        one.step(Label(4, 0))


def test_a_label_is_spent_by_what_fails():
    """Whatever goes wrong after a step has begun, its label stays spent."""
    _, (hand, _) = table(2)
    step = hand.step(Label())
    with pytest.raises(ProtocolError, match="missing"):
        [step.share(1, SUM32) for _ in range(2)]
    with pytest.raises(ProtocolError, match="already used"):
        hand.step(Label())


def test_an_earlier_step_is_over():
    """Once a later step has begun, nothing more can be drawn in the one before it."""
    dealer, (hand, _) = table(2)
    for one in (dealer, hand):
        step = one.step(Label())
        step.mask(1, SUM32)
        one.step(Label(tree=1))
        with pytest.raises(ProtocolError, match="later step"):
            step.mask(1, SUM32)


def test_labels_attempts_and_lanes_have_words_of_their_own():
    """No two labels, attempts, lanes or seeds give the same words."""
    labels = [Label(), Label(part=1), Label(step=1), Label(level=1), Label(tree=1), Label(attempt=1)]
    found = set()
    for seed, lane in ((bytes(32), "main"), (bytes(32), "ahead"), (bytes(31) + b"1", "main")):
        hand = Hand(seed, 0, 2, lane=lane)
        found |= {hand.step(label).mask(4, SUM32).words.tobytes() for label in labels}
    assert len(found) == 18


def test_neither_copied_nor_forked(monkeypatch):
    """A copy, a stored object or a forked process would read the same words again."""
    dealer, (hand, _) = table(2)
    held = [dealer.step(Label()), hand.step(Label())]
    for one in (dealer, hand, *held):
        for attempt in (copy.deepcopy, pickle.dumps):
            with pytest.raises((ProtocolError, TypeError)):
                attempt(one)
    for one in (dealer, hand):
        with pytest.raises(ProtocolError, match="copied"):
            copy.copy(one)
    monkeypatch.setattr("os.getpid", lambda: -1)
    for one in (dealer, hand):
        with pytest.raises(ProtocolError, match="forked"):
            one.step(Label(tree=1))
    for step in held:
        with pytest.raises(ProtocolError, match="forked"):
            step.mask(1, SUM32)


def test_threads_take_turns():
    """Draws of many threads within one step never share words."""
    hand = Hand(bytes(32), 0, 2)
    step = hand.step(Label())
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(int(step.mask(1, SUM64).words[0]) for _ in range(200)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 800


def test_a_step_cannot_run_into_the_next(monkeypatch):
    """A step reads no more of a stream than its counter has room for, on either side."""
    assert MAX_STEP_BYTES == 16 * 2 ** (8 * 5)
    monkeypatch.setattr(dealing, "MAX_STEP_BYTES", 16)
    dealer, (hand, _) = table(2)
    for one in (dealer.step(Label()), hand.step(Label())):
        one.mask(4, SUM32)
        with pytest.raises(ProtocolError, match="another label"):
            one.mask(1, SUM32)


# Bad input


@pytest.mark.parametrize(
    "label",
    [
        (2**16, 0, 0, 0, 0), (0, 2**32, 0, 0, 0), (0, 0, 256, 0, 0), (0, 0, 0, 2**16, 0), (0, 0, 0, 0, -1), (0, 0),
        (0, 0.5, 0, 0, 0),
    ],
)  # fmt: skip
def test_labels_out_of_range(label):
    """A label outside its fields is refused, not wrapped round into another."""
    with pytest.raises(ProtocolError, match="a label is"):
        Hand(bytes(32), 0, 2).step(label)


def test_corrections_that_do_not_fit():
    """Too few or too many corrections, and what are none, are told."""
    dealer, hands = table(2)
    step = dealer.step(Label())
    receiver = step.share(any_words(SUM32, 4), SUM32)
    parcel = step.corrections()[receiver]
    hand = hands[receiver]
    with pytest.raises(ProtocolError, match="end too early"):
        hand.step(Label(), parcel[:24]).share(4, SUM32)
    with pytest.raises(ProtocolError, match="not those for"):
        hand.step(Label(tree=1), parcel)
    step = dealer.step(Label(tree=2))
    step.share(any_words(SUM32, 4), SUM32)
    parcel = step.corrections()[receiver]
    short = hand.step(Label(tree=2), parcel)
    short.share(2, SUM32)
    with pytest.raises(ProtocolError, match="8 bytes"):
        short.finish()
    with pytest.raises(InvalidType, match="bytes"):
        hand.step(Label(tree=3), parcel.view(np.uint32))


def test_bad_tables():
    """Seeds that two parties share, of the wrong length or type; one party alone; a number that nobody has."""
    with pytest.raises(ProtocolError, match="same seed"):
        Dealer([bytes(32), bytes(32)])
    with pytest.raises(ProtocolError, match="two parties"):
        Dealer([bytes(32)])
    with pytest.raises(ProtocolError, match="two parties"):
        Hand(bytes(32), 0, 1)
    with pytest.raises(InvalidParameter, match="32 bytes"):
        Dealer([bytes(32), bytes(31)])
    with pytest.raises(InvalidType, match="bytes"):
        Hand("x" * 32, 0, 2)
    with pytest.raises(InvalidParameter, match="me must be"):
        Hand(bytes(32), 2, 2)


def test_bad_members():
    """A value is not shared with one party alone, with a stranger, or twice with the same; nobody draws for others."""
    dealer, (hand, _, _) = table(3)
    step, mine = dealer.step(Label()), hand.step(Label())
    with pytest.raises(ProtocolError, match="not a secret"):
        step.share(any_words(SUM32, 1), SUM32, (1,))
    for among in ((0, 3), (0, 0), (-1, 1)):
        with pytest.raises(InvalidParameter, match="different parties"):
            step.mask(1, SUM32, among)
    with pytest.raises(InvalidParameter, match="include this party"):
        mine.mask(1, SUM32, (1, 2))
    with pytest.raises(InvalidType, match="uint32"):
        step.share(np.zeros(3), SUM32)


def test_what_is_printed_is_no_secret():
    """Dealers, hands and steps print who they are, not what they hold."""
    dealer, (hand, _) = table(2)
    assert repr(dealer) == "Dealer(2 parties, lane='main')"
    assert repr(hand) == "Hand(party 0 of 2, lane='main')"
    assert "tree=4" in repr(dealer.step(Label(tree=4)))
    assert "tree=4" in repr(hand.step(Label(tree=4)))
