"""What curious parties of the vertical protocols find out: the attacks of hedgerow.attacks, with their figures.

    HEDGEROW_DATA=folder python -m experiments.vertical_attacks                     about a minute on one core
    HEDGEROW_DATA=folder python -m experiments.vertical_attacks --json attacks.json figures for the documentation

bucket_bayes: the label holder of vertical.bucket_rr, on columns with one latent factor and on default_credit_card.
moved_edges: the exact power of the best test between two columns that differ in one value. noised_labels: a feature
holder of vertical.noised_gradients, on the frames that it received in a run on default_credit_card.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq

from experiments import bucket_guesses, label_guesses, moved_edges
from hedgerow import __version__
from hedgerow.attacks.noised_gradients.noised_labels import gradients_of_scores
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.datasets import find_dataset
from hedgerow.engine.dtypes import Bytes, Floats
from hedgerow.engine.losses import BoostingParams, Loss
from hedgerow.engine.table import Column, Table, read_table
from hedgerow.protocols.vertical.bucket_rr.buckets import bucketing_of, codes_of, randomise
from hedgerow.protocols.vertical.bucket_rr.job import Job
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import NoisyGradients
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise, plain_quantiser
from hedgerow.protocols.vertical.noised_gradients.spec import SPEC as PROTOCOL
from hedgerow.runtime.protocol import PartyData
from hedgerow.schema import Schema
from hedgerow.testing.transcripts import play
from hedgerow.transport.transcripts import Recording

N_BUCKETS = 16
CREDIT = {
    "PAY_0 .. PAY_6": ["PAY_0", *(f"PAY_{k}" for k in range(2, 7))],
    "BILL_AMT1 .. 6": [f"BILL_AMT{k}" for k in range(1, 7)],
    "PAY_AMT1 .. 6": [f"PAY_AMT{k}" for k in range(1, 7)],
}


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def noise(seed: int) -> SecureRandom:
    """The same noise in every run of the experiment with this seed."""
    return SecureRandom.from_seed(seed.to_bytes(32, "little"))


def table_of(values: Floats) -> Table:
    """Columns c0, c1, ... from [rows, columns]."""
    columns = tuple(Column(f"c{j}", np.ascontiguousarray(own)) for j, own in enumerate(values.T))
    return Table(columns, len(values), tuple(column.name for column in columns), has_names=True)


def buckets(table: Table, epsilon: float, edges: str, schema: Schema | None = None) -> tuple[Bytes, list[int]]:
    """What a feature holder would randomise, [columns, rows], and how many buckets each column has."""
    job = Job(("bank", "shop"), "bank", "r", epsilon=epsilon, buckets=N_BUCKETS, edges=edges, schema=schema)
    found = bucketing_of("shop", table, job)
    return codes_of("shop", table, found), found.categories[found.sent].tolist()


# --- bucket_bayes ----------------------------------------------------------------------------------------------------


def attacked(table: Table, epsilon: float, seed: int) -> list[bucket_guesses.Guessed]:
    """Every column of a table, guessed from the randomised buckets of all of them."""
    truth, n_codes = buckets(table, epsilon, "quantile")
    received = randomise(truth, np.array(n_codes), epsilon, noise(seed)).values
    return bucket_guesses.attack(received, n_codes, epsilon, truth)


def averaged(name: str, epsilon: float, results: list[bucket_guesses.Guessed]) -> dict[str, Any]:
    """One row of the table: means over the columns."""

    def mean(values: list[float]) -> float:
        return round(float(np.mean(values)), 4)

    row = {
        "attack": "bucket_bayes",
        "data": name,
        "epsilon": epsilon,
        "columns": results[0].n_columns,
        "rows": results[0].n_rows,
        "chance": mean([r.chance for r in results]),
        "own_accuracy": mean([r.own.accuracy.estimate for r in results]),
        "element_ceiling": mean([r.ceiling_of_element for r in results]),
        "all_accuracy": mean([r.all.accuracy.estimate for r in results]),
        "surest_tenth": mean([r.all.surest for r in results]),
        "record_ceiling": mean([r.ceiling_of_record for r in results]),
        "chance_rank_error": mean([r.chance_rank_error for r in results]),
        "own_rank_error": mean([r.own.rank_error for r in results]),
        "all_rank_error": mean([r.all.rank_error for r in results]),
        "own_correlation": mean([r.own.correlation for r in results]),
        "all_correlation": mean([r.all.correlation for r in results]),
    }
    say("  ".join(f"{key} {value}" for key, value in row.items()))
    return row


def one_factor(seed: int) -> list[dict[str, Any]]:
    """Columns that follow one latent factor with correlation 0.9, so one another with 0.81."""
    rng = np.random.default_rng(seed)
    rows = []
    for n_columns in (1, 5, 18):
        factor = rng.normal(size=(20_000, 1))
        values = 0.9 * factor + math.sqrt(1.0 - 0.9**2) * rng.normal(size=(20_000, n_columns))
        rows.append(averaged("one latent factor", 2.0, attacked(table_of(values), 2.0, seed)))
    return rows


def credit(seed: int) -> list[dict[str, Any]]:
    """default_credit_card: a bank's eighteen columns of payments and bills."""
    names = [name for own in CREDIT.values() for name in own]
    table = read_table(pq.read_table(find_dataset("default_credit_card"), columns=names))
    rows = []
    for epsilon in (1.0, 2.0, 4.0):
        results = dict(zip(names, attacked(table, epsilon, seed), strict=True))
        rows += [
            averaged(f"default_credit_card, {group}", epsilon, [results[name] for name in own])
            for group, own in CREDIT.items()
        ]
    return rows


