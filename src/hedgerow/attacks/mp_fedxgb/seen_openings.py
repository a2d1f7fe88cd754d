"""What parties of vertical.mp_fedxgb get to know, from their transcripts, as the attacks on its openings take it.

Shares of others are on the wire; what they make together with a party's own stands in its transcript as "noted".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hedgerow.attacks.mp_fedxgb.opened_nodes import OpenedLevel, OpenedNode, nodes_of_tree
from hedgerow.attacks.registry import n_rows_of
from hedgerow.crypto import limbs
from hedgerow.crypto.shares import Array
from hedgerow.engine.dtypes import Bools, Ints
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
from hedgerow.protocols.shares.columns import Cuts, OneHotColumns
from hedgerow.protocols.shares.rows_messages import ColumnSizes
from hedgerow.protocols.shares.sizes import Sizes
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import NOTED, RECEIVED, SENT, Transcript

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
    """The comparisons of a tree, node by node, as NUMERATORS or DENOMINATORS."""
    levels: list[OpenedLevel] = []
    numbers: list[npt.NDArray[np.object_]] = []
    better: list[Bools] = []
    opened: Any = None  # whose signs have not been told yet
    of_name = {kind.NAME: kind for kind in kinds}
    for direction, _, frame in transcript:
        name = peek(frame)[0]
        if direction == NOTED and name in of_name:
            opened = decode(frame, of_name[name])
        elif direction == RECEIVED and name in (NumeratorSigns.NAME, Better.NAME) and opened is not None:
            told = decode(frame, Better) if name == Better.NAME else decode(frame, NumeratorSigns)
            if opened.tree == tree:
                rounds = plan.rounds(opened.level)
                shape = (-1, rounds[opened.round].n_pairs) if isinstance(opened, kinds[0]) else (-1,)
                found = limbs.to_ints(_words(opened, _limbs(plan, opened.level))).reshape(shape)
                answer = np.unpackbits(told.bits, count=found.size).astype(np.bool_)
                if isinstance(opened, kinds[0]):
                    numbers.append(found)
                    better.append(answer.reshape(found.shape))
                else:
                    levels.append(OpenedLevel(rounds, numbers, better, found.tolist(), answer))
                    numbers, better = [], []
            opened = None
    return nodes_of_tree(levels, [plan.n_candidates(level) for level in range(plan.depth)])


def _limbs(plan: Plan, level: int) -> int:
    kind = plan.division(level).kind if plan.argmax == DIVISION else plan.wide
    return kind.limbs


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

    def rows_of(self, nodes: list[OpenedNode]) -> list[Bools]:
        """The rows of each node, which nobody but P1 knows."""
        rows: list[Bools] = []
        for node in nodes:
            if node.above is None:
                rows.append(np.ones(self.plan.n_rows, np.bool_))
            else:
                left = self.goes_left[nodes[node.above[0]].winner]
                rows.append(rows[node.above[0]] & (left if node.above[1] else ~left))
        return rows
