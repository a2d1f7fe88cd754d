from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.crypto import double_masking as shamir
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.double_masking import PRIME, SHARE_BYTES, Share, join, split
from hedgerow.errors import InvalidParameter, ProtocolError

SECRET = bytes(range(32))


def shares_of(secret=SECRET, n=5, threshold=3):
    """Fresh shares."""
    return split(secret, n, threshold, SecureRandom())


@settings(deadline=None)
@given(st.data(), st.binary(min_size=32, max_size=32), st.integers(1, 8))
def test_join_undoes_split(data, secret, n):
    """Any threshold of the shares, or more, in any order, give the secret."""
    threshold = data.draw(st.integers(1, n))
    shares = data.draw(st.permutations(shares_of(secret, n, threshold)))
    assert join(shares[: data.draw(st.integers(threshold, n))]) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_extreme_secrets(secret):
    """All zeros and all ones are secrets like others."""
    assert all(join(chosen) == secret for chosen in itertools.combinations(shares_of(secret), 3))


def test_every_group_of_32():
    """Shares of many owners join as well."""
    shares = shares_of(n=32, threshold=22)
    assert join(shares[10:]) == SECRET
    assert join(shares[::-1]) == SECRET


def test_prime():
    """The modulus is a prime (Fermat and Miller-Rabin to many bases) above every 32-byte number."""
    assert PRIME > 2**256
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 60):
        chain = [pow(base, odd << k, PRIME) for k in range(twos + 1)]
        assert chain[-1] == 1
        assert chain[0] == 1 or PRIME - 1 in chain


def test_too_few_shares_tell_nothing():
    """Two of three needed shares are distributed the same for two secrets, and fit every secret equally well."""
    for secret in (bytes(32), b"\xff" * 32):
        drawn = [shares_of(secret)[:2] for _ in range(2000)]
        for k in (0, 1):
            top = np.array([share[k].value * 16 // PRIME for share in drawn])
            low = np.array([share[k].value % 16 for share in drawn])
            for cells in (top, low):
                found = np.bincount(cells, minlength=16)
                assert ((found - 125) ** 2 / 125).sum() < 60  # 15 degrees of freedom
    two = shares_of()[:2]
    for guess in (0, 1, 2**255):
        third = Share(3, 3, shamir._interpolated((0, 1, 2), [guess, two[0].value, two[1].value], 3))
        assert join([*two, third]) == guess.to_bytes(32, "little")


@pytest.mark.parametrize("threshold", [2, 3, 4, 5])
def test_one_share_less_does_not_fit_a_lower_degree(threshold):
    """What one share less than needed gives is uniform: the polynomial has the degree that the threshold says."""
    few = tuple(range(1, threshold))
    guesses = []
    for _ in range(2000):
        values = [share.value for share in shares_of(threshold=threshold)[: threshold - 1]]
        guesses.append(shamir._interpolated(few, values, 0))
    assert int.from_bytes(SECRET, "little") not in guesses
    found = np.bincount([guess * 16 // PRIME for guess in guesses], minlength=16)
    assert ((found - 125) ** 2 / 125).sum() < 60


def test_shares_are_new_each_time():
    """Splitting the same secret twice gives shares that do not fit together."""
    one, two = shares_of(), shares_of()
    assert all(a.value != b.value for a, b in zip(one, two, strict=True))
    with pytest.raises(ProtocolError, match="wrong"):
        join([*one[:3], *two[3:]])


@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (lambda _: [], "no shares"),
        (lambda s: s[:2], "2 shares were given, 3 are needed"),
        (lambda s: [s[0], s[1], s[1]], "same number among"),
        (lambda s: [*s[:2], s[2]._replace(threshold=2)], "different thresholds"),
        (lambda s: [*s[:4], s[4]._replace(value=s[4].value ^ 1)], "at least one of them is wrong"),
    ],
)
def test_shares_that_do_not_join(pick, words):
    """Too few, repeated, foreign or changed shares are refused."""
    with pytest.raises(ProtocolError, match=words):
        join(pick(shares_of()))


def test_join_refuses_what_is_no_secret():
    """Shares whose secret would not fit 32 bytes were not made by split."""
    with pytest.raises(ProtocolError, match="no secret of 32 bytes"):
        join([Share(1, 1, 2**256 + 1)])


@pytest.mark.parametrize(("n", "threshold"), [(3, 0), (3, 4), (0, 0), (2**16, 2)])
def test_bad_numbers(n, threshold):
    """A threshold outside 1 .. n is refused with both numbers."""
    with pytest.raises(InvalidParameter, match=f"got {threshold} of {n}"):
        shares_of(n=n, threshold=threshold)


def test_bad_secret():
    """Secrets have 32 bytes."""
    with pytest.raises(InvalidParameter, match="got 31"):
        shares_of(bytes(31))


def test_bytes_of_a_share():
    """A share survives the way through its bytes, and other bytes are refused."""
    for share in shares_of():
        assert len(share.to_bytes()) == SHARE_BYTES == 37
        assert Share.from_bytes(share.to_bytes()) == share
        assert str(share.value) not in repr(share)
    good = shares_of()[0].to_bytes()
    for bad in (
        good[:-1],
        good + b"\0",
        b"",
        b"\0\0" + good[2:],
        good[:2] + b"\0\0" + good[4:],
        good[:4] + b"\xff" * 33,
    ):
        with pytest.raises(ProtocolError, match="share"):
            Share.from_bytes(bad)
