"""Parties that are processes, killed with SIGKILL, and taken up again from their files: the same model.

What a party kept is all that is left of it, and it is enough.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidInput, ProcessEnded
from hedgerow.protocols.horizontal.secure_sum.job import Job as SumJob
from hedgerow.protocols.vertical.bucket_rr.job import Job as BucketsJob
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.runtime.checkpoint import CheckpointFiles
from hedgerow.runtime.processes import run_in_processes
from hedgerow.runtime.protocol import find
from hedgerow.runtime.running import run_together
from hedgerow.schema import Schema
from twins.horizontal import make_pooled, share_out
from twins.vertical import make_data, make_job

N_TREES = 40
MANY = 150  # of trees that a party grows by itself
ROWS = share_out(make_pooled(np.random.default_rng(4), 240), [80, 80, 80])
COLUMNS = make_data(3, n_rows=300, n_columns=6)


def sums(**options):
    """Rows of three owners."""
    boosting = BoostingParams(n_iterations=N_TREES, max_depth=3, min_child_weight=0.0)
    return SumJob(tuple(ROWS), "a run", boosting=boosting, max_bins=16, **options), ROWS


CASES = {
    "horizontal.secure_sum": sums,
    "by an owner": lambda: sums(coordinator="anna"),
    "vertical.noised_gradients": lambda: (
        make_job(NoisedGradientsJob, COLUMNS, n_iterations=N_TREES, epsilon=math.inf),
        COLUMNS,
    ),
    "vertical.homomorphic": lambda: (make_job(HomomorphicJob, COLUMNS, n_iterations=N_TREES), COLUMNS),
    "vertical.bucket_rr": lambda: (
        make_job(BucketsJob, COLUMNS, n_iterations=MANY, epsilon=math.inf, edges="quantile"),
        COLUMNS,
    ),
}


SCHEMA = Schema.from_public(
    bounds={"x0": (-4.0, 4.0), "x1": (-40.0, 40.0), "x2": (-400.0, 400.0), "few": (0.0, 2.0)},
    levels={"kind": [f"level {letter}" for letter in "abcde"]},
    classes=[0, 1],
)


def files_of(folder, protocol, job):
    """Everybody's own folder."""
    return {name: CheckpointFiles(folder / name, protocol, job, name) for name in protocol.parties(job)}


def killed_after(protocol, job, data, kept, victim, n_trees, attempt):
    """A run whose victim is killed once the first party has told of this many trees."""
    processes = {}

    def watch(done, _total):
        if done == n_trees:
            processes[victim].kill()

    with pytest.raises(ProcessEnded, match="SIGKILL"):
        run_in_processes(
            protocol, job, data, None, 30.0, watch, after_start=processes.update, checkpoints=kept, attempt=attempt
        )


def as_documents(results):
    """Models, but for what tells of attempts and rounds."""
    found = {}
    for name, result in results.items():
        document = result.to_dict()
        meta = document.get("meta", document.get("model", {}).get("meta", {}))
        for fact in ("attempts", "rounds"):
            meta.pop(fact, None)
        found[name] = document
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_parties_that_are_killed_go_on_from_their_files(tmp_path, case):
    """The first party is killed, then another one; the third attempt ends with the model of a calm run."""
    job, data = CASES[case]()
    protocol = find(job.NAME)
    first, *_, last = protocol.parties(job)
    kept = files_of(tmp_path, protocol, job)
    killed_after(protocol, job, data, kept, first, 2, attempt=1)
    assert kept[first].trees[-1] >= 2
    killed_after(protocol, job, data, kept, last if case != "vertical.bucket_rr" else first, 4, attempt=2)
    assert kept[first].trees[-1] >= 4
    results, *_ = run_together(protocol, job, data, transport="grpc", checkpoints=kept, attempt=3)
    calm, *_ = run_together(protocol, job, data)
    assert as_documents(results) == as_documents(calm)
    assert results[first].meta["attempts"] == 3
    words = str(protocol.statement(job, results[first].meta))
    assert "it took 3 attempts" in " ".join(words.split())
    assert protocol.statement(job, results[first].meta).facts["attempts"] == 3
    assert "attempts" not in protocol.statement(job, calm[first].meta).facts


def test_a_private_run_goes_on_within_its_budget(tmp_path):
    """Two owners are killed, one after the other; all have one model in the end, for what was planned."""
    job, protocol = SumJob(tuple(ROWS), "a run", dp=(1.0, 1e-6), schema=SCHEMA), find("horizontal.secure_sum")
    kept = files_of(tmp_path, protocol, job)
    killed_after(protocol, job, ROWS, kept, "ben", 20, attempt=1)
    killed_after(protocol, job, ROWS, kept, "carla", 60, attempt=2)
    results, *_ = run_together(protocol, job, ROWS, transport="grpc", checkpoints=kept, attempt=3)
    scores = {name: [tree.value.tolist() for tree in model.trees] for name, model in results.items()}
    assert all(each == scores["coordinator"] for each in scores.values())
    assert results["coordinator"].meta["privacy"]["epsilon"] == 1.0
    assert results["coordinator"].meta["attempts"] == 3


def test_a_damaged_file_ends_the_attempt_in_words(tmp_path):
    """The party says which of its files it is, and the others get a code."""
    job, data = CASES["vertical.noised_gradients"]()
    protocol = find(job.NAME)
    kept = files_of(tmp_path, protocol, job)
    killed_after(protocol, job, data, kept, "ben", 3, attempt=1)
    for path in (tmp_path / "carla").glob("*.kept"):
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match=r"carla.*trees-\d\.kept is damaged"):
        run_together(protocol, job, data, transport="grpc", checkpoints=kept, attempt=2)