# --- moved_edges -----------------------------------------------------------------------------------------------------


def moved() -> list[dict[str, Any]]:
    """Two columns of 960 rows that differ in one value: all values different, and 40 values with 24 rows each."""
    schema = Schema.from_public(bounds={"c0": (0.0, 1000.0)})
    rows = []
    for data, column in (("all different", np.arange(960.0)), ("ties", np.repeat(np.arange(40.0), 24))):
        for edges in ("public", "quantile"):
            for epsilon in (1.0, 2.0, 4.0):
                codes = [
                    buckets(table_of(own[:, None]), epsilon, edges, schema)[0][0]
                    for own in (column, moved_edges.neighbour(column))
                ]
                result = moved_edges.compare(codes[0], codes[1], N_BUCKETS, epsilon)
                rows.append({"attack": "moved_edges", "data": data, "edges": edges, **result.to_dict()})
                say(f"{data:14} {edges:9} {result.verdict()}")
    return rows


# --- noised_labels ---------------------------------------------------------------------------------------------------


def labels(seed: int) -> list[dict[str, Any]]:
    """default_credit_card: a bureau with the labels and five columns, a bank with the eighteen others; 20 trees."""
    names = [name for own in CREDIT.values() for name in own]
    everything = pq.read_table(find_dataset("default_credit_card"))
    true = everything["label"].to_numpy().astype(np.float64)
    own = read_table(everything.select(["LIMIT_BAL", "SEX", "EDUCATION", "MARRIAGE", "AGE"]))
    bank = PartyData(read_table(everything.select(names)))
    data = {"bureau": PartyData(own, true, (0, 1)), "bank": bank}
    rows = []
    for per, epsilon in [*((per, e) for per in ("tree", "run") for e in (0.5, 1.0, 2.0, 4.0, 8.0)), ("tree", math.inf)]:
        boosting = BoostingParams(n_iterations=20, max_depth=4)
        delta = 1e-5 if epsilon < math.inf else None
        job = NoisedGradientsJob(
            ("bureau", "bank"), "bureau", "r", boosting=boosting, epsilon=epsilon, delta=delta, per=per
        )
        with patch("hedgerow.runtime.party.SecureRandom", lambda: noise(seed)):
            played = play(PROTOCOL, job, data, around={"bank": Recording})
        result = _label_attack(job, played.recording("bank"), bank, true)
        rows.append({"attack": "noised_labels", "per": per, "epsilon": str(epsilon), **result.to_dict()})
        say(f"per {per}, epsilon {epsilon:g}: {result.verdict()}")
    return rows


def _label_attack(
    job: NoisedGradientsJob, recording: Recording, data: PartyData, true: Floats
) -> label_guesses.RecoveredLabels:
    """From the frames that the bank received, and from the scores that it can compute itself."""
    loss = Loss("logistic", 2)
    received = np.array([message.gradients for message in recording.messages(NoisyGradients, "received")])
    if not job.has_noise:
        scale = plain_quantiser(job, loss, len(true)).gradient_scale
        return label_guesses.from_noised_gradients(received / scale, None, [0.0] * len(received), true)
    planned = LabelNoise.plan(job, loss, len(true))
    scores = gradients_of_scores(recording.transcript(), data, job)[: len(received)]
    scores[0] = 0  # the first message is about the labels alone
    sigmas = [planned.sigma_of_gradient] * len(received)
    return label_guesses.from_noised_gradients(received / planned.scale, 0.5 + scores / planned.scale, sigmas, true)


def main() -> None:
    """All attacks, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=0, help="another one repeats everything with other noise")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    rows = [*one_factor(chosen.seed), *credit(chosen.seed), *moved(), *labels(chosen.seed)]
    if chosen.json is not None:
        document = {"hedgerow": __version__, "seed": chosen.seed, "rows": rows}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
