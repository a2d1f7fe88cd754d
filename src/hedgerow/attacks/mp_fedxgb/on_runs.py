"""Attacks on recorded runs of vertical.mp_fedxgb; and that of vertical.secret_shared there is nothing to attack."""

from __future__ import annotations

from typing import Any

import numpy as np

from hedgerow.attacks.mp_fedxgb import argmax_opened as argmax
from hedgerow.attacks.mp_fedxgb import bucket_labels, seen_openings
from hedgerow.attacks.mp_fedxgb.denominators_opened import leaf_sizes, sums_of_hessians
from hedgerow.attacks.registry import AS_STATED, BROKEN, CONFIDENCE, HOLDS, NOT_RUN, NOT_SCORED, Aim, Context, Outcome
from hedgerow.attacks.results import area_under_roc, share
from hedgerow.engine.dtypes import Bools
from hedgerow.protocols.published.mp_fedxgb.job import DIVISION, MpFedXgbJob
from hedgerow.protocols.published.mp_fedxgb.messages import PredictionShare
from hedgerow.protocols.published.mp_fedxgb.plan import Plan
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.transcripts import NOTED

P1, P2 = 0, 1
MANY_ROWS = 2_000
"""Without its own table P2 tries all numbers of rows, which takes time with their square."""


# --- P2: labels ------------------------------------------------------------------------------------------------------


def argmax_opened(context: Context) -> list[Outcome]:
    """P2 computes sums of labels of the first tree from numerators, and from those labels of rows."""
    job: MpFedXgbJob = context.job
    attacker = job.numerators_to
    aim = Aim("argmax_opened", attacker, f"labels of {job.label_holder}")
    transcript = context.run.transcript(attacker)
    plan = seen_openings.plan_of(transcript, job)
    problem = _not_attackable(job)
    if not problem and attacker not in context.tables and plan.n_rows > MANY_ROWS:
        problem = f"with more than {MANY_ROWS:,} rows it needs its own table: --table {attacker}=FILE"
    if problem:
        return [aim.says(NOT_RUN, problem)]
    columns = seen_openings.Columns.of(job, plan, _data_of(context, plan, attacker))
    nodes = seen_openings.opened_nodes(transcript, seen_openings.NUMERATORS, 0, plan)
    goes_left = columns.of_party(P2)
    rows, own = argmax.known_rows(nodes, goes_left), argmax.own_counts(nodes, goes_left)
    rules = argmax.Rules(plan.scales.lambda_int, round(plan.scales.threshold))
    found = argmax.sums_of_labels(nodes, plan.n_rows, own, columns.candidates, _start(job, plan), rules)
    sides = [{} if result is None else result.sides for result in found]
    words = f"first tree: {seen_openings.outcome(nodes, sides).verdict().removeprefix('ALARM: ')}"
    truth = context.ones(job.label_holder, plan.n_rows)
    buckets = _buckets(columns, rows, found)
    if truth is None or not buckets:
        missing = "" if buckets else f" With --table {attacker}=FILE they become labels of rows."
        return [aim.says(NOT_SCORED, words + missing)]
    certain, likely = bucket_labels.all_labels(buckets, plan.n_rows)
    n_certain, n_right = (certain != bucket_labels.UNKNOWN).sum(), (certain == truth).sum()
    words += f" {n_certain:,} of {plan.n_rows:,} labels for certain, {n_right:,} of them right"
    area = area_under_roc(likely[truth == 1], likely[truth == 0], CONFIDENCE)
    return [aim.scored(words, "AUC", area, chance=0.5)]


def _not_attackable(job: MpFedXgbJob) -> str | None:
    if job.argmax == DIVISION:
        return "differences of quotients were opened, which this attack does not take"
    return None if job.task == "classification" else "labels are numbers; this attack is on two classes"


def _start(job: MpFedXgbJob, plan: Plan) -> argmax.GradientsFor:
    score = job.boosting.base_score
    quantiser = plan.scales.quantiser
    return (
        argmax.from_base_rate(plan.n_rows, quantiser) if score is None else argmax.from_score(float(score), quantiser)
    )


def _buckets(
    columns: seen_openings.Columns, rows: dict[int, Bools], found: list[argmax.SumsOfLabels | None]
) -> list[bucket_labels.Buckets]:
    """P2's own columns at nodes whose rows it knows, with the positives of each bucket that it found."""
    if P2 not in columns.codes:
        return []
    listed = []
    for place, here in rows.items():
        result = found[place]
        seen: set[int] = set()
        for candidates, owner, column in zip(columns.candidates, columns.owner, columns.column, strict=True):
            if owner != P2 or result is None or column in seen:  # the first list has missing values at the right
                continue
            seen.add(column)
            sides = [result.sides.get(candidate, ()) for candidate in candidates]
            if all(len(each) == 1 for each in sides):
                codes = np.where(here, columns.codes[P2][column].astype(np.int64), bucket_labels.UNKNOWN)
                positives = np.diff([0, *(each[0].positives for each in sides), result.whole.positives])
                listed.append(bucket_labels.Buckets(codes, positives))
    return listed


# --- P1: the others' columns -----------------------------------------------------------------------------------------


