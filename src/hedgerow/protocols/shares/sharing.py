"""A party shares a value of its own with all others, by seeds: nothing as large as the value is sent.

Labels among them, whose range must be public before.
"""

from __future__ import annotations

from collections.abc import Sequence

from hedgerow.crypto.csprng import KEY_BYTES
from hedgerow.crypto.dealing import Hand, Label
from hedgerow.crypto.shares import Array, Kind, Shape, Share
from hedgerow.engine.dtypes import Floats
from hedgerow.errors import InvalidInput
from hedgerow.protocols.shares.job import SharesJob
from hedgerow.protocols.shares.rows_messages import SharingSeed
from hedgerow.protocols.vertical.common.tables import finite_labels
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData

_TWO = 2  # each seed is known to two: who shares, and who takes


class Sharing:
    """SHR: of a value x that party m has, every other party holds words of a stream that it has in common with m.

    1. Once: every party sends a seed to every other.
    2. m shares x: [x]_j = the next words of the stream of m and j, and [x]_m = x minus all of these.

    Labels must increase, as they do in dealing.
    """

    def __init__(self, me: Party, holders: Sequence[str]) -> None:
        others = [party for party in holders if party != me.name]
        seeds = {other: me.rng.bytes(KEY_BYTES) for other in others}
        for other, seed in seeds.items():
            me.send(other, SharingSeed(seed))
        self._giving = [Hand(seed, 0, _TWO, lane="sharing") for seed in seeds.values()]
        self._taking = {other: Hand(me.recv(other, SharingSeed).seed, 0, _TWO, lane="sharing") for other in others}

    def share(self, value: Array, kind: Kind, label: Label) -> Share:
        """Its own share of a value of its own."""
        words = kind.check(value).copy()
        shape = words.shape[:-1] if kind.limbs else words.shape
        for hand in self._giving:
            kind.sub(words, hand.step(label).mask(shape, kind, (0,)).words, out=words)
        return Share(words, kind)

    def take(self, giver: str, shape: Shape, kind: Kind, label: Label) -> Share:
        """Its own share of a value of somebody else."""
        return self._taking[giver].step(label).mask(shape, kind, (0,))


def checked_labels(party: str, job: SharesJob, data: PartyData) -> Floats:
    """Labels that are there and within the public range."""
    labels = finite_labels(party, job, data)
    low, high = job.loss().label_range
    if labels.min() < low or labels.max() > high:
        raise InvalidInput(f"{party}: some labels lie outside the declared label_range {(low, high)}")
    return labels
