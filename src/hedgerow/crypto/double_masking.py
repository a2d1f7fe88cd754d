"""Masks that survive an owner that drops out in the middle of a round, without starting again.

With pairwise masks alone, a sum that lacks one owner is noise. If the others then told the masks they shared with it,
and its message came late rather than never, that message would lie open. So each message carries a second mask, its
owner's own, and for each owner the others give away one of the two and never both (Bonawitz et al. 2017):

1. Before a tree, each owner i draws a seed b_i for each of its levels, splits each into Shamir shares, one per owner,
   and sends every peer its shares, sealed under a key that only the two know (`seal_seeds`, `accept_seeds`). Who passes
   the blobs on cannot read them.
2. Owner i sends x_i + PRG(b_i) + sum of +-PRG(r_ij), where r_ij = HKDF(pair secret, position) is the pair's seed for
   this one message (`hide`).
3. The coordinator tells every owner that sent a message who did (`sent`) and who did not (`dropped`).
4. Each of them answers, for each owner in `sent` with its share of b, for each in `dropped` with the pair's seed r, and
   for this level never again otherwise (`answer`).
5. The coordinator joins the shares and takes away all masks that did not cancel (`unmask`). It learns the sum over the
   owners in `sent`, at least `threshold` of them, and nothing else.

What it rests on: the coordinator tells all owners the same in 3. Then a level has one sum that can be opened, and a
late message stays hidden. A coordinator that tells different owners different things is held only by the threshold:
a seed r is told by one owner alone, so with 3 owners and threshold 2 it can have each told by another and open every
message (tests/crypto/test_double_masking.py does it). With c owners on its side it can open no second sum, and none of
half of the other owners or fewer, if 4 * threshold > 3 * owners + c.

What it does not do: if an owner in `sent` is gone before 4 while another is in `dropped`, the seed r of these two is
lost with them. The level then ends with an error and the survivors re-key, as with pairwise masks alone.

Shamir's secret sharing: any `threshold` of n shares give the secret, fewer tell nothing about it. Over the integers
modulo the smallest prime above 2**256, so that every 32-byte string is a secret and a share is 33 bytes. A share is one
point of a random polynomial whose value at zero is the secret:

    f(x) = secret + a_1 x + ... + a_(threshold-1) x^(threshold-1)        share of party k: (k, f(k)),  k = 1 .. n
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from hedgerow.crypto import masking
from hedgerow.crypto.csprng import KEY_BYTES, Keystream, SecureRandom, Spent, Unshared, Words
from hedgerow.crypto.masking import Position, as_position, derived
from hedgerow.errors import InvalidParameter, ProtocolError

PRIME = 2**256 + 297
SECRET_BYTES = 32
MAX_SHARES = 2**16 - 1
_VALUE_BYTES = 33
_HEADER = struct.Struct("<HH")
SHARE_BYTES = _HEADER.size + _VALUE_BYTES
MAX_LEVELS = 2**16
_SHARE, _PAIR_SEED = b"\x01", b"\x02"  # the first byte of an answer about one owner
_TREES_KEPT = 2  # the one that is being grown and, if its seeds are sent ahead, the next


@dataclass
class _Tree:
    """What an owner keeps for one tree."""

    seeds: list[bytes]  # its own, one per level
    shares: dict[str, list[bytes]]  # by owner, one per level
    hidden: set[Position] = field(default_factory=set)
    roles: dict[int, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)  # by level: sent, dropped


class DoubleMasks(Unshared):
    """One owner's side; `pair_secrets` are those of `masking.pair_secret`, for one object only.

    Per tree: `seal_seeds`, `accept_seeds` from every peer, then per level `hide` and `answer`. A level may have several
    messages (parts); they share the level's seed, so all of them are hidden before the first is answered, and all are
    answered with the same `sent` and `dropped`. Who is in `dropped` once may be in `sent` at the next level.
    """

    def __init__(self, me: str, pair_secrets: Mapping[str, bytes], threshold: int, rng: SecureRandom) -> None:
        super().__init__()
        masking.check_secrets(me, pair_secrets)
        self.me = me
        self.peers = tuple(sorted(pair_secrets))
        self.owners = tuple(sorted([me, *pair_secrets]))
        check_threshold(threshold, len(self.owners))
        self.threshold = threshold
        self._rng = rng
        self._round_keys = {peer: derived(secret, "round seeds v1") for peer, secret in pair_secrets.items()}
        # One key per direction: the nonce is the number of the tree, and both sides seal something for each tree.
        self._to = {p: ChaCha20Poly1305(derived(s, "sealed seeds v1", me, p)) for p, s in pair_secrets.items()}
        self._from = {p: ChaCha20Poly1305(derived(s, "sealed seeds v1", p, me)) for p, s in pair_secrets.items()}
        self._spent = Spent("these keys were", "new keys")
        self._trees: dict[int, _Tree] = {}
        self._last_tree = -1

    def __repr__(self) -> str:
        return f"DoubleMasks({self.me!r}, with {', '.join(self.peers)}, threshold={self.threshold})"

    def seal_seeds(self, tree: int, n_levels: int) -> dict[str, bytes]:
        """New seeds for the levels of a tree; for each peer the sealed blob with its shares of them.

        1. For each level: b uniform, 32 bytes; shares of b for all owners in the order of their names.
        2. blob for a peer = ChaCha20-Poly1305(key of me to peer, nonce = tree, its shares; names, tree, levels).
        """
        if not 1 <= n_levels <= MAX_LEVELS:
            raise InvalidParameter(f"n_levels must be between 1 and {MAX_LEVELS}, got {n_levels}")
        if not 0 <= tree < 2**32:
            raise InvalidParameter(f"tree must be between 0 and 2**32 - 1, got {tree}")
        with self.turn():
            if tree <= self._last_tree:
                raise ProtocolError(
                    f"{self.me} has already sealed seeds for tree {self._last_tree}, tree {tree} is over"
                )
            self._last_tree = tree  # before anything is sealed: a nonce is used once, whatever happens below
            seeds = [self._rng.bytes(KEY_BYTES) for _ in range(n_levels)]
            by_level = [split(seed, len(self.owners), self.threshold, self._rng) for seed in seeds]
            by_owner = dict(zip(self.owners, zip(*by_level, strict=True), strict=True))
            shares = {owner: [share.to_bytes() for share in of_owner] for owner, of_owner in by_owner.items()}
            self._trees[tree] = _Tree(seeds, {self.me: shares[self.me]})
            for old in sorted(self._trees)[:-_TREES_KEPT]:
                del self._trees[old]
            return {peer: self._sealed(peer, tree, n_levels, b"".join(shares[peer])) for peer in self.peers}

    def accept_seeds(self, tree: int, from_peer: str, blob: bytes) -> None:
        """Open and keep the shares that a peer sealed for me; each blob is accepted once."""
        with self.turn():
            if from_peer not in self._from:
                raise ProtocolError(f"{self.me} shares no masks with {from_peer}")
            state = self._state(tree)
            if from_peer in state.shares:
                raise ProtocolError(f"{from_peer} has already sent its seeds for tree {tree}")
            n_levels = len(state.seeds)
            try:
                about = _about_seeds(from_peer, self.me, tree, n_levels)
                opened = self._from[from_peer].decrypt(_tree_nonce(tree), blob, about)
            except InvalidTag as error:
                raise ProtocolError(
                    f"the seeds of {from_peer} for tree {tree} cannot be opened: they were sealed for another owner, "
                    f"tree, round or number of levels (here {n_levels}), or changed on the way"
                ) from error
            state.shares[from_peer] = self._checked_shares(from_peer, opened, n_levels)

    def hide(self, values: Words, position: Position, out: Words | None = None) -> Words:
        """`values` under my own mask and the pairwise masks of this position, which is spent.

        1. result = values + PRG(b of this level) + PRG(r) for later names - PRG(r) for earlier names, mod 2**64.
        """
        masking.check_values(values, out)
        position = as_position(position)
        with self.turn():
            state = self._state(position.tree)
            seed = state.seeds[self._level(state, position)]
            if position.level in state.roles:
                raise ProtocolError(
                    f"level {position.level} of tree {position.tree} was answered, nothing can follow in it"
                )
            self._spent.spend(position)
            added = [Keystream(seed), *(self._stream(peer, position) for peer in self.peers if peer > self.me)]
            subtracted = [self._stream(peer, position) for peer in self.peers if peer < self.me]
            hidden = masking.add_streams(values, added, subtracted, masking.nonce_of(position), out)
            state.hidden.add(position)
            return hidden

    def answer(self, position: Position, sent: AbstractSet[str], dropped: AbstractSet[str]) -> dict[str, bytes]:
        """What the coordinator needs to open the sum over `sent`: for each owner one of its two masks' secrets.

        1. Refuse unless every owner is in exactly one of the sets, I am in `sent` and did send, `sent` has at least
           `threshold` owners, and every answer for this level named the same sets.
        2. From now on these sets are fixed for this level.
        3. For each owner in `sent` my share of its b, for each in `dropped` the seed r that I share with it.
        """
        position = as_position(position)
        roles = frozenset(sent), frozenset(dropped)
        with self.turn():
            state = self._state(position.tree)
            level = self._level(state, position)
            check_roles(self.owners, *roles, self.threshold)
            if self.me not in sent:
                raise ProtocolError(f"{self.me} is asked to open a sum that it is said not to be part of")
            if position not in state.hidden:
                raise ProtocolError(f"{self.me} is asked to open a sum at {position}, where it has sent nothing")
            if missing := sorted(roles[0] - state.shares.keys()):
                raise ProtocolError(f"{self.me} holds no seeds of {', '.join(missing)} for tree {position.tree}")
            if state.roles.setdefault(level, roles) != roles:
                before = _listed(state.roles[level][1])
                raise ProtocolError(
                    f"{self.me} has already answered for level {level} of tree {position.tree} with {before} dropped; "
                    f"an answer with {_listed(dropped)} dropped would open the difference of the two sums"
                )
            shares = {owner: _SHARE + state.shares[owner][level] for owner in sorted(sent)}
            return shares | {peer: _PAIR_SEED + self._round_seed(peer, position) for peer in sorted(dropped)}

    def _state(self, tree: int) -> _Tree:
        if tree not in self._trees:
            raise ProtocolError(f"{self.me} holds no seeds for tree {tree}: none were sealed, or the tree is over")
        return self._trees[tree]

    def _level(self, state: _Tree, position: Position) -> int:
        if not 0 <= position.level < len(state.seeds):
            raise ProtocolError(
                f"{self.me} sealed seeds for {len(state.seeds)} levels of tree {position.tree}, level {position.level} "
                "is not among them"
            )
        return position.level

    def _sealed(self, peer: str, tree: int, n_levels: int, shares: bytes) -> bytes:
        return self._to[peer].encrypt(_tree_nonce(tree), shares, _about_seeds(self.me, peer, tree, n_levels))

    def _checked_shares(self, peer: str, opened: bytes, n_levels: int) -> list[bytes]:
        shares = [opened[start : start + SHARE_BYTES] for start in range(0, len(opened), SHARE_BYTES)]
        mine = self.owners.index(self.me) + 1
        for share in map(Share.from_bytes, shares):
            if (share.number, share.threshold) != (mine, self.threshold):
                raise ProtocolError(
                    f"{peer} sent share {share.number} with threshold {share.threshold}, "
                    f"expected share {mine} with threshold {self.threshold}"
                )
        if len(shares) != n_levels:
            raise ProtocolError(f"{peer} sent shares for {len(shares)} levels, expected {n_levels}")
        return shares

    def _round_seed(self, peer: str, position: Position) -> bytes:
        return derived(self._round_keys[peer], position.packed())

    def _stream(self, peer: str, position: Position) -> Keystream:
        return Keystream(self._round_seed(peer, position))


def unmask(
    total: Words,
    position: Position,
    sent: AbstractSet[str],
    dropped: AbstractSet[str],
    answers: Mapping[str, Mapping[str, bytes]],
    threshold: int,
) -> Words:
    """The coordinator's side: the sum of the values of `sent`, from the sum of their hidden messages.

    1. b of each owner in `sent` from at least `threshold` shares; all shares given must agree.
    2. r of each pair (k in `sent`, j in `dropped`) from k's answer.
    3. total - sum of PRG(b) - sum of +-PRG(r), with k's signs, mod 2**64.

    Without dropouts any `threshold` answers will do; with them everyone in `sent` has to answer.
    """
    masking.check_values(total, None)
    position = as_position(position)
    owners = tuple(sorted(sent | dropped))
    check_threshold(threshold, len(owners))
    check_roles(owners, sent, dropped, threshold)
    for owner, answer in answers.items():
        if owner not in sent:
            raise ProtocolError(f"{owner} answered, but is not among those that sent a message")
        if answer.keys() != set(owners):
            raise ProtocolError(f"the answer of {owner} is about {_listed(answer.keys())}, expected {_listed(owners)}")
    if len(answers) < threshold:
        raise ProtocolError(f"{len(answers)} owners answered, {threshold} are needed to open the sum")
    if dropped and (silent := sorted(sent - answers.keys())):
        raise ProtocolError(
            f"{_listed(silent)} did not answer, and only they can tell the masks that they shared with "
            f"{_listed(dropped)}: this sum cannot be opened, the survivors have to start a new round"
        )
    numbers = {owner: k + 1 for k, owner in enumerate(owners)}
    subtracted = [Keystream(_joined_seed(about, answers, numbers, threshold)) for about in sorted(sent)]
    added: list[Keystream] = []
    for owner in sorted(sent):
        for gone in sorted(dropped):
            stream = Keystream(_revealed(answers[owner][gone], _PAIR_SEED, KEY_BYTES, owner, gone))
            (subtracted if owner < gone else added).append(stream)  # the owner had added it towards later names
    return masking.add_streams(total, added, subtracted, masking.nonce_of(position))


def check_threshold(threshold: int, n_owners: int) -> None:
    """Refuse a threshold that two groups without a common owner could both reach."""
    if not n_owners < 2 * threshold <= 2 * n_owners:
        raise InvalidParameter(
            f"threshold must be more than half of the {n_owners} owners and at most all of them, got {threshold}"
        )


def check_roles(owners: tuple[str, ...], sent: AbstractSet[str], dropped: AbstractSet[str], threshold: int) -> None:
    """Refuse sets that do not say of each owner either that it sent a message or that it did not."""
    if both := sent & dropped:
        raise ProtocolError(f"{_listed(both)} cannot both have sent a message and have dropped out")
    if (sent | dropped) != set(owners):
        raise ProtocolError(f"sent and dropped name {_listed(sent | dropped)}, the owners are {_listed(owners)}")
    if len(sent) < threshold:
        raise ProtocolError(f"{len(sent)} owners sent a message ({_listed(sent)}), at least {threshold} must have")


def _joined_seed(
    about: str, answers: Mapping[str, Mapping[str, bytes]], numbers: Mapping[str, int], threshold: int
) -> bytes:
    shares = []
    for owner, answer in sorted(answers.items()):
        share = Share.from_bytes(_revealed(answer[about], _SHARE, SHARE_BYTES, owner, about))
        if (share.number, share.threshold) != (numbers[owner], threshold):
            raise ProtocolError(
                f"{owner} gave share {share.number} with threshold {share.threshold} of the seed of {about}, "
                f"expected share {numbers[owner]} with threshold {threshold}"
            )
        shares.append(share)
    try:
        return join(shares)
    except ProtocolError as error:
        raise ProtocolError(f"the seed of {about} cannot be joined: {error}") from error


def _revealed(data: bytes, kind: bytes, n_bytes: int, owner: str, about: str) -> bytes:
    if data[:1] != kind or len(data) != 1 + n_bytes:
        expected = "a share of its seed" if kind == _SHARE else "the seed of the pair"
        raise ProtocolError(f"the answer of {owner} about {about} is not {expected}")
    return data[1:]


def _about_seeds(sender: str, receiver: str, tree: int, n_levels: int) -> bytes:
    return masking.joined(
        "sealed seeds v1", sender, receiver, tree.to_bytes(4, "little"), n_levels.to_bytes(4, "little")
    )


def _tree_nonce(tree: int) -> bytes:
    return tree.to_bytes(12, "little")


def _listed(names: AbstractSet[str] | tuple[str, ...] | list[str]) -> str:
    return ", ".join(sorted(names)) or "nobody"


# --- shares of a seed ------------------------------------------------------------------------------------------------


class Share(NamedTuple):
    """One point of the polynomial, with the number of points that are needed."""

    number: int
    threshold: int
    value: int

    def to_bytes(self) -> bytes:
        """37 bytes."""
        return _HEADER.pack(self.number, self.threshold) + self.value.to_bytes(_VALUE_BYTES, "little")

    @classmethod
    def from_bytes(cls, data: bytes) -> Share:
        """The share that `to_bytes` wrote; ProtocolError for anything else."""
        if len(data) != SHARE_BYTES:
            raise ProtocolError(f"a share has {SHARE_BYTES} bytes, got {len(data)}")
        number, threshold = _HEADER.unpack_from(data)
        share = cls(number, threshold, int.from_bytes(data[_HEADER.size :], "little"))
        if number < 1 or threshold < 1 or share.value >= PRIME:
            raise ProtocolError("these bytes are not a share")
        return share

    def __repr__(self) -> str:
        return f"Share(number={self.number}, threshold={self.threshold}, value=hidden)"


def split(secret: bytes, n: int, threshold: int, rng: SecureRandom) -> list[Share]:
    """Shares of a 32-byte secret for parties 1 .. n.

    1. a_1 .. a_(threshold-1) uniform modulo the prime.
    2. share k = secret + a_1 k + a_2 k^2 + ...
    """
    if len(secret) != SECRET_BYTES:
        raise InvalidParameter(f"secret must have {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= n <= MAX_SHARES:
        raise InvalidParameter(f"threshold must be between 1 and n, n at most {MAX_SHARES}, got {threshold} of {n}")
    highest_first = [rng.integer(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "little")
    shares = []
    for x in range(1, n + 1):
        value = 0
        for coefficient in highest_first:
            value = (value + coefficient) * x % PRIME
        shares.append(Share(x, threshold, (value + constant) % PRIME))
    return shares


def join(shares: Sequence[Share]) -> bytes:
    """The secret behind at least `threshold` shares.

    1. secret = f(0), interpolated through the first `threshold` shares.
    2. Every further share must lie on the same polynomial; otherwise one of them is wrong, and nothing is returned.
    """
    if not shares:
        raise ProtocolError("no shares were given")
    threshold = shares[0].threshold
    if any(share.threshold != threshold for share in shares):
        raise ProtocolError("these shares have different thresholds, so they are not of one secret")
    numbers = tuple(share.number for share in shares)
    if len(set(numbers)) < len(numbers):
        raise ProtocolError(f"two shares have the same number among {sorted(numbers)}")
    if len(shares) < threshold:
        raise ProtocolError(f"{len(shares)} shares were given, {threshold} are needed")
    base, values = numbers[:threshold], [share.value for share in shares[:threshold]]
    for share in shares[threshold:]:
        if _interpolated(base, values, share.number) != share.value:
            raise ProtocolError(f"the shares {sorted(numbers)} are not of one secret: at least one of them is wrong")
    secret = _interpolated(base, values, 0)
    if secret >= 2**256:
        raise ProtocolError(
            f"the shares {sorted(numbers)} give no secret of {SECRET_BYTES} bytes: one of them is wrong"
        )
    return secret.to_bytes(SECRET_BYTES, "little")


def _interpolated(numbers: tuple[int, ...], values: Sequence[int], x: int) -> int:
    weights = _weights(numbers, x)
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME


@functools.lru_cache(maxsize=1024)
def _weights(numbers: tuple[int, ...], x: int) -> tuple[int, ...]:
    """Lagrange weights at x; they depend on who answered only, and the same parties answer again and again."""
    weights = []
    for k in numbers:
        above, below = 1, 1
        for other in numbers:
            if other != k:
                above = above * (x - other) % PRIME
                below = below * (k - other) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