def denominators_opened(context: Context) -> list[Outcome]:
    """P1 computes, in the first tree, how many rows are left of every possible split of everybody."""
    job: MpFedXgbJob = context.job
    attacker = job.label_holder
    others = [party for party in job.feature_holders if party in context.tables]
    aim = Aim("denominators_opened", attacker, f"columns of {', '.join(job.feature_holders)}")
    problem = _not_attackable(job)
    if problem:
        return [aim.says(NOT_RUN, problem)]
    transcript = context.run.transcript(attacker)
    plan = seen_openings.plan_of(transcript, job)
    columns = seen_openings.Columns.of(job, plan, _data_of(context, plan, *job.holders))
    nodes = seen_openings.opened_nodes(transcript, seen_openings.DENOMINATORS, 0, plan)
    hessian = _hessian(context, plan)
    lambda_int = plan.scales.lambda_int
    mine = {cut: int(left.sum()) * hessian for cut, left in columns.of_party(P1).items()}
    totals: dict[int, int] = {}
    found: list[dict[int, tuple[int, ...]]] = []
    for place, node in enumerate(nodes):
        if node.above is None:
            totals[place] = plan.n_rows * hessian
        else:
            left = found[node.above[0]].get(nodes[node.above[0]].winner, ())
            if len(left) == 1 and node.above[0] in totals:
                totals[place] = left[0] if node.above[1] else totals[node.above[0]] - left[0]
        known = mine if node.above is None else None
        total = totals.get(place)
        found.append({} if total is None else sums_of_hessians(node, total, lambda_int, columns.candidates, known))
    words = f"first tree, numbers of rows: {seen_openings.outcome(nodes, found).verdict().removeprefix('ALARM: ')}"
    if not others:
        return [aim.says(NOT_SCORED, words)]
    foreign = [cut for cut in columns.goes_left if plan.owner_of_cut[cut] != P1 and cut in nodes[0].candidates]
    right = sum(found[0].get(cut) == (int(columns.goes_left[cut].sum()) * hessian,) for cut in foreign)
    return [
        aim.scored(
            f"{words} At the root {right:,} of {len(foreign):,} of {', '.join(others)} are right",
            "sums right",
            share(right, len(foreign), CONFIDENCE),
        )
    ]


def _hessian(context: Context, plan: Plan) -> int:
    """Of every row before the first tree, whose score P1 knows: it is in its part of the model."""
    model: Any = context.run.model
    target = model.parts[context.job.label_holder].target
    return argmax.from_score(target.base_scores[0], plan.scales.quantiser)(0).hessian


# --- leaves ----------------------------------------------------------------------------------------------------------


def leaf_opened(context: Context) -> list[Outcome]:
    """P1 learns which rows share a leaf; everybody learns how many rows each leaf of the first tree has."""
    job: MpFedXgbJob = context.job
    first, other = job.label_holder, job.feature_holders[-1]
    transcript = context.run.transcript(first)
    plan = seen_openings.plan_of(transcript, job)
    values = [seen_openings.opened_values(transcript, tree) for tree in range(job.boosting.n_iterations)]
    n_leaves = sum(len(np.unique(each)) for each in values)
    rows = Aim("leaf_opened", first, "rows").says(
        AS_STATED, f"which of {plan.n_rows:,} rows share each of {n_leaves:,} leaves in {len(values):,} trees"
    )
    if job.task != "classification":
        return [rows]
    steps = seen_openings.opened_steps(context.run.transcript(other), plan, 0)
    leaves = leaf_sizes(steps, plan.scales.lambda_int, _hessian(context, plan))
    truth = sorted(np.unique(values[0], return_counts=True)[1].tolist())
    used = sorted(leaves, key=lambda leaf: leaf.estimate)[-len(truth) :]  # the rest are places for leaves
    right = sum(leaf.low <= n <= leaf.high for leaf, n in zip(used, truth, strict=True))
    words = f"how many rows each leaf of the first tree has: {right} of {len(truth)} are between the bounds it finds"
    sizes = Aim("leaf_opened", other, "rows of leaves").scored(
        words, "sizes right", share(right, len(truth), CONFIDENCE)
    )
    return [rows, sizes]


# --- vertical.secret_shared ------------------------------------------------------------------------------------------


def nothing_opened(context: Context) -> list[Outcome]:
    """No party has a message of the published openings, or noted anything that shares made."""
    published = {kind.NAME for kind in (*seen_openings.NUMERATORS, *seen_openings.DENOMINATORS, PredictionShare)}
    outcomes = []
    for party in context.job.holders:
        transcript = context.run.transcript(party)
        opened = (transcript.kinds() & published) | {"noted" for direction, _, _ in transcript if direction == NOTED}
        words = f"opened: {', '.join(sorted(opened))}" if opened else seen_openings.outcome([], []).verdict()
        outcomes.append(Aim("openings", party, "sums, gains, labels").says(BROKEN if opened else HOLDS, words))
    return outcomes


def _data_of(context: Context, plan: Plan, *parties: str) -> dict[str, PartyData]:
    found = {party: context.data(party, plan.n_rows) for party in parties}
    return {party: data for party, data in found.items() if data is not None}
