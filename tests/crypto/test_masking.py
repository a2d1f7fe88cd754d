from __future__ import annotations

import copy
import itertools
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import masking
from hedgerow.crypto.csprng import CHUNK_BYTES, Keystream
from hedgerow.crypto.masking import (
    MAX_WORDS,
    KeyPair,
    PairwiseMasks,
    Position,
    derived,
    joined,
    nonce_of,
    pair_secret,
    signed_key_statement,
)
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

NAMES = ["anna", "ben", "carla", "dmitri", "eve", "Fritz", "grün", "水"]
WORDS = st.integers(0, 2**64 - 1)


def all_secrets(names, round_id=0, run_id="run"):
    """The pair secrets of every owner, after a key exchange."""
    keys = {name: KeyPair.generate() for name in names}
    return {
        me: {
            peer: pair_secret(keys[me], keys[peer].public, run_id=run_id, round_id=round_id, me=me, peer=peer)
            for peer in names
            if peer != me
        }
        for me in names
    }


def all_masks(names, round_id=0):
    """The masks of every owner, after a key exchange."""
    return {me: PairwiseMasks(me, secrets) for me, secrets in all_secrets(names, round_id).items()}


def summed(arrays):
    """The sum modulo 2**64."""
    return np.add.reduce(list(arrays))


def uniformity(words, cells=256):
    """Chi-square of the bytes of some words against the uniform distribution, as a z-score."""
    found = np.bincount(np.ascontiguousarray(words).view(np.uint8).reshape(-1), minlength=cells)
    expected = found.sum() / cells
    return (np.sum((found - expected) ** 2) / expected - (cells - 1)) / np.sqrt(2 * (cells - 1))


# The law


@settings(max_examples=40, deadline=None)
@given(data=st.data(), n_owners=st.integers(2, 8), n_words=st.integers(0, 20))
def test_masks_cancel_in_the_sum(data, n_owners, n_words):
    """The sum of what all owners hide is the sum of their values mod 2**64, also among survivors after re-keying."""
    names = data.draw(st.permutations(NAMES))[:n_owners]
    draw = st.lists(WORDS, min_size=n_words, max_size=n_words)
    values = {name: np.array(data.draw(draw), np.uint64) for name in names}
    masks = all_masks(names)
    for position in (Position(0), Position(2, 0, 1), Position(2, 7)):
        hidden = {name: masks[name].hide(values[name], position) for name in names}
        assert np.array_equal(summed(hidden.values()), summed(values.values()))

    survivors = names[: max(2, n_owners - data.draw(st.integers(1, 3)))]
    masks = all_masks(survivors, round_id=1)
    hidden = {name: masks[name].hide(values[name], Position(2, 7)) for name in survivors}
    assert np.array_equal(summed(hidden.values()), summed(values[name] for name in survivors))


