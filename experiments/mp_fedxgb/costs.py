"""What a training sends and how many rounds it takes, from its shape alone: formulas, no protocol.

With N rows, s bytes of a sum (4 or 8), w bytes of a wide number, C candidates of feature holders, of all nodes v of a
level (those of a block that is not full counted as well):

    who -> whom                     message        bytes of a level
    label holder -> each holder     LevelInput     2 s N for the root or each left child, N / 8 for each node
    everybody -> each other         MaskedWords    4 s C v to lift, and the tournament: `Plan.openings`
    everybody -> each other         WinnerShare    4 v
    winner -> label holder          WhichWay       4 + 2 N / 8 for each node that it won
    dealer -> all of them           Dealt          2 s for each row of their matrices, for the root or each left child;
                                                   N / 8 for each node and feature holder; 32 w C v to lift; tournament
    once, holder -> label holder    MaskedColumns  s N for each row of its matrix

The dealer deals for full trees, so Dealt does not depend on data; all else is for the nodes that there are.

These are payloads. On the wire each message is a frame (`transport.frames`): a heading of its class, the same for all
(`framed`), and each body filled up to a multiple of 8 bytes. Meters count frames. Over gRPC an envelope of 24 bytes and
what HTTP/2 and TLS add come on top, which nobody counts.

The design from which this one began opens, for each node and at each party, with J columns of K bins, C all candidates:

    16 N + 16 (J K + 1) + 64 C + 190 (C - 1)                in 6 + 11 log2 C rounds per level (`first_design`)

(right children by subtraction there too, so 8 N on average below the root). Here F goes from the label holder alone, in
words of 4 bytes instead of 8: 4 N per node below the root, and nothing from the others. Sums are lifted and made into
gains in one opening of 16 bytes for each candidate (instead of 16 + 64), groups of up to 8 are compared at once, and
the label holder's candidates are one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hedgerow.crypto.compare import MAX_FAN_IN, Circuit, products_of
from hedgerow.crypto.lifting import BLOCK
from hedgerow.crypto.limbs import n_digits
from hedgerow.crypto.shares import SUM32
from hedgerow.crypto.tournament import Level, Plan
from hedgerow.protocols.vertical.secret_shared.shape import HISTOGRAMS, SPLITS, Shape

LIFTED_TABLE = 32
"""Wide numbers that are dealt for each candidate (`crypto.lifting`)."""

PARCEL_HEADING = 16
"""Bytes of its label, at the beginning of every parcel that is not empty (`crypto.dealing`)."""

ALIGNED = 8
"""Every correction in a parcel, and every body in a frame, is filled up to a multiple of so many bytes."""


def padded(n_bytes: int) -> int:
    """Filled up, as bodies of frames and corrections are."""
    return -(-n_bytes // ALIGNED) * ALIGNED


def framed(heading: int, bodies: Sequence[int]) -> int:
    """Bytes of a frame with bodies of such sizes, from those of the heading of its class (a frame of empty bodies)."""
    return heading + sum(padded(body) for body in bodies)


# --- once ------------------------------------------------------------------------------------------------------------


def masked_columns(shape: Shape, place: int) -> list[int]:
    """Bytes of each MaskedColumns of a feature holder (1, 2, ...)."""
    word = shape.scales.sums.number_bytes
    return [word * shape.n_rows * (bins.stop - bins.start) for bins in shape.matrices.blocks(place)]


# --- a level ---------------------------------------------------------------------------------------------------------


def n_families(n_nodes: int) -> int:
    """Nodes whose vectors are sent: the root, or left children."""
    return max(1, n_nodes // 2)


class Input(NamedTuple):
    """The bodies of a LevelInput."""

    sums: int
    rows: int


def level_input(shape: Shape, n_nodes: int) -> list[Input]:
    """Each LevelInput that the label holder sends to each feature holder, at a level of so many nodes."""
    word, pieces = shape.scales.sums.number_bytes, shape.family_pieces(n_families(n_nodes))
    rows = n_nodes * shape.bytes_of_bits
    return [Input(word * shape.n_rows * (p.stop - p.start), 0 if p.start else rows) for p in pieces]


def openings(shape: Shape, level: int, n_nodes: int | None = None) -> list[int]:
    """Bytes that each party sends to each other, round by round: the last is its WinnerShare, all others MaskedWords.

    For so many nodes, or for all that there can be at that level.
    """
    n_blocks, plan = shape.n_blocks(level, n_nodes), shape.plan(level)
    lift = 4 * shape.scales.sums.number_bytes * plan.n_nodes * shape.n_candidates
    each = [lift, *plan.openings(), SUM32.number_bytes * plan.n_nodes]
    return [n_blocks * n_bytes for n_bytes in each]


def rounds(shape: Shape, level: int, *, asks_owner: bool = True) -> int:
    """Of a level: its input, openings, and the answer of who won; that one is spared if no feature holder did."""
    return 1 + len(openings(shape, level)) + asks_owner


class Answer(NamedTuple):
    """The bodies of a WhichWay."""

    handles: int
    hidden: int
    answers: int


def which_way(shape: Shape, n_won: int) -> Answer:
    """What a feature holder sends that won so many nodes of a level."""
    return Answer(4 * n_won, n_won * shape.bytes_of_bits, n_won * shape.bytes_of_bits)


# --- the dealer ------------------------------------------------------------------------------------------------------


class Parcel(NamedTuple):
    """What is dealt in one step: numbers of bytes, and among whom; one party of each gets them."""

    lane: str
    step: int
    shares: tuple[tuple[int, tuple[int, ...]], ...]


def parcels(shape: Shape, level: int) -> Iterator[Parcel]:
    """All that is dealt for a level of a tree, in order."""
    everybody = tuple(range(shape.n_holders))
    vectors, word = 2 * shape.n_families(level), shape.scales.sums.number_bytes
    pairs = [(0, place) for place in everybody[1:]]
    yield Parcel(HISTOGRAMS, 0, tuple((vectors * word * shape.bins[pair[1] - 1], pair) for pair in pairs))
    yield Parcel(SPLITS, 0, tuple((shape.n_nodes(level) * shape.bytes_of_bits, pair) for pair in pairs))
    plan = shape.plan(level)
    for block in range(shape.n_blocks(level)):
        lane = shape.lane(block)
        yield Parcel(lane, 0, tuple((n, everybody) for n in _dealt_to_lift(shape, plan)))
        for step, each in enumerate(plan.levels(), start=1):
            yield Parcel(lane, step, tuple((n, everybody) for n in _dealt_for(each, plan)))


def _dealt_to_lift(shape: Shape, plan: Plan) -> Iterator[int]:
    n = plan.n_nodes * shape.n_candidates
    for start in range(0, n, BLOCK):
        yield LIFTED_TABLE * plan.kind.number_bytes * min(BLOCK, n - start)


def _dealt_for(level: Level, plan: Plan) -> Iterator[int]:
    """Of a level of a tournament, as `tournament.deal_level` has it."""
    n_pairs, wide = level.n_groups * level.n_pairs, plan.kind.number_bytes
    yield n_pairs * wide
    yield from _dealt_for_signs(n_pairs, plan.n_limbs, plan.circuit)
    chosen = level.n_groups * (level.group - 1)
    if level.select == "table":
        chosen <<= level.group - 1
    elif level.asks_twice:
        deciding = level.group - 1
        yield chosen * products_of(min(deciding, MAX_FAN_IN)).kind.number_bytes << max(0, deciding - MAX_FAN_IN)
    if level.is_last:
        yield 2 * chosen * SUM32.number_bytes
        return
    yield 3 * chosen * wide
    yield chosen * SUM32.number_bytes


def _dealt_for_signs(n: int, n_limbs: int, circuit: Circuit) -> Iterator[int]:
    one_hot = max(1, (1 << circuit.digit_bits) // 8)
    yield n * n_digits(n_limbs, circuit.digit_bits) * one_hot
    yield math.ceil(n / 8)
    for layer in circuit.layers(n_limbs):
        yield 2 * n * layer.n_blocks * products_of(layer.fan_in).kind.number_bytes


def dealt(shape: Shape, tree: int, level: int) -> list[list[int]]:
    """Bytes of the corrections of each Dealt of a level, for each party: one message for each parcel.

    Corrections go round among the parties of a share, beginning with another one at each label (`crypto.dealing`).
    """
    sent: list[list[int]] = [[] for _ in range(shape.n_holders)]
    for parcel in parcels(shape, level):
        mine = [0] * shape.n_holders
        given: dict[tuple[int, ...], int] = {}
        for n_bytes, among in parcel.shares:
            turn = tree + level + parcel.step + sum(among) + given.get(among, 0)
            given[among] = given.get(among, 0) + 1
            receiver = among[turn % len(among)]
            mine[receiver] = (mine[receiver] or PARCEL_HEADING) + padded(n_bytes)
        for place, n_bytes in enumerate(mine):
            sent[place].append(n_bytes)
    return sent


# --- a tree ----------------------------------------------------------------------------------------------------------


class TreeCost(NamedTuple):
    """Payloads of a tree in which every node splits, and every level has a split of a feature holder."""

    rounds: int
    opened: int  # bytes that each party sends to each other: MaskedWords and WinnerShare
    input: int  # that the label holder sends to each feature holder: LevelInput
    answers: int  # that all winners together send, if no split is the label holder's: WhichWay
    dealt: int  # that the dealer sends to all parties together: Dealt


def full_tree(shape: Shape, depth: int, tree: int = 0) -> TreeCost:
    """Of a tree of so many levels."""
    levels, nodes = range(depth), [shape.n_nodes(level) for level in range(depth)]
    return TreeCost(
        sum(rounds(shape, level) for level in levels),
        sum(sum(openings(shape, level)) for level in levels),
        sum(sum(piece) for n in nodes for piece in level_input(shape, n)),
        sum(sum(which_way(shape, n)) for n in nodes),
        sum(sum(map(sum, dealt(shape, tree, level))) for level in levels),
    )


class NodeCost(NamedTuple):
    """Bytes that one party sends to one other for a node."""

    label_holder: float  # to a feature holder: openings and input
    feature_holder: float  # to any other: openings
    winner: float  # to the label holder, in addition


def node(shape: Shape, level: int) -> NodeCost:
    """Of a node of a full level."""
    n_nodes = shape.n_nodes(level)
    opened, sent = sum(openings(shape, level)) / n_nodes, sum(map(sum, level_input(shape, n_nodes))) / n_nodes
    return NodeCost(opened + sent, opened, sum(which_way(shape, 1)))


class FirstDesign(NamedTuple):
    """What the design from which this one began costs."""

    opened: int  # bytes per node and party
    rounds: int  # per level


def first_design(n_rows: int, n_columns: int, n_bins: int) -> FirstDesign:
    """With all columns of all parties, the label holder's among them; for a node whose vectors are opened."""
    candidates = n_columns * (n_bins - 1)
    opened = 16 * n_rows + 16 * (n_columns * n_bins + 1) + 64 * candidates + 190 * (candidates - 1)
    return FirstDesign(opened, 6 + 11 * math.ceil(math.log2(candidates)))
