from __future__ import annotations

import copy
import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto.csprng import Keystream, SecureRandom
from hedgerow.crypto.double_masking import DoubleMasks, Share, join, unmask
from hedgerow.crypto.masking import Position, add_streams, nonce_of
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

NAMES = ["anna", "ben", "carla", "dmitri", "eve", "Fritz", "grün", "水"]
AT = Position(2, 5, 1)


def make_owners(names, threshold):
    """Owners that share pair secrets, before any seeds were exchanged."""
    secrets = {frozenset(pair): os.urandom(32) for pair in itertools.combinations(names, 2)}
    return {
        me: DoubleMasks(
            me, {peer: secrets[frozenset((me, peer))] for peer in names if peer != me}, threshold, SecureRandom()
        )
        for me in names
    }


def exchange(owners, tree=5, n_levels=3):
    """All owners seal their seeds for a tree and accept those of the others."""
    blobs = {name: owner.seal_seeds(tree, n_levels) for name, owner in owners.items()}
    for name, owner in owners.items():
        for peer in owners:
            if peer != name:
                owner.accept_seeds(tree, peer, blobs[peer][name])
    return blobs


def ready(names, threshold, tree=5, n_levels=3):
    """Owners that hold each other's seeds for a tree."""
    owners = make_owners(names, threshold)
    exchange(owners, tree, n_levels)
    return owners


def summed(arrays):
    """The sum modulo 2**64."""
    return np.add.reduce(list(arrays))


def uniformity(words):
    """Chi-square of the bytes of some words against the uniform distribution, as a z-score."""
    found = np.bincount(np.ascontiguousarray(words).view(np.uint8).reshape(-1), minlength=256)
    expected = found.sum() / 256
    return (np.sum((found - expected) ** 2) / expected - 255) / np.sqrt(2 * 255)


# The law