@pytest.mark.parametrize("n_words", [1, 3, CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 8, CHUNK_BYTES // 8 + 1, 10_001])
def test_masks_cancel_for_every_length(n_words):
    """Messages shorter and longer than what is masked in one go cancel alike."""
    masks = all_masks(NAMES[:3])
    values = {name: np.arange(n_words, dtype=np.uint64) * np.uint64(k + 1) for k, name in enumerate(masks)}
    total = summed(masks[name].hide(values[name], Position(2)) for name in masks)
    assert np.array_equal(total, np.arange(n_words, dtype=np.uint64) * np.uint64(6))


def test_words_do_not_depend_on_how_they_are_computed():
    """Masks are AES-256-CTR from the position's counter, + to later and - to earlier names, as little-endian words."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    secrets = {"anna": bytes([1]) * 32, "carla": bytes([2]) * 32}
    n_words = 3 * CHUNK_BYTES // 8 + 5

    def stream(secret):
        nonce = bytes([2, 0, 0, 0, 9, 0, 4, 0, 1]) + bytes(7)
        cipher = Cipher(algorithms.AES(derived(secret, "mask stream v1")), modes.CTR(nonce)).encryptor()
        return np.frombuffer(cipher.update(bytes(8 * n_words)), "<u8")

    hidden = PairwiseMasks("ben", secrets).hide(np.zeros(n_words, np.uint64), Position(2, 9, 4, 1))
    assert np.array_equal(hidden, stream(secrets["carla"]) - stream(secrets["anna"]))


def test_shape_and_values_are_kept():
    """hide works on any shape and strides, leaves its input alone, and can write in place."""
    values = np.arange(24, dtype=np.uint64).reshape(2, 3, 4)
    secrets = all_secrets(NAMES[:2])
    expected = PairwiseMasks("anna", secrets["anna"]).hide(values, Position(0))
    assert expected.shape == values.shape
    assert np.array_equal(values.reshape(-1), np.arange(24))

    strided = np.repeat(values, 2, axis=-1)[..., ::2]
    assert np.array_equal(PairwiseMasks("anna", secrets["anna"]).hide(strided, Position(0)), expected)

    into = values.copy()
    assert PairwiseMasks("anna", secrets["anna"]).hide(into, Position(0), out=into) is into
    assert np.array_equal(into, expected)
    scalar = PairwiseMasks("anna", secrets["anna"]).hide(np.array(5, np.uint64), Position(0))
    assert scalar.shape == ()


def test_rounds_do_not_mix():
    """Messages of an old round and of a new one do not cancel: their sum stays uniform."""
    names = NAMES[:4]
    values = np.zeros(4096, np.uint64)
    old, new = all_masks(names, 0), all_masks(names, 1)
    hidden_old = {name: old[name].hide(values, Position(2, 1)) for name in names}
    hidden_new = {name: new[name].hide(values, Position(2, 1)) for name in names}
    assert not summed(hidden_old.values()).any()
    for from_old in itertools.product([False, True], repeat=4):
        mixed = summed(
            (hidden_old if is_old else hidden_new)[name] for name, is_old in zip(names, from_old, strict=True)
        )
        if len(set(from_old)) == 1:
            assert not mixed.any()
        else:
            assert abs(uniformity(mixed)) < 6
            assert len(np.unique(mixed)) == len(mixed)


def test_round_and_run_change_the_secret():
    """The same two keys give another secret in another run, another round or between other names."""
    mine, theirs = KeyPair.generate(), KeyPair.generate()
    base = {"run_id": "run", "round_id": 0, "me": "anna", "peer": "ben"}
    secrets = [
        pair_secret(mine, theirs.public, **{**base, **change})
        for change in ({}, {"run_id": "other"}, {"round_id": 1}, {"me": "ann"}, {"peer": "bea"})
    ]
    assert len(set(secrets)) == 5
    assert pair_secret(theirs, mine.public, run_id="run", round_id=0, me="ben", peer="anna") == secrets[0]


# What an observer sees


def test_one_message_is_uniform_over_keys():
    """One hidden message alone has uniform bytes, whatever it hides, at every one of its words."""
    names = NAMES[:3]
    values = np.array([0, 1, 2**64 - 1, 12345], np.uint64)
    hidden = np.array([PairwiseMasks("ben", {n: os.urandom(32) for n in names if n != "ben"}).hide(values, Position(0))
                       for _ in range(3000)])  # fmt: skip
    for word in hidden.T:
        assert abs(uniformity(word)) < 6


@pytest.mark.parametrize("missing", range(4))
def test_sum_without_one_owner_is_uniform(missing):
    """The sum over all owners but one is uniform, although the sum over all is exact."""
    names = NAMES[:4]
    values = np.full(20_000, 77, np.uint64)
    masks = all_masks(names)
    hidden = [masks[name].hide(values, Position(2, 3)) for name in names]
    assert np.array_equal(summed(hidden), values * np.uint64(4))
    assert abs(uniformity(summed(h for k, h in enumerate(hidden) if k != missing))) < 6


def test_uniformity_finds_what_is_not_uniform():
    """The check above can fail: bare small values, and words with one biased bit, are found."""
    assert uniformity(np.arange(20_000, dtype=np.uint64)) > 6
    words = np.frombuffer(os.urandom(160_000), np.uint64).copy()
    words[::2] |= np.uint64(1)
    assert uniformity(words) > 6


def test_different_positions_share_no_mask_words():
    """Two messages under different positions of one key have no mask word in common, however near the positions."""
    masks = PairwiseMasks("anna", {"ben": os.urandom(32)})
    positions = [Position(0), Position(0, 0, 0, 1), Position(0, 0, 1), Position(0, 1), Position(1), Position(255)]
    words = [masks.hide(np.zeros(5000, np.uint64), position) for position in positions]
    assert len(np.unique(np.concatenate(words))) == 5000 * len(positions)


def test_longest_message_ends_before_the_next_position():
    """The counters of the longest message allowed stay below those of the next position."""
    first, following = (int.from_bytes(nonce_of(Position(2, 3, 4, part)), "big") for part in (5, 6))
    assert first + MAX_WORDS // 2 <= following
    assert following - first == 2**56


class NaiveMasks:
    """The twin that ignores positions: one mask stream for every message, as if the counter were forgotten."""

    def __init__(self, secrets):
        self.streams = [Keystream(derived(secret, "mask stream v1")) for secret in secrets.values()]

    def hide(self, values, _position):
        """Values under masks that are the same each time."""
        return masking.add_streams(values, self.streams, [], nonce_of(Position(0)))


def test_naive_reuse_gives_away_the_difference():
    """With a mask used twice an observer computes G_a - G_b exactly, without any key; with positions it gets noise."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1000, 500).astype(np.uint64) for _ in range(2))
    secrets = {"ben": os.urandom(32), "carla": os.urandom(32)}

    naive = NaiveMasks(secrets)
    seen_a, seen_b = naive.hide(a, Position(2, 0)), naive.hide(b, Position(2, 1))
    assert np.array_equal(seen_a - seen_b, a - b)

    masks = PairwiseMasks("anna", secrets)
    seen_a, seen_b = masks.hide(a, Position(2, 0)), masks.hide(b, Position(2, 1))
    assert not np.any(seen_a - seen_b == a - b)
    with pytest.raises(ProtocolError, match="used twice"):
        masks.hide(b, Position(2, 0))


# Positions are spent


@given(positions=st.lists(st.builds(Position, *[st.integers(0, 2)] * 4), min_size=1, max_size=30))
def test_positions_only_increase(positions):
    """A position is accepted exactly if it comes after all accepted before it, compared from left to right."""
    masks = PairwiseMasks("anna", {"ben": bytes(32)})
    last = None
    for position in positions:
        if last is None or position > last:
            masks.hide(np.zeros(1, np.uint64), position)
            last = position
        else:
            with pytest.raises(ProtocolError, match="cannot be used"):
                masks.hide(np.zeros(1, np.uint64), position)


@pytest.mark.parametrize("field", range(4))
def test_order_of_positions_holds_across_bytes(field):
    """255 comes before 256 and so on: the order is that of numbers in every field."""
    highest = [2**8, 2**32, 2**16, 2**16][field] - 1
    numbers = sorted({0, 1, 127, 128, 255, min(256, highest), highest})
    packed = [Position(*[k if f == field else 0 for f in range(4)]).packed() for k in numbers]
    assert packed == sorted(set(packed))


def test_position_is_spent_also_if_masking_fails(monkeypatch):
    """When something breaks half-way the position is gone, and no half-masked value is left behind."""
    masks = PairwiseMasks("ben", {"anna": os.urandom(32), "carla": os.urandom(32)})
    real = Keystream.fill
    calls = iter([True, False])

    def breaks_at_the_second_peer(self, buffer):
        if not next(calls):
            raise MemoryError
        real(self, buffer)

    out = np.full(10, 9, np.uint64)
    with monkeypatch.context() as patch:
        patch.setattr(Keystream, "fill", breaks_at_the_second_peer)
        with pytest.raises(MemoryError):
            masks.hide(out, Position(2, 5), out=out)
    assert not out.any()
    with pytest.raises(ProtocolError, match="cannot be used"):
        masks.hide(out, Position(2, 5))
    masks.hide(out, Position(2, 5, 1))


def test_refused_values_spend_nothing():
    """Input that is refused at the door has used no mask, so its position is still free."""
    masks = PairwiseMasks("anna", {"ben": os.urandom(32)})
    with pytest.raises(InvalidType):
        masks.hide(np.zeros(2), Position(1))
    masks.hide(np.zeros(2, np.uint64), Position(1))


def test_threads_cannot_share_a_position():
    """Of many threads that want one position exactly one gets it."""
    masks = PairwiseMasks("anna", {"ben": os.urandom(32)})
    start, got = threading.Barrier(8), []

    def want():
        start.wait()
        for tree in range(50):
            try:
                masks.hide(np.zeros(300, np.uint64), Position(2, tree))
            except ProtocolError:
                continue
            got.append(tree)

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got))
    assert max(got) == 49


