"""vertical.homomorphic: what a party could send that fits its field and is wrong all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto.edwards25519 import AFFINE
from hedgerow.crypto.field25519 import from_words, to_words
from hedgerow.errors import FrameError, PeerLost, ProtocolError
from hedgerow.protocols.vertical.common.messages import LEAF, MOST_CLASSES, OTHERS, YOURS, Classes
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.runtime.protocol import find
from hedgerow.transport.frames import encode
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns
from twins.naive_edwards import P, add, multiple, negative

PROTOCOL = find("vertical.homomorphic")
NO_CIPHERTEXT = "a ciphertext that is not one, or that does not hold a sum in range"
NO_SPLIT = "anna sent vertical.homomorphic.your_splits with splits that are not of the nodes that were won"
NO_SUMS = "ben sent sums of bins that do not add up to those of their nodes"


def point(x, y):
    """Affine words."""
    return np.concatenate([to_words(x), to_words(y)])


NEUTRAL = point(0, 1)
ORDER_2 = point(0, P - 1)
ORDER_4 = point(pow(2, (P - 1) // 4, P), 0)
OFF_THE_CURVE = point(2, 3)
NOT_REDUCED = point(0, P + 1)
FIRST_CODE, LAST_CODE = np.eye(1, 32, 0, np.uint8), np.eye(1, 32, 31, np.uint8) << np.uint8(7)


def error_of(kind, change, **options):
    """What the first who received changed messages of a kind says; with columns of numbers, of levels, and gaps."""
    pooled = make_pooled(np.random.default_rng(1), 120, n_numeric=4)
    data = deal_columns(pooled, ("anna", "ben"), "anna")
    job = vertical.make_job(HomomorphicJob, data, **options)
    changed = []

    def spoil(message):
        if not isinstance(message, kind):
            return message
        other = change(message)
        changed.append(encode(other) != encode(message))
        return other

    with pytest.raises(ProtocolError) as caught:
        vertical.play(PROTOCOL, job, data, spoil=spoil)
    assert any(changed)
    return str(caught.value)


@pytest.mark.parametrize("n_classes", [-1, 0, 1, MOST_CLASSES + 1, 2**62])
def test_numbers_of_classes_that_cannot_be_are_refused(n_classes):
    """Two at least, and no more than anybody has trees for."""
    said = error_of(Classes, lambda message: replace(message, n_classes=n_classes))
    assert "anna sent vertical.classes" in said


@pytest.mark.parametrize("n_classes", [3, MOST_CLASSES])
def test_trees_that_are_announced_and_do_not_come_end_the_run(n_classes):
    """The feature holder takes no memory for them, waits for the next one, and is told that nobody is there."""
    pooled = make_pooled(np.random.default_rng(1), 120, n_numeric=4)
    data = deal_columns(pooled, ("anna", "ben"), "anna")
    job = vertical.make_job(HomomorphicJob, data)

    def spoil(message):
        return replace(message, n_classes=n_classes) if isinstance(message, Classes) else message

    outcomes, _ = vertical.outcomes_of(PROTOCOL, job, data, spoil=spoil)
    assert isinstance(outcomes["ben"].error, PeerLost)


def with_point(other):
    """A message whose last point is another one."""

    def change(message):
        points = message.words.copy()
        points.reshape(-1, AFFINE)[-1] = other
        return replace(message, words=points)

    return change


@pytest.mark.parametrize(
    "kind", [messages.RowPoints, messages.EncryptedRows, messages.NodeTotals, messages.EncryptedSums]
)
@pytest.mark.parametrize("wrong", [OFF_THE_CURVE, NOT_REDUCED], ids=["off the curve", "not reduced"])
def test_what_is_no_point_is_refused_by_everybody(kind, wrong):
    """Coordinates below p, on the curve; one sentence for all refusals, so that they tell nothing."""
    assert error_of(kind, with_point(wrong)) == NO_CIPHERTEXT


@pytest.mark.parametrize(
    "wrong", [NEUTRAL, ORDER_2, ORDER_4, OFF_THE_CURVE], ids=["neutral", "2", "4", "off the curve"]
)
def test_keys_of_small_order_are_refused(wrong):
    """Under such a key sums would come back without randomness."""

    def change(message):
        return replace(message, words=np.concatenate([message.words[:AFFINE], wrong]))

    assert error_of(messages.TreeKeys, change) == NO_CIPHERTEXT


def test_compressed_words_that_are_no_point_are_refused():
    """y = 2 belongs to no x."""

    def change(message):
        points = message.words.copy()
        points.reshape(-1, 4)[-1] = to_words(2)
        return replace(message, words=points)

    assert error_of(messages.EncryptedRows, change, compressed=True) == NO_CIPHERTEXT


def test_sums_of_other_rows_are_refused():
    """Bins of two columns exchanged: every one opens, and none adds up to its node."""

    def change(message):
        return replace(message, words=np.roll(message.words, 3, axis=0))

    assert error_of(messages.EncryptedSums, change) == NO_SUMS


def test_a_sum_that_is_sent_twice_is_refused():
    """One bin in place of another."""

    def change(message):
        points = message.words.copy()
        points[0] = points[1]
        return replace(message, words=points)

    assert error_of(messages.EncryptedSums, change) == NO_SUMS


def test_sums_that_are_out_of_range_are_refused():
    """A point that is nobody's small multiple: the search for it ends."""

    def change(message):
        points = message.words.copy()
        points[0, AFFINE : 2 * AFFINE] = points[1, :AFFINE]
        return replace(message, words=points)

    assert error_of(messages.EncryptedSums, change) == NO_CIPHERTEXT


