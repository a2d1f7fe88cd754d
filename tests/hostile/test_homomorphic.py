"""vertical.homomorphic: what a party could send that fits its field and is wrong all the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.crypto.edwards25519 import AFFINE
from hedgerow.crypto.field25519 import to_words
from hedgerow.errors import FrameError, ProtocolError
from hedgerow.protocols.vertical.common.messages import YOURS
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.runtime.protocol import find
from hedgerow.transport.frames import encode
from twins import vertical
from twins.horizontal import make_pooled
from twins.joint_trees import deal_columns
from twins.naive_edwards import P

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


def with_point(other):
    """A message whose last point is another one."""

    def change(message):
        points = message.points.copy()
        points.reshape(-1, AFFINE)[-1] = other
        return replace(message, points=points)

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
        return replace(message, keys=np.stack([message.keys[0], wrong]))

    assert error_of(messages.TreeKeys, change) == NO_CIPHERTEXT


def test_compressed_words_that_are_no_point_are_refused():
    """y = 2 belongs to no x."""

    def change(message):
        points = message.points.copy()
        points.reshape(-1, 4)[-1] = to_words(2)
        return replace(message, points=points)

    assert error_of(messages.EncryptedRows, change, compressed=True) == NO_CIPHERTEXT


def test_sums_of_other_rows_are_refused():
    """Bins of two columns exchanged: every one opens, and none adds up to its node."""

    def change(message):
        return replace(message, points=np.roll(message.points, 3, axis=0))

    assert error_of(messages.EncryptedSums, change) == NO_SUMS


def test_a_sum_that_is_sent_twice_is_refused():
    """One bin in place of another."""

    def change(message):
        points = message.points.copy()
        points[0] = points[1]
        return replace(message, points=points)

    assert error_of(messages.EncryptedSums, change) == NO_SUMS


def test_sums_that_are_out_of_range_are_refused():
    """A point that is nobody's small multiple: the search for it ends."""

    def change(message):
        points = message.points.copy()
        points[0, 1] = points[1, 0]
        return replace(message, points=points)

    assert error_of(messages.EncryptedSums, change) == NO_CIPHERTEXT


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