@pytest.mark.parametrize("make", [lambda: PairwiseMasks("anna", {"ben": bytes(32)}), KeyPair.generate])
def test_no_copies(make):
    """Masks and private keys cannot be copied or pickled, and do not show what they hold."""
    original = make()
    for copied in (copy.copy, copy.deepcopy, lambda it: it.__reduce_ex__(4)):
        with pytest.raises(ProtocolError, match="cannot be copied"):
            copied(original)
    assert repr(original).startswith(type(original).__name__)
    assert str(bytes(32)) not in repr(original)


def test_no_use_after_fork(monkeypatch):
    """A process that only inherited the masks cannot use them."""
    masks = PairwiseMasks("anna", {"ben": os.urandom(32)})
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ProtocolError, match="forked"):
        masks.hide(np.zeros(1, np.uint64), Position(0))


# Bad input


@pytest.mark.parametrize(
    "position",
    [(-1, 0, 0, 0), (256, 0, 0, 0), (0, 2**32, 0, 0), (0, 0, 2**16, 0), (0, 0, 0, -1), (0, 0), (0, 0.5, 0, 0)],
)
def test_positions_out_of_range(position):
    """A position outside its fields is refused, not wrapped round into another."""
    with pytest.raises(ProtocolError, match="position is"):
        PairwiseMasks("anna", {"ben": bytes(32)}).hide(np.zeros(1, np.uint64), position)