# --- other schemes ---------------------------------------------------------------------------------------------------


def with_words(change):
    """A message whose last ciphertext, or key, is another one."""

    def changed(message):
        words = message.words.copy()
        last = words.reshape(-1, words.shape[-1])[-1]
        last[:] = change(last)
        return replace(message, words=words)

    return changed


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
@pytest.mark.parametrize("kind", [messages.EncryptedRows, messages.NodeTotals, messages.EncryptedSums])
@pytest.mark.parametrize("word", [0, 2**64 - 1], ids=["zero", "too large"])
def test_what_is_no_ciphertext_is_refused_by_everybody(scheme, kind, word):
    """Numbers below N, without a divisor in common with it; the same sentence as ever."""
    change = with_words(lambda last: np.full_like(last, word))
    assert error_of(kind, change, scheme=scheme, max_depth=2) == NO_CIPHERTEXT


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
def test_numbers_that_hold_no_sums_are_refused(scheme):
    """A random number modulo N opens to a plaintext beyond the fields."""
    change = with_words(lambda last: last ^ np.eye(1, len(last), dtype=np.uint64)[0])
    assert error_of(messages.EncryptedSums, change, scheme=scheme, max_depth=2) == NO_CIPHERTEXT


@pytest.mark.parametrize("scheme", ["paillier", "ou"])
@pytest.mark.parametrize("word", [0, 2**64 - 2], ids=["zero", "even"])
def test_public_keys_of_another_kind_are_refused(scheme, word):
    """n is odd and exactly as long as was agreed."""
    change = with_words(lambda last: np.full_like(last, word))
    assert error_of(messages.PublicKey, change, scheme=scheme) == NO_CIPHERTEXT


def test_packed_sums_of_other_rows_are_refused():
    """The first and the last ciphertext of a node exchanged: both open, and do not add up."""

    def change(message):
        return replace(message, words=message.words[::-1].copy())

    assert error_of(messages.EncryptedSums, change, scheme="ou", max_depth=1) == NO_SUMS


def test_an_order_of_fewer_columns_is_refused():
    """As many as the feature holder has announced."""

    def change(message):
        return replace(message, n_bins=message.n_bins[:-1], is_categorical=message.is_categorical[:-1])

    assert "column_order" in error_of(messages.ColumnOrder, change)


def test_an_order_with_other_numbers_of_bins_is_refused():
    """The sums that follow are not as many."""

    def change(message):
        return replace(message, n_bins=message.n_bins + np.int32(1))

    assert "encrypted_sums" in error_of(messages.ColumnOrder, change)


def changed_splits(**changes):
    """Splits of which each field is what a function makes of the message."""
    return lambda message: replace(message, **{name: made(message) for name, made in changes.items()})


@pytest.mark.parametrize(
    "change",
    [
        changed_splits(node=lambda m: np.zeros_like(m.node) if m.node.any() else m.node + 1),
        changed_splits(bin=lambda m: np.where(m.bin >= 0, 200, m.bin).astype(np.int32)),
        changed_splits(bin=lambda m: np.full_like(m.bin, -1)),
        changed_splits(goes_left=lambda m: np.where(m.bin[:, None] >= 0, m.goes_left ^ FIRST_CODE, m.goes_left)),
        changed_splits(goes_left=lambda m: m.goes_left ^ LAST_CODE),
        changed_splits(missing_left=lambda m: ~m.missing_left),
    ],
    ids=["another node", "no such bin", "numbers by levels", "picked codes", "no such code", "another side"],
)
def test_splits_that_nobody_could_have_found_are_refused(change):
    """Nodes that were not won, bins that do not exist, and codes of numbers picked one by one."""
    said = error_of(messages.YourSplits, change, n_iterations=8)
    assert said == NO_SPLIT or "your_splits" in said


