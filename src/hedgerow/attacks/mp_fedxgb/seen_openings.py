"""What parties of vertical.mp_fedxgb get to know, from their transcripts, as the attacks on its openings take it.

Shares of others are on the wire; what they make together with a party's own stands in its transcript as "noted".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.registry import n_rows_of
from hedgerow.crypto import limbs
from hedgerow.crypto.shares import Array
from hedgerow.engine.dtypes import Bools, Bytes, Ints
from hedgerow.protocols.published.mp_fedxgb.argmax import Round
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import (
    Better,
    DenominatorShare,
    NumeratorShare,
    NumeratorSigns,
    PredictionShare,
    Steps,
    StepShare,
    TestDenominatorShare,
    TestNumeratorShare,
)
from hedgerow.protocols.published.mp_fedxgb.plan import Plan
from hedgerow.protocols.shares.columns import Cuts, OneHotColumns, Sizes
from hedgerow.protocols.shares.messages import ColumnSizes
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import NOTED, RECEIVED, SENT, Transcript

T = TypeVar("T")


class Pair(NamedTuple):
    """One comparison: two candidates and the number that was opened about them."""

    first: int
    second: int
    value: int


@dataclass(frozen=True)
class OpenedNode:
    """All that was opened to one party about one node."""

    pairs: tuple[Pair, ...]
    winner: int
    test: int
    """About the winner and no split at all."""
    above: tuple[int, bool] | None = None
    """The node that it is a child of, by its place among those of the tree, and whether it is the left one."""

    @property
    def candidates(self) -> set[int]:
        """All that were compared."""
        return {c for pair in self.pairs for c in pair[:2]} | {self.winner}


def in_order(options: Sequence[Sequence[T]], fits: Callable[[T, T], bool]) -> list[tuple[T, ...]]:
    """Options of which one each can be chosen so that every one fits the one before; as they are, if none can."""
    left = [list(each) for each in options]
    for k in range(1, len(left)):
        left[k] = [one for one in left[k] if any(fits(before, one) for before in left[k - 1])]
    for k in range(len(left) - 1, 0, -1):
        left[k - 1] = [one for one in left[k - 1] if any(fits(one, after) for after in left[k])]
    return [tuple(each) for each in (left if all(left) else options)]


class SumsFound(NamedTuple):
    """How much an attack found out, by its own account; whether it is right is another question."""

    n_opened: int
    """Numbers that it had to work on."""
    n_candidates: int
    """At all nodes together."""
    clear: int
    """Candidates with one possible left side."""
    two_sided: int
    """Candidates with two possible left sides, mostly left and right."""

    def verdict(self) -> str:
        """The outcome in words."""
        if not self.n_opened:
            return "Nothing was opened: there is nothing to work on."
        found = f"{self.clear:,} of {self.n_candidates:,} sums are clear, {self.two_sided:,} up to left and right"
        return f"{'ALARM: ' if self.clear + self.two_sided else ''}{self.n_opened:,} numbers were opened; {found}."


def outcome(nodes: Sequence[OpenedNode], sides: Sequence[Mapping[int, Sequence[object]]]) -> SumsFound:
    """Of either attack, from what it found for each node."""
    n_candidates = sum(len(node.candidates) for node in nodes)
    sizes = [len(options) for found in sides for options in found.values()]
    n_opened = sum(len(node.pairs) + 1 for node in nodes)
    return SumsFound(n_opened, n_candidates, sizes.count(1), sizes.count(2))


NUMERATORS: tuple[type[Any], type[Any]] = (NumeratorShare, TestNumeratorShare)
"""What P2 opens."""
DENOMINATORS: tuple[type[Any], type[Any]] = (DenominatorShare, TestDenominatorShare)
"""What P1 opens."""


def plan_of(transcript: Transcript, job: MpFedXgbJob) -> Plan:
    """The shape of the training, which everybody knows."""
    sizes = dict(transcript.messages_by_peer(ColumnSizes, RECEIVED))
    for message in transcript.messages(ColumnSizes, SENT):
        sizes[transcript.party] = message
    everybody = [sizes[party] for party in job.holders]
    n_bins = tuple(tuple(each.n_bins.tolist()) for each in everybody)
    gaps = tuple(tuple(bool(gap) for gap in each.has_missing.tolist()) for each in everybody)
    return Plan.of(job, Sizes(n_rows_of(transcript), n_bins, gaps))


def opened_nodes(transcript: Transcript, kinds: tuple[type[Any], type[Any]], tree: int, plan: Plan) -> list[OpenedNode]:
    """The comparisons of a tree, node by node, parents before children; kinds are NUMERATORS or DENOMINATORS."""
    found: list[OpenedNode] = []
    above: list[tuple[int, bool] | None] = [None]
    seen: list[_SeenRound] = []  # of a level, so far
    for opened, bits in _opened(transcript, kinds):
        if opened.tree != tree:
            continue
        n_limbs = (plan.division(opened.level).kind if plan.argmax == DIVISION else plan.wide).limbs
        numbers = limbs.to_ints(_words(opened, n_limbs))
        is_second = np.unpackbits(bits, count=numbers.size).astype(np.bool_)
        if isinstance(opened, kinds[0]):
            each = plan.rounds(opened.level)[opened.round]
            shape = (-1, each.n_pairs)
            seen.append(_SeenRound(each, numbers.reshape(shape), is_second.reshape(shape)))
            continue
        children: list[tuple[int, bool] | None] = []
        for k, parent in enumerate(above):
            if is_second[k]:  # better than no split
                children += [(len(found), True), (len(found), False)]
            pairs, winner = _compared(seen, k, plan.n_candidates(opened.level))
            found.append(OpenedNode(pairs, winner, int(numbers[k]), parent))
        above, seen = children, []
    return found


class _SeenRound(NamedTuple):
    """One round of comparisons, at all nodes of a level."""

    round: Round
    numbers: npt.NDArray[np.object_]  # [nodes, pairs]
    second_is_better: Bools  # [nodes, pairs] everybody is told


def _compared(seen: Sequence[_SeenRound], k: int, n_candidates: int) -> tuple[tuple[Pair, ...], int]:
    """All comparisons at the k-th node of a level, and who won."""
    left, pairs = np.arange(n_candidates), []
    for each, numbers, is_second in seen:
        both = (left[each.first].tolist(), left[each.first + 1].tolist())
        pairs += [Pair(*pair) for pair in zip(*both, map(int, numbers[k]), strict=True)]
        left = left[each.winners(is_second[k])]
    return tuple(pairs), int(left[0])


def _opened(transcript: Transcript, kinds: tuple[type[Any], type[Any]]) -> Iterator[tuple[Any, Bytes]]:
    """What was opened, each with the signs that everybody was then told."""
    opened: Any = None
    of_name = {kind.NAME: kind for kind in kinds}
    signs: dict[str, type[Any]] = {kind.NAME: kind for kind in (NumeratorSigns, Better)}
    for direction, _, frame in transcript:
        name = peek(frame)[0]
        if direction == NOTED and name in of_name:
            opened = decode(frame, of_name[name])
        elif direction == RECEIVED and name in signs and opened is not None:
            yield opened, decode(frame, signs[name]).bits
            opened = None


def _words(message: Any, n_limbs: int) -> Array:
    return np.ascontiguousarray(message.words).view("<u4").reshape(-1, n_limbs).astype(np.uint32)


def opened_steps(transcript: Transcript, plan: Plan, tree: int) -> list[int]:
    """H + lambda and the perturbations of each leaf: P1 opens them, all others are told."""
    told: list[StepShare | Steps] = [*transcript.messages(StepShare, NOTED), *transcript.messages(Steps, RECEIVED)]
    (message,) = [message for message in told if message.tree == tree]
    return [int(number) for number in limbs.to_ints(_words(message, plan.descent.kind.limbs))]


def opened_values(transcript: Transcript, tree: int) -> Ints:
    """[rows] what a tree says about each row, in units: opened to P1."""
    parts = [message.words for message in transcript.messages(PredictionShare, NOTED) if message.tree == tree]
    return np.ascontiguousarray(np.concatenate(parts)).view("<i8").astype(np.int64)


@dataclass(frozen=True)
class Columns:
    """Everybody's columns. A party knows the plan, the lists of candidates, and `goes_left` of its own ones."""

    plan: Plan
    candidates: list[list[int]]
    """Whose left sides grow: of each column those with missing values at the right, then at the left."""
    owner: list[int]  # the holder of each list, by its place
    column: list[int]  # of each list, among those of its holder
    goes_left: Mapping[int, Bools]
    codes: Mapping[int, np.ndarray]  # [columns, rows] of each holder whose table is there

    @classmethod
    def of(cls, job: MpFedXgbJob, plan: Plan, data: Mapping[str, PartyData]) -> Columns:
        """As the parties of a job bin them; of those whose tables are there also where rows go."""
        lists: dict[tuple[int, int, bool], list[int]] = {}
        goes_left: dict[int, Bools] = {}
        codes: dict[int, np.ndarray] = {}
        for place, (party, bins, gaps) in enumerate(zip(job.holders, plan.sizes.n_bins, plan.sizes.gaps, strict=True)):
            cuts = Cuts.of(bins, gaps)
            own = OneHotColumns.by_quantiles(party, job, data[party]) if party in data else None
            if own is not None:
                codes[place] = own.codes
            for cut, (column, at_left) in enumerate(zip(cuts.column, cuts.missing_left, strict=True)):
                number = int(plan.first_cut[place]) + cut
                lists.setdefault((place, int(column), bool(at_left)), []).append(number)
                if own is not None:
                    goes_left[number] = np.unpackbits(own.goes_left(cut), count=plan.n_rows).astype(np.bool_)
        owner, column_of = [key[0] for key in lists], [key[1] for key in lists]
        return cls(plan, list(lists.values()), owner, column_of, goes_left, codes)

    def of_party(self, place: int) -> dict[int, Bools]:
        """Where the candidates of one holder send all rows."""
        return {cut: left for cut, left in self.goes_left.items() if self.plan.owner_of_cut[cut] == place}