def test_too_long_a_message():
    """A message longer than the counter allows is refused before anything is computed."""
    endless = np.broadcast_to(np.uint64(0), (MAX_WORDS + 1,))
    with pytest.raises(ProtocolError, match="too long"):
        PairwiseMasks("anna", {"ben": bytes(32)}).hide(endless, Position(0))


@pytest.mark.parametrize(
    ("secrets", "error", "words"),
    [
        ({}, ProtocolError, "nobody to share"),
        ({"anna": bytes(32), "ben": bytes(32)}, ProtocolError, "anna itself"),
        ({"ben": bytes(31)}, InvalidParameter, "ben must have 32 bytes, got 31"),
        ({"ben": bytes(32), "carla": bytes(32)}, ProtocolError, "one secret with two"),
    ],
)
def test_secrets_that_hide_nothing(secrets, error, words):
    """A set of secrets that would not protect is refused, with the reason."""
    with pytest.raises(error, match=words):
        PairwiseMasks("anna", secrets)


@pytest.mark.parametrize("values", [np.zeros(2, np.int64), np.zeros(2), [1, 2], np.zeros(2, np.uint32)])
def test_only_words_are_masked(values):
    """Anything but an array of uint64 is refused."""
    with pytest.raises(InvalidType, match="uint64"):
        PairwiseMasks("anna", {"ben": bytes(32)}).hide(values, Position(0))


def test_bad_outputs():
    """An output of another type, shape or layout is refused."""
    masks = PairwiseMasks("anna", {"ben": bytes(32)})
    values = np.zeros((2, 3), np.uint64)
    read_only = values.copy()
    read_only.flags.writeable = False
    with pytest.raises(InvalidType, match="out must be"):
        masks.hide(values, Position(0), out=np.zeros((2, 3)))
    for out in (np.zeros((3, 2), np.uint64), np.zeros((3, 2), np.uint64).T, read_only):
        with pytest.raises(InvalidParameter, match="out must be"):
            masks.hide(values, Position(0), out=out)


# Keys


def test_bad_public_keys():
    """A key of the wrong length, one's own key sent back and a key that forces a known secret are refused by name."""
    mine = KeyPair.generate()
    about = {"run_id": "run", "round_id": 0, "me": "anna", "peer": "ben"}
    with pytest.raises(ProtocolError, match="ben gave a public key of 31 bytes"):
        pair_secret(mine, bytes(31), **about)
    with pytest.raises(ProtocolError, match="ben gave the public key of anna"):
        pair_secret(mine, mine.public, **about)
    for low_order in (bytes(32), bytes([1]) + bytes(31)):
        with pytest.raises(ProtocolError, match="ben gave a public key that would"):
            pair_secret(mine, low_order, **about)
    with pytest.raises(ProtocolError, match="itself"):
        pair_secret(mine, KeyPair.generate().public, run_id="run", round_id=0, me="anna", peer="anna")
    with pytest.raises(InvalidParameter, match="round_id"):
        pair_secret(mine, KeyPair.generate().public, run_id="run", round_id=-1, me="anna", peer="ben")


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3), st.text(max_size=3)), min_size=2, max_size=6))
def test_statements_are_unambiguous(claims):
    """Two different claims about a key never have the same bytes to sign."""
    statements = {claim: signed_key_statement(*claim, bytes(32), job=b"job") for claim in claims}
    assert len(set(statements.values())) == len(set(claims))


@given(*[st.lists(st.text("ab", max_size=3), max_size=4)] * 2)
def test_joined_parts_can_be_told_apart(one, two):
    """Different lists of parts never become the same bytes, wherever their borders are."""
    assert (joined(*one) == joined(*two)) == (one == two)
    assert joined("ab", "c") != joined("a", "bc")
    assert joined("a") != joined("a", "")


def test_statement_binds_the_key():
    """The statement changes with the key, and a key of another length has none."""
    one, two = (signed_key_statement("run", 0, "anna", KeyPair.generate().public, job=b"job") for _ in range(2))
    assert one != two
    with pytest.raises(ProtocolError, match="anna gave a public key of 3 bytes"):
        signed_key_statement("run", 0, "anna", b"abc", job=b"job")


def test_keys_differ():
    """Every generated pair is new."""
    assert len({KeyPair.generate().public for _ in range(50)}) == 50