@pytest.mark.parametrize("wanted", [YOURS, OTHERS])
def test_a_node_that_is_too_small_is_not_split_whatever_the_label_holder_says(wanted):
    """Of 120 rows one child has 60 at most: with min_rows_per_sum=61 neither it nor its sibling goes on."""

    def change(message):
        return replace(message, roles=np.where(message.roles == LEAF, np.uint8(wanted), message.roles))

    said = error_of(messages.Winners, change, min_rows_per_sum=61)
    assert said == "anna splits 2 nodes of 2, 2 of which cannot be split; there is room for 2"


def test_totals_of_nodes_that_are_too_small_are_not_taken():
    """Who has 120 rows and sums nothing below 121 expects no message with totals, and sends no sums."""
    pooled = make_pooled(np.random.default_rng(1), 120, n_numeric=4)
    data = deal_columns(pooled, ("anna", "ben"), "anna")
    asking = vertical.make_job(HomomorphicJob, data, min_rows_per_sum=2)
    guarded = vertical.make_job(HomomorphicJob, data, min_rows_per_sum=121)
    sent = []

    def noting(_to, sender, message):
        if sender == "ben":
            sent.append(type(message))

    with pytest.raises(FrameError, match=r"expected vertical\.homomorphic\.winners"):
        vertical.play(PROTOCOL, guarded, data, watch=noting, jobs={"anna": asking})
    assert messages.ColumnOrder in sent
    assert messages.EncryptedSums not in sent


def test_a_place_that_does_not_exist_is_refused():
    """There are as many as columns."""

    def change(message):
        return replace(message, place=message.place + np.int32(50))

    assert "your_splits" in error_of(messages.YourSplits, change)


def test_a_node_that_was_won_without_a_split_ends_the_run():
    """The feature holder is told that it won, and about another node."""

    def change(message):
        return replace(message, roles=np.full_like(message.roles, YOURS))

    pooled = make_pooled(np.random.default_rng(1), 120, n_numeric=4)
    data = deal_columns(pooled, ("anna", "ben", "carla"), "anna")
    job = vertical.make_job(HomomorphicJob, data)

    def spoil(message):
        return change(message) if isinstance(message, messages.Winners) and len(message.roles) > 1 else message

    with pytest.raises(FrameError, match=r"expected vertical\.homomorphic\.your_splits"):
        vertical.play(PROTOCOL, job, data, spoil=spoil)


def ciphertext(points):
    """Pairs of integers."""
    return [(from_words(each[:4]), from_words(each[4:])) for each in points]


def made_of_rows(seen, pairs):
    """Sums that add up: one bin of a column is many times a pair of rows, another the rest; all others are empty."""
    order, total = seen[messages.ColumnOrder], ciphertext(seen[messages.NodeTotals].words[0].reshape(3, AFFINE))
    starts = np.cumsum(order.n_bins + 1) - order.n_bins - 1
    points = np.tile(NEUTRAL, (int((order.n_bins + 1).sum()), 3, 1))
    asking = dict(zip(np.flatnonzero(~order.is_categorical & (order.n_bins > 1)), pairs, strict=False))
    for place, start in enumerate(starts):
        own = [(0, 1)] * 3
        for row in asking.get(place, ()):
            both = seen[messages.EncryptedRows].words[row].reshape(2, AFFINE)
            parts = ciphertext([seen[messages.RowPoints].words[row], *both])
            many = [multiple(len(seen[messages.RowPoints].words) // 4, part) for part in parts]
            own = [add(each, other) for each, other in zip(own, many, strict=True)]
        rest = [add(each, negative(other)) for each, other in zip(total, own, strict=True)]
        for k, sums in enumerate((own, rest)):
            points[start + k] = [point(*multiple(8, each)) for each in sums]
    return points.reshape(len(points), -1)


def test_a_feature_holder_that_lies_learns_whose_labels_are_equal():
    """As the page says: columns of one row twice and of two rows are equally good if the rows' labels are equal."""
    data = deal_columns(make_pooled(np.random.default_rng(1), 120, n_numeric=4), ("anna", "ben"), "anna")
    job = vertical.make_job(HomomorphicJob, data, n_iterations=1, max_depth=1)
    is_equal = data["anna"].labels == data["anna"].labels[0]
    for other in (int(np.flatnonzero(is_equal)[1]), int(np.flatnonzero(~is_equal)[0])):
        seen = {}

        def lie(message, seen=seen, pairs=((0, 0), (0, other))):
            seen[type(message)] = message
            if isinstance(message, messages.EncryptedSums):
                return replace(message, words=made_of_rows(seen, pairs))
            return message

        vertical.outcomes_of(PROTOCOL, job, data, spoil=lie)
        assert (len(seen[messages.YourSplits].place) == 2) == is_equal[other]
