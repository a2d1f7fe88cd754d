from __future__ import annotations

import numpy as np
import pytest

from hedgerow.crypto import limbs
from hedgerow.crypto.shares import SUM32, SUM64, XOR8, Masked, limbs_kind, opened
from hedgerow.errors import ProtocolError
from twins.conversation import Conversation


def speak(me):
    """Two rounds: three kinds at once, then one; gives back all that was opened."""
    wide = np.full((2, 3), 2**32 - 1, np.uint32)
    parts = [
        Masked("bits", np.array([1 << me], np.uint8), XOR8),
        Masked("wide", wide, limbs_kind(3)),
        Masked("sums", np.full((2, 2), 2**32 - 1 - me, np.uint32), SUM32),
    ]
    first = yield parts
    second = yield from opened(Masked("long", np.array([2**63 + me], np.uint64), SUM64))
    return [*first, second]


def exchange(talks):
    """Carry the messages of one round."""
    sent = [talk.send() for talk in talks]
    for talk in talks:
        talk.receive(sent)


def test_each_kind_is_put_together_in_its_ring():
    """Bits by exclusive or, numbers modulo their ring's size; a round is one message, of any kinds."""
    talks = [Conversation(speak(me)) for me in range(3)]
    assert len(talks[0].send()) == 1 + 24 + 16
    exchange(talks)
    assert not talks[0].is_over
    exchange(talks)
    for talk in talks:
        assert talk.is_over
        assert talk.rounds == 2
        bits, wide, sums, long = talk.result
        assert bits.tolist() == [0b111]
        assert limbs.to_ints(wide).tolist() == [-3, -3]
        assert sums.dtype == np.uint32
        assert np.unique(sums).tolist() == [(-3 - 3) % 2**32]
        assert long.tolist() == [2**63 + 3]


def test_what_is_out_of_turn_is_refused():
    """Messages of another length, a result before the end, a word after it."""
    talk = Conversation(speak(0))
    good = talk.send()
    with pytest.raises(ProtocolError, match=r"41 bytes from each party, got \[40, 41\]"):
        talk.receive([good, good[1:]])
    with pytest.raises(ProtocolError, match="no result yet, after 0 rounds"):
        _ = talk.result
    talks = [Conversation(speak(me)) for me in range(2)]
    exchange(talks)
    exchange(talks)
    with pytest.raises(ProtocolError, match="over after 2 rounds"):
        talks[0].send()
    with pytest.raises(ProtocolError, match="round 3"):
        talks[0].receive([good, good])


@pytest.mark.parametrize("n_limbs", [1, 5])
def test_sums_of_wide_numbers(n_limbs):
    """Sums of several are Python's, with carries through all limbs, of views too."""
    draw = np.random.default_rng(0)
    x = draw.integers(0, 2**32, (7, 4, 6, n_limbs), dtype=np.uint32)
    x[:, 0] = 2**32 - 1
    for view in (x, x[::2], x.transpose(2, 0, 1, 3), x[:, :, :0]):
        expected = limbs.to_ints(view, signed=False).sum(axis=0) % 2 ** (32 * n_limbs)
        found = limbs.to_ints(limbs_kind(n_limbs).total(list(view)), signed=False)
        assert found.shape == view.shape[1:-1]
        assert np.array_equal(found, expected)
