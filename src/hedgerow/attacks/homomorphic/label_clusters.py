"""Labels from the rows of nodes: what every feature holder of vertical.homomorphic sees beside points.

Trees put rows of like labels together, and feature holders learn the rows of every node. An adversary that knows the
labels of a few rows (its own customers, say) takes them for a sample of their nodes:

    1  per tree and row: the smallest node that the row was seen in
    2  per node: log((known ones + 1/2) / (known zeros + 1/2))
    3  per row: the sum over all trees

No key is needed, no gradient, and not even the adversary's own columns. Nothing is promised against it. The same few
labels with the adversary's columns would tell something as well; that is not taken off.
"""

from __future__ import annotations

import numpy as np

from hedgerow.attacks.registry import CONFIDENCE, NOT_RUN, NOT_SCORED, Aim, Context, Outcome, n_rows_of
from hedgerow.attacks.results import area_under_roc
from hedgerow.engine.dtypes import Bytes, Floats, Ints
from hedgerow.protocols.vertical.common.messages import LEAF
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.messages import EncryptedRows, Partition, WhichWay, Winners
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.transcripts import Transcript

N_KNOWN = 40
"""Labels that the adversary has from elsewhere, half of them of each class."""


def seen_nodes(transcript: Transcript, peer: str, n_rows: int) -> list[list[Ints]]:
    """Per tree and level the node of each row, as the transcript of either side tells them; -1 in a leaf above.

    `peer` is one whose messages begin trees and levels. Where the party does not know which way rows of a last split
    go, they count as left.
    """
    trees: list[list[Ints]] = []
    splitting = sides = None
    for passed in transcript:
        name = peek(passed.frame)[0]
        if name in (WhichWay.NAME, Partition.NAME) and sides is not None:
            kind: type[WhichWay | Partition] = WhichWay if name == WhichWay.NAME else Partition
            sides |= np.unpackbits(decode(passed.frame, kind).sides)[:n_rows]
        elif name in (EncryptedRows.NAME, Winners.NAME) and passed.peer == peer:
            if name == EncryptedRows.NAME and decode(passed.frame, EncryptedRows).first_row > 0:
                continue
            if splitting is not None and sides is not None:
                trees[-1].append(_descended(trees[-1][-1], splitting, sides))
            splitting, sides = None, np.zeros(n_rows, np.uint8)
            if name == EncryptedRows.NAME:
                trees.append([np.zeros(n_rows, np.int64)])
            else:
                splitting = decode(passed.frame, Winners).roles != LEAF
    if splitting is not None and sides is not None:
        trees[-1].append(_descended(trees[-1][-1], splitting, sides))
    return trees


def _descended(current: Ints, splitting: np.ndarray, sides: Bytes) -> Ints:
    number = np.cumsum(splitting) - 1  # among the splitting nodes
    moves = (current >= 0) & splitting[current]
    return np.where(moves, 2 * number[current] + sides, -1)


def label_scores(trees: list[list[Ints]], known: Ints, labels: Floats) -> Floats:
    """How much each row looks like label 1, by the labels of the rows that are known."""
    scores = np.zeros(len(trees[0][0]))
    for levels in trees:
        _, node = np.unique(np.stack(levels), axis=1, return_inverse=True)
        node = node.reshape(-1)
        ones, zeros = (np.bincount(node[known], labels[known] == label, node.max() + 1) for label in (1, 0))
        scores += np.log((ones + 0.5) / (zeros + 0.5))[node]
    return scores


def not_two_classes(context: Context) -> str | None:
    """Why the attacks on vertical.homomorphic are not run on these labels, if that is so."""
    if context.job.task != "classification":
        return "labels are numbers; this attack is on two classes"
    n_classes = len(context.run.model.classes_)
    return f"labels are of {n_classes} classes; this attack is on two" if n_classes > 2 else None


def on_run(context: Context) -> list[Outcome]:
    """Every feature holder, from the rows of nodes alone."""
    job: HomomorphicJob = context.job
    return [_by(context, job, party) for party in job.feature_holders]


def _by(context: Context, job: HomomorphicJob, attacker: str) -> Outcome:
    aim = Aim("label_clusters", attacker, f"labels of {job.label_holder}")
    if (why := not_two_classes(context)) is not None:
        return aim.says(NOT_RUN, why)
    transcript = context.run.transcript(attacker)
    n_rows = n_rows_of(transcript)
    trees = seen_nodes(transcript, job.label_holder, n_rows)
    n_groups = len(np.unique(np.stack([level for levels in trees for level in levels]), axis=1).T)
    found = f"{n_groups:,} groups of rows that were together in all nodes of {len(trees):,} trees"
    truth = context.ones(job.label_holder, n_rows)
    if truth is None:
        return aim.says(NOT_SCORED, found)
    rng = np.random.default_rng(0)
    of_each = [np.flatnonzero(truth == label) for label in (0, 1)]
    if min(map(len, of_each)) < N_KNOWN:
        return aim.says(NOT_RUN, f"fewer than {N_KNOWN} rows have the rarer label")
    known = np.concatenate([rng.choice(rows, N_KNOWN // 2, replace=False) for rows in of_each])
    scores, others = label_scores(trees, known, truth), np.delete(np.arange(n_rows), known)
    ones, zeros = (scores[others[truth[others] == label]] for label in (1, 0))
    area = area_under_roc(ones, zeros, CONFIDENCE)
    return aim.scored(f"{found}; all other labels, from {N_KNOWN} that it knew", "AUC", area, chance=0.5)