@settings(max_examples=40, deadline=None)
@given(data=st.data(), n_owners=st.integers(2, 8))
def test_sum_of_those_that_sent(data, n_owners):
    """Whoever drops out, the coordinator gets the exact sum over those that sent, from any answers that are enough."""
    names = NAMES[:n_owners]
    threshold = data.draw(st.integers(n_owners // 2 + 1, n_owners))
    owners = ready(names, threshold)
    values = {name: np.frombuffer(os.urandom(80), np.uint64) for name in names}
    hidden = {name: owners[name].hide(values[name], AT) for name in names}
    n_dropped = data.draw(st.integers(0, n_owners - threshold))
    dropped = set(data.draw(st.permutations(names))[:n_dropped])
    sent = set(names) - dropped
    answering = sorted(sent) if dropped else data.draw(st.permutations(names))[:threshold]
    answers = {name: owners[name].answer(AT, sent, dropped) for name in answering}
    total = unmask(summed(hidden[name] for name in sent), AT, sent, dropped, answers, threshold)
    assert np.array_equal(total, summed(values[name] for name in sent))


def test_levels_parts_and_trees_go_on():
    """Several levels, parts and trees with changing dropouts each open their own sum; who was gone may come back."""
    names = NAMES[:5]
    owners = make_owners(names, 3)
    values = {name: np.arange(6, dtype=np.uint64) + np.uint64(10 * k) for k, name in enumerate(names)}
    for tree in (0, 1, 4):
        exchange(owners, tree, 2)
        for level, dropped in enumerate([{"ben"}, {"carla", "eve"}]):
            sent = set(names) - dropped
            positions = [Position(2, tree, level, part) for part in (0, 1)]
            hidden = {p: [owners[name].hide(values[name], p) for name in sent] for p in positions}
            for position in positions:
                answers = {name: owners[name].answer(position, sent, dropped) for name in sent}
                total = unmask(summed(hidden[position]), position, sent, dropped, answers, 3)
                assert np.array_equal(total, summed(values[name] for name in sent))


# What the coordinator sees


def test_sum_before_unmasking_is_uniform():
    """The sum over all owners stays uniform until it is unmasked, as does every message."""
    names = NAMES[:3]
    owners = ready(names, 2)
    hidden = [owners[name].hide(np.zeros(20_000, np.uint64), AT) for name in names]
    for words in (*hidden, summed(hidden)):
        assert abs(uniformity(words)) < 6


def test_late_message_stays_hidden():
    """A message that comes after its owner was declared dropped is uniform, although its pairwise masks are known."""
    names = NAMES[:4]
    owners = ready(names, 3)
    hidden = {name: owners[name].hide(np.zeros(20_000, np.uint64), AT) for name in names}
    sent, dropped = set(names) - {"ben"}, {"ben"}
    answers = {name: owners[name].answer(AT, sent, dropped) for name in sent}
    known = {name: Keystream(answers[name]["ben"][1:]) for name in sent}
    without_pairs = add_streams(
        hidden["ben"],
        [stream for name, stream in known.items() if name < "ben"],
        [stream for name, stream in known.items() if name > "ben"],
        nonce_of(AT),
    )
    assert abs(uniformity(without_pairs)) < 6
    own = Keystream(owners["ben"]._trees[AT.tree].seeds[AT.level])
    assert not add_streams(without_pairs, [], [own], nonce_of(AT)).any()  # it was the only mask left


def test_one_answer_opens_one_message_only():
    """The pair seeds and the own seeds told for one level have nothing in common with those of another."""
    names = NAMES[:4]
    owners = ready(names, 3)
    told = set()
    for level in range(3):
        position = Position(2, 5, level)
        for name in names:
            owners[name].hide(np.zeros(1, np.uint64), position)
        answer = owners["anna"].answer(position, {"anna", "ben", "carla"}, {"dmitri"})
        assert told.isdisjoint(answer.values())
        told |= set(answer.values())
    assert len(told) == 12


def openable_sums(n, threshold, dropped_by):
    """How many independent sums a coordinator can open that told owner k that `dropped_by[k]` dropped.

    A pair's mask is gone if one of the two told it; an owner's own mask if `threshold` owners told their share.
    Messages joined by masks that remain can only be opened together, and only if none of them keeps its own mask.
    """
    component = list(range(n))
    for a, b in itertools.combinations(range(n), 2):
        if b not in dropped_by[a] and a not in dropped_by[b]:
            old, new = component[b], component[a]
            component = [new if c == old else c for c in component]
    bare = [sum(j not in dropped for dropped in dropped_by) >= threshold for j in range(n)]
    return sum(all(bare[j] for j in range(n) if component[j] == c) for c in set(component))


def most_openable(n, threshold):
    """The most sums that any lie within the rules of `answer` opens."""
    per_owner = [
        [set(gone) for r in range(n - threshold + 1) for gone in itertools.combinations(set(range(n)) - {k}, r)]
        for k in range(n)
    ]
    return max(openable_sums(n, threshold, lie) for lie in itertools.product(*per_owner))


@pytest.mark.parametrize(("n", "threshold"), [(2, 2), (3, 3), (4, 4), (5, 4), (5, 5)])
def test_high_threshold_holds_a_lying_coordinator(n, threshold):
    """With 4 * threshold > 3 * owners no lie opens more than one sum."""
    assert 4 * threshold > 3 * n
    assert most_openable(n, threshold) == 1


@pytest.mark.parametrize(("n", "threshold", "opened"), [(3, 2, 3), (4, 3, 2)])
def test_low_threshold_does_not(n, threshold, opened):
    """At 4 * threshold <= 3 * owners some lie opens several sums: the bound that the module states is sharp here."""
    assert most_openable(n, threshold) == opened


def test_lying_coordinator_opens_every_message():
    """With 3 owners and threshold 2, telling each owner that another one dropped opens all three messages."""
    names = NAMES[:3]
    owners = ready(names, 2)
    values = {name: np.frombuffer(os.urandom(80), np.uint64) for name in names}
    hidden = {name: owners[name].hide(values[name], AT) for name in names}
    gone = dict(zip(names, names[1:] + names[:1], strict=True))
    answers = {name: owners[name].answer(AT, set(names) - {gone[name]}, {gone[name]}) for name in names}
    for victim in names:
        seed = join([Share.from_bytes(answers[n][victim][1:]) for n in names if gone[n] != victim])
        added, subtracted = [], [Keystream(seed)]
        for peer in set(names) - {victim}:
            told_by, about = (victim, peer) if gone[victim] == peer else (peer, victim)
            (subtracted if victim < peer else added).append(Keystream(answers[told_by][about][1:]))
        assert np.array_equal(add_streams(hidden[victim], added, subtracted, nonce_of(AT)), values[victim])


# One answer per level


def test_never_both_for_one_level():
    """After an answer, another one about the same level is refused, also for another part; the same one is repeated."""
    names = NAMES[:4]
    owners = ready(names, 3)
    anna = owners["anna"]
    other_part = Position(2, 5, 1, 1)
    for position in (AT, other_part):
        anna.hide(np.zeros(1, np.uint64), position)
    first = anna.answer(AT, set(names), set())
    assert anna.answer(AT, set(names), set()) == first
    for position in (AT, other_part):
        for gone in ("ben", "dmitri"):
            with pytest.raises(ProtocolError, match=f"already answered .* with nobody dropped; .* with {gone} dropped"):
                anna.answer(position, set(names) - {gone}, {gone})
    assert anna.answer(other_part, set(names), set()) == first
    with pytest.raises(ProtocolError, match="was answered"):
        anna.hide(np.zeros(1, np.uint64), Position(2, 5, 1, 2))


def test_refused_answer_fixes_nothing():
    """A question that is refused for another reason does not stand in the way of the right one."""
    names = NAMES[:4]
    owners = ready(names, 3)
    owners["anna"].hide(np.zeros(1, np.uint64), AT)
    with pytest.raises(ProtocolError, match="at least 3"):
        owners["anna"].answer(AT, {"anna", "ben"}, {"carla", "dmitri"})
    assert owners["anna"].answer(AT, set(names), set()).keys() == set(names)


@pytest.mark.parametrize(
    ("sent", "dropped", "words"),
    [
        ({"anna", "ben"}, {"carla", "dmitri"}, "2 owners sent a message .anna, ben., at least 3"),
        ({"anna", "ben", "carla"}, {"carla", "dmitri"}, "carla cannot both"),
        ({"anna", "ben", "carla"}, set(), "sent and dropped name anna, ben, carla"),
        ({"anna", "ben", "carla", "dmitri", "eve"}, set(), "the owners are anna, ben, carla, dmitri"),
        ({"ben", "carla", "dmitri"}, {"anna"}, "anna is asked to open a sum that it is said not"),
    ],
)
def test_bad_questions(sent, dropped, words):
    """A question that does not place every owner once, leaves out the asked or names too few is refused."""
    owners = ready(NAMES[:4], 3)
    owners["anna"].hide(np.zeros(1, np.uint64), AT)
    with pytest.raises(ProtocolError, match=words):
        owners["anna"].answer(AT, sent, dropped)


def test_answer_needs_a_message_and_seeds():
    """No answer about a message that was not sent, a level or tree without seeds, or a peer whose seeds are missing."""
    names = NAMES[:3]
    owners = make_owners(names, 2)
    blobs = {name: owners[name].seal_seeds(5, 3) for name in names}
    anna = owners["anna"]
    anna.accept_seeds(5, "ben", blobs["ben"]["anna"])
    with pytest.raises(ProtocolError, match="where it has sent nothing"):
        anna.answer(AT, set(names), set())
    anna.hide(np.zeros(1, np.uint64), AT)
    with pytest.raises(ProtocolError, match="holds no seeds of carla for tree 5"):
        anna.answer(AT, set(names), set())
    assert anna.answer(AT, {"anna", "ben"}, {"carla"}).keys() == set(names)
    with pytest.raises(ProtocolError, match="level 3 is not among them"):
        anna.answer(Position(2, 5, 3), set(names), set())
    with pytest.raises(ProtocolError, match="no seeds for tree 6"):
        anna.answer(Position(2, 6), set(names), set())


# Seeds


def test_seeds_are_sealed_once_and_old_trees_are_forgotten():
    """Trees only go forwards, two of them are kept, and what is forgotten can be neither answered nor hidden again."""
    names = NAMES[:3]
    owners = ready(names, 2, tree=5)
    anna = owners["anna"]
    anna.hide(np.zeros(1, np.uint64), AT)
    for tree in (5, 4):
        with pytest.raises(ProtocolError, match="already sealed"):
            anna.seal_seeds(tree, 3)
    exchange(owners, 6)
    assert anna.answer(AT, set(names), set())
    exchange(owners, 9)
    with pytest.raises(ProtocolError, match="no seeds for tree 5"):
        anna.answer(AT, {"anna", "ben"}, {"carla"})
    with pytest.raises(ProtocolError, match="no seeds for tree 5"):
        anna.hide(np.zeros(1, np.uint64), Position(3, 5, 2))


def test_failed_sealing_spends_the_tree(monkeypatch):
    """If sealing breaks half-way, its tree cannot be sealed again: the nonce may have been used."""
    anna = make_owners(NAMES[:3], 2)["anna"]

    def breaks(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(DoubleMasks, "_sealed", breaks)
        with pytest.raises(MemoryError):
            anna.seal_seeds(5, 3)
    with pytest.raises(ProtocolError, match="already sealed"):
        anna.seal_seeds(5, 3)


def test_blobs_are_for_one_reader_tree_and_length():
    """A blob that was changed, made for another owner, tree or number of levels, or sent twice is refused by name."""
    names = NAMES[:3]
    owners = make_owners(names, 2)
    blobs = {name: owners[name].seal_seeds(5, 3) for name in names}
    anna = owners["anna"]
    good = blobs["ben"]["anna"]
    changed = bytes([good[0] ^ 1]) + good[1:]
    for bad in (
        changed,
        good[:-1],
        good + b"\0",
        b"",
        blobs["ben"]["carla"],
        blobs["carla"]["anna"],
        blobs["anna"]["ben"],
    ):
        with pytest.raises(ProtocolError, match="seeds of ben for tree 5 cannot be opened"):
            anna.accept_seeds(5, "ben", bad)
    with pytest.raises(ProtocolError, match="cannot be opened"):
        anna.accept_seeds(5, "ben", owners["ben"].seal_seeds(6, 3)["anna"])
    with pytest.raises(ProtocolError, match="no seeds for tree 6"):
        anna.accept_seeds(6, "ben", good)
    anna.accept_seeds(5, "ben", good)
    with pytest.raises(ProtocolError, match="ben has already sent"):
        anna.accept_seeds(5, "ben", good)
    with pytest.raises(ProtocolError, match="no masks with zoe"):
        anna.accept_seeds(5, "zoe", good)
    carla = owners["carla"]
    with pytest.raises(ProtocolError, match="cannot be opened"):
        carla.accept_seeds(5, "ben", make_owners(names, 2)["ben"].seal_seeds(5, 3)["carla"])
    anna.seal_seeds(7, 2)
    with pytest.raises(ProtocolError, match=r"number of levels \(here 2\)"):
        anna.accept_seeds(7, "ben", owners["ben"].seal_seeds(7, 3)["anna"])


def test_shares_of_another_threshold_are_refused():
    """A peer that works with another threshold is found when its shares are opened."""
    secret = os.urandom(32)
    others = {"carla": os.urandom(32), "dmitri": os.urandom(32)}
    anna = DoubleMasks("anna", {"ben": secret, **others}, 3, SecureRandom())
    ben = DoubleMasks("ben", {"anna": secret, **others}, 4, SecureRandom())
    anna.seal_seeds(0, 1)
    with pytest.raises(ProtocolError, match="share 1 with threshold 4, expected share 1 with threshold 3"):
        anna.accept_seeds(0, "ben", ben.seal_seeds(0, 1)["anna"])


def test_blobs_show_nothing():
    """Blobs of many trees are uniform, and of the size that the module's arithmetic says."""
    anna = make_owners(NAMES[:3], 2)["anna"]
    blobs = [anna.seal_seeds(tree, 10)["ben"] for tree in range(300)]
    assert {len(blob) for blob in blobs} == {10 * 37 + 16}
    assert abs(uniformity(np.frombuffer(b"".join(blobs), np.uint8))) < 6


# Hiding


def test_hide_needs_seeds_and_a_later_position():
    """Nothing is hidden without sealed seeds for its level, nor under a position that is not after the last."""
    anna = make_owners(NAMES[:3], 2)["anna"]
    word = np.zeros(1, np.uint64)
    with pytest.raises(ProtocolError, match="no seeds for tree 5"):
        anna.hide(word, AT)
    anna.seal_seeds(5, 2)
    with pytest.raises(ProtocolError, match="level 2 is not among them"):
        anna.hide(word, Position(2, 5, 2))
    with pytest.raises(InvalidType, match="uint64"):
        anna.hide(np.zeros(1), AT)
    anna.hide(word, AT)
    for position in (AT, Position(2, 5, 0), Position(1, 5, 1)):
        with pytest.raises(ProtocolError, match="cannot be used"):
            anna.hide(word, position)
    with pytest.raises(ProtocolError, match="position is"):
        anna.hide(word, (2, 5, 1, 2, 3))
    into = word.copy()
    assert anna.hide(into, Position(2, 5, 1, 1), out=into) is into


def test_parts_of_a_level_share_no_mask_words():
    """Two messages of one level have no mask word in common, although they share the level's seed."""
    anna = make_owners(NAMES[:3], 2)["anna"]
    anna.seal_seeds(0, 1)
    seed = anna._trees[0].seeds[0]
    zeros = np.zeros(5000, np.uint64)
    own = [add_streams(zeros, [Keystream(seed)], [], nonce_of(Position(2, 0, 0, part))) for part in (0, 1)]
    hidden = [anna.hide(zeros, Position(2, 0, 0, part)) for part in (0, 1)]
    assert len(np.unique(np.concatenate([*own, *hidden]))) == 20_000


# The coordinator


def opened(**changes):
    """unmask for four owners, one of whom dropped; `changes` are functions that replace some of the right arguments."""
    names = NAMES[:4]
    owners = ready(names, 3)
    sent, dropped = set(names) - {"ben"}, {"ben"}
    hidden = summed(owners[name].hide(np.ones(4, np.uint64), AT) for name in sent)
    arguments = {
        "total": hidden,
        "position": AT,
        "sent": sent,
        "dropped": dropped,
        "answers": {name: owners[name].answer(AT, sent, dropped) for name in sent},
        "threshold": 3,
    }
    return unmask(**{key: changes[key](value) if key in changes else value for key, value in arguments.items()})


def with_answer(owner, about, data):
    """A change of what one owner said about one other; `data` is a function of the right bytes."""
    return lambda answers: {**answers, owner: {**answers[owner], about: data(answers[owner][about])}}


def test_unmask_as_it_should_be():
    """The unchanged case opens, so that each refusal below is due to its change."""
    assert opened().tolist() == [3] * 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"answers": lambda a: {k: v for k, v in a.items() if k != "carla"}}, "2 owners answered, 3 are needed"),
        ({"sent": lambda s: s | {"ben"}}, "ben cannot both"),
        ({"sent": lambda s: s - {"carla"}, "dropped": lambda d: d | {"carla"}}, "2 owners sent"),
        ({"dropped": lambda _: set()}, "ben"),
        ({"answers": lambda a: {**a, "ben": a["anna"]}}, "ben answered, but is not among"),
        ({"answers": lambda a: {**a, "anna": {}}}, "answer of anna is about nobody"),
        ({"answers": with_answer("anna", "ben", lambda _: b"\x02short")}, "anna about ben is not the seed of the pair"),
        ({"answers": with_answer("anna", "carla", lambda b: b[:-1])}, "anna about carla is not a share"),
        ({"answers": with_answer("anna", "carla", lambda b: b"\x02" + b[1:])}, "anna about carla is not a share"),
        ({"answers": with_answer("anna", "carla", lambda b: b[:1] + b"\x03" + b[2:])}, "anna gave share 3 .* share 1"),
        ({"answers": lambda a: {**a, "carla": a["anna"]}}, "carla gave share 1"),
    ],
)
def test_unmask_refuses(changes, words):
    """Answers that are too few, from the wrong owners or not what they should be end in an error that names them."""
    with pytest.raises(ProtocolError, match=words):
        opened(**changes)


