from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from hedgerow.crypto import limbs
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, Share, limbs_kind
from hedgerow.errors import InvalidParameter, InvalidType, ProtocolError

SECRET = 271828182


@pytest.fixture
def share():
    """One party's words of three numbers, all the same."""
    return Share(np.full(3, SECRET, np.uint32), SUM32)


@pytest.mark.parametrize("look", [bool, float, int, complex, len, list, iter, hash, np.asarray, np.sum, pickle.dumps,
                                  copy.copy, copy.deepcopy])  # fmt: skip
def test_a_share_cannot_be_looked_at(share, look):
    """No truth value, no number, no length, no array, no copy on disk."""
    with pytest.raises((InvalidType, ProtocolError, TypeError)) as caught:
        look(share)
    assert str(SECRET) not in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda share: share == share,  # noqa: PLR0124 - even this is refused
        lambda share: share == SECRET,
        lambda share: share < SECRET,
        lambda share: SECRET in share,
        lambda share: np.zeros(3, np.uint32) + share,
        lambda share: share + np.zeros(3, np.uint32),
        lambda share: share * 2,
        lambda share: np.zeros(3)[share],
        lambda share: setattr(share, "words", None),
        lambda share: share + Share(np.zeros(3, np.uint64), SUM64),
        lambda share: share ^ share,
    ],
)
def test_a_share_goes_with_shares_only(share, use):
    """What is no operation on shares is refused, rather than done on the words."""
    with pytest.raises((InvalidType, AttributeError, TypeError, IndexError)) as caught:
        use(share)
    assert str(SECRET) not in str(caught.value)


def test_printing_shows_the_shape_only(share):
    """Neither repr, str nor a format shows a word."""
    wide = Share(np.full((2, 5), SECRET, np.uint32), limbs_kind(5))
    assert repr(share) == str(share) == f"{share}" == "Share(sum32, shape=(3,))"
    assert repr([wide]) == "[Share(limbs:5, shape=(2,))]"


def test_local_operations():
    """Sums, differences, public numbers, parts and other shapes of shares are those of the numbers."""
    kind = limbs_kind(2)
    x, y = limbs.from_words(np.array([5, -7, 2**40]), 2), limbs.from_words(np.array([3, 9, -1]), 2)
    noise = limbs.from_words(np.array([2**60, -(2**59), 1]), 2)
    parties = [(Share(noise, kind), Share(y, kind)), (Share(kind.sub(x, noise), kind), Share(np.zeros_like(y), kind))]

    def value(of):
        return limbs.to_ints(kind.total([of(*shares, m == 0).words for m, shares in enumerate(parties)])).tolist()

    assert value(lambda a, b, _: a + b) == [8, 2, 2**40 - 1]
    assert value(lambda a, b, _: a - b) == [2, -16, 2**40 + 1]
    assert value(lambda a, *_: -a) == [-5, 7, -(2**40)]
    assert value(lambda a, _, first: a.plus(y, is_first=first)) == [8, 2, 2**40 - 1]
    assert value(lambda a, *_: a.times(y)) == [15, -63, -(2**40)]
    assert value(lambda a, *_: a[1:]) == [-7, 2**40]
    assert value(lambda a, *_: a[..., 0]) == 5
    assert value(lambda a, *_: a.reshape(3, 1)) == [[5], [-7], [2**40]]
    with pytest.raises(IndexError):
        parties[0][0][0, 0]  # the second index would be a limb
    bits = Share(np.array([0b1100], np.uint8), XOR8)
    assert (bits + Share(np.array([0b1010], np.uint8), XOR8)).words.tolist() == [0b0110]
    assert (-bits).words.tolist() == [0b1100]


def test_bad_kinds():
    """Widths that are none, and words of another kind."""
    with pytest.raises(InvalidParameter, match="n_limbs"):
        limbs_kind(0)
    with pytest.raises(InvalidType, match="5 limbs"):
        limbs_kind(5).check(np.zeros((2, 4), np.uint32))
    with pytest.raises(InvalidType, match="uint32"):
        SUM32.check(np.zeros(2, np.int64))
    with pytest.raises(ProtocolError, match="nobody"):
        SUM32.total([])
    with pytest.raises(ProtocolError, match="different shapes"):
        SUM32.total([np.zeros(2, np.uint32), np.zeros(3, np.uint32)])