@pytest.mark.parametrize("threshold", [0, 2, 5])
def test_thresholds(threshold):
    """A threshold of half of the owners or less, or more than all of them, is refused on both sides."""
    with pytest.raises(InvalidParameter, match=f"more than half of the 4 owners .* got {threshold}"):
        make_owners(NAMES[:4], threshold)
    with pytest.raises(InvalidParameter, match="more than half of the 4 owners"):
        opened(threshold=lambda _: threshold)


def test_everyone_must_answer_after_a_dropout():
    """If one of those that sent does not answer and another dropped, the error says that a new round is needed."""
    names = NAMES[:5]
    owners = ready(names, 3)
    sent, dropped = set(names) - {"ben"}, {"ben"}
    total = summed(owners[name].hide(np.ones(4, np.uint64), AT) for name in sent)
    answers = {name: owners[name].answer(AT, sent, dropped) for name in sent - {"eve"}}
    with pytest.raises(ProtocolError, match=r"eve did not answer, .* shared with ben: .* new round"):
        unmask(total, AT, sent, dropped, answers, 3)


def test_wrong_share_is_found_when_there_are_more_than_needed():
    """With more answers than needed, one wrong share is an error and not a wrong sum."""
    names = NAMES[:4]
    owners = ready(names, 3)
    total = summed(owners[name].hide(np.ones(4, np.uint64), AT) for name in names)
    answers = {name: owners[name].answer(AT, set(names), set()) for name in names}
    right = answers["anna"]["ben"]
    answers["anna"]["ben"] = right[:5] + bytes([right[5] ^ 1]) + right[6:]
    with pytest.raises(ProtocolError, match=r"seed of ben cannot be joined: .* wrong"):
        unmask(total, AT, set(names), set(), answers, 3)


def test_no_copies_and_no_use_after_fork(monkeypatch):
    """An owner's masks cannot be copied, are not shown, and cannot be used in a process that inherited them."""
    anna = make_owners(NAMES[:3], 2)["anna"]
    with pytest.raises(ProtocolError, match="cannot be copied"):
        copy.deepcopy(anna)
    assert repr(anna) == "DoubleMasks('anna', with ben, carla, threshold=2)"
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ProtocolError, match="forked"):
        anna.seal_seeds(0, 1)


@pytest.mark.parametrize(("tree", "n_levels"), [(-1, 1), (2**32, 1), (0, 0), (0, 2**16 + 1)])
def test_bad_trees(tree, n_levels):
    """A tree or a number of levels out of range is refused."""
    with pytest.raises(InvalidParameter, match="must be between"):
        make_owners(NAMES[:2], 2)["anna"].seal_seeds(tree, n_levels)
