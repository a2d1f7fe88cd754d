"""Peers of vertical trainings without shares, of services and of matching send well-formed frames with wrong values."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hedgerow.engine.growth import LevelSplits
from hedgerow.errors import ProtocolError
from hedgerow.protocols.published.masked_gradients.job import MaskedGradientsJob
from hedgerow.protocols.published.masked_gradients.messages import WhichWay as MaskedWhichWay
from hedgerow.protocols.published.masked_gradients.messages import Winners as MaskedWinners
from hedgerow.protocols.services.align.roles import AligningJob
from hedgerow.protocols.services.explain.roles import ExplainingJob
from hedgerow.protocols.services.score.roles import ScoringJob
from hedgerow.protocols.services.score_closed.roles import ClosedScoringJob
from hedgerow.protocols.vertical.bucket_rr.job import Job as BucketJob
from hedgerow.protocols.vertical.common.joint_forest import JointForest, count_sides, new_sides, receive_roles
from hedgerow.protocols.vertical.common.messages import LEAF, OTHERS, YOURS
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.messages import WhichWay as HomomorphicWhichWay
from hedgerow.protocols.vertical.homomorphic.messages import Winners as HomomorphicWinners
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.protocols.vertical.noised_gradients.messages import Partition as NoisedPartition
from hedgerow.protocols.vertical.noised_gradients.messages import WhichWay as NoisedWhichWay
from hedgerow.protocols.vertical.noised_gradients.messages import Winners as NoisedWinners
from hedgerow.runtime.protocol import PartyData, Protocol, find
from hedgerow.schema import Schema
from hedgerow.testing.hostile import cases, part_of, play_twisted
from twins import vertical
from twins.random_parts import RUN_ID, random_shared, random_vertical

N_ROWS = 60
SAMPLE = 8
"""Cases of each arrangement that every test run plays; the long test plays all."""


@dataclass(frozen=True)
class Arrangement:
    """A protocol, what it is to do, and what everybody brings."""

    protocol: Protocol
    job: Any
    data: dict[str, PartyData]


def bucket_rr(folder, **changes):
    """Two feature holders whose values are sent with noise."""
    data = vertical.make_data(3, N_ROWS, 7, missing=0.1)
    columns = [f"x{k}" for k in range(7)]
    schema = Schema.from_public(bounds=dict.fromkeys(columns, (-5.0, 5.0)), may_be_missing=columns)
    changes = {"epsilon": 4.0, "schema": schema, "min_child_weight": 1.0, "buckets": 6, **changes}
    if changes.pop("cached", False):
        changes["cache"] = str(folder)
    arranged = Arrangement(find("vertical.bucket_rr"), vertical.make_job(BucketJob, data, **changes), data)
    if changes.get("cache") and arranged.job.transfer == "once":
        vertical.play(arranged.protocol, arranged.job, data)  # so that there is something to find
    return arranged


def noised_gradients(_folder, **changes):
    """Three parties who see each other's splits."""
    task = changes.get("task", "classification")
    data = vertical.make_data(3, N_ROWS, 6, missing=0.1, task=task)
    changes = {"epsilon": 8.0, "delta": 1e-5, **changes}
    return Arrangement(find("vertical.noised_gradients"), vertical.make_job(NoisedGradientsJob, data, **changes), data)


def homomorphic(_folder, **changes):
    """Three parties, two of whom add up what they cannot read."""
    data = vertical.make_data(3, N_ROWS, 6, missing=0.1)
    return Arrangement(find("vertical.homomorphic"), vertical.make_job(HomomorphicJob, data, **changes), data)


def masked_gradients(_folder, **changes):
    """The same with noise that feature holders make."""
    data = vertical.make_data(3, N_ROWS, 6, missing=0.1)
    changes = {"sigma1": 1.0, "sigma2": 0.1, "C": 1.0, "accept_known_leaks": True, "max_bins": 4, **changes}
    return Arrangement(find("vertical.masked_gradients"), vertical.make_job(MaskedGradientsJob, data, **changes), data)


def service(kind, name, *, shared=False, **changes):
    """What parties do with a made-up model."""
    rng = np.random.default_rng(5)
    model = (random_shared if shared else random_vertical)(rng, n_trees=4)
    data = model.data(model.rows(rng, N_ROWS))
    job = kind(model.parties, model.label_holder, "a service", model_run_id=RUN_ID, batch_rows=25, **changes)
    return Arrangement(find(name), job, data)


def scoring(_folder, **changes):
    """Answers about each row."""
    return service(ScoringJob, "vertical.scoring", **changes)


def explaining(_folder, **changes):
    """What columns are worth."""
    return service(ExplainingJob, "vertical.explaining", **changes)


def closed_scoring(_folder, **changes):
    """Scores on shares."""
    return service(ClosedScoringJob, "vertical.closed_scoring", **changes)


def aligning(_folder, n_parties):
    """Matching by ids."""
    names = vertical.NAMES[:n_parties]
    table = vertical.table_of(vertical.make_columns(np.random.default_rng(0), 30, 1))
    ids = {name: np.array([f"id-{i}" for i in range(k, 30 + k)]) for k, name in enumerate(names)}
    data = {name: PartyData(table, ids=ids[name]) for name in names}
    return Arrangement(find("vertical.aligning"), AligningJob(names, "a matching"), data)


ARRANGEMENTS = {
    "bucket_rr, public edges": (bucket_rr, {}),
    "bucket_rr, private edges": (bucket_rr, {"edges": "private"}),
    "bucket_rr, quantiles": (bucket_rr, {"edges": "quantile", "epsilon": math.inf}),
    "bucket_rr, a transfer that is kept": (bucket_rr, {"cached": True, "transfer": "again"}),
    "bucket_rr, a kept transfer": (bucket_rr, {"cached": True}),
    "noised_gradients, per run": (noised_gradients, {"per": "run"}),
    "noised_gradients, per tree": (noised_gradients, {"per": "tree", "score": "first_order"}),
    "noised_gradients, per message": (noised_gradients, {"per": "message", "max_leaves": 6}),
    "noised_gradients, without noise": (noised_gradients, {"epsilon": math.inf, "task": "regression"}),
    "noised_gradients, per message without noise": (noised_gradients, {"epsilon": math.inf, "per": "message"}),
    "homomorphic": (homomorphic, {"max_bins": 4, "max_depth": 2}),
    "homomorphic, compressed": (homomorphic, {"max_bins": 4, "compressed": True, "fresh_randomness": True}),
    "masked_gradients, one vector": (masked_gradients, {}),
    "masked_gradients, two vectors": (masked_gradients, {"n_vectors": 2, "block_bytes": 1 << 10}),
    "masked_gradients, first order": (masked_gradients, {"score": "first_order", "max_leaves": 5}),
    "scoring": (scoring, {}),
    "scoring, randomised": (scoring, {"predict_epsilon": 2.0}),
    "explaining, contributions": (explaining, {}),
    "explaining, interactions": (explaining, {"what": "interactions"}),
    "explaining, importances": (explaining, {"what": "importances"}),
    "closed_scoring": (closed_scoring, {}),
    "closed_scoring, shared leaves": (closed_scoring, {"shared": True}),
    "aligning, two parties": (aligning, {"n_parties": 2}),
    "aligning, three parties": (aligning, {"n_parties": 3}),
}


def all_cases(name, folder):
    """An arrangement and its cases, in an order that mixes messages, fields and twists."""
    make, changes = ARRANGEMENTS[name]
    arranged = make(folder, **changes)
    found = cases(arranged.protocol, arranged.job, arranged.data)
    return arranged, sorted(found, key=lambda case: zlib.crc32(repr(case).encode()))


def disorderly(arranged, chosen):
    """The cases that do not end as they must, with how they ended."""
    ended = ((case, play_twisted(arranged.protocol, arranged.job, arranged.data, case)) for case in chosen)
    return [(case, ends) for case, ends in ended if not ends.is_orderly]


@pytest.mark.parametrize("make", [noised_gradients, homomorphic, masked_gradients])
def test_large_handles_are_refused(make, tmp_path):
    """A handle is the next number or an earlier one: a few bytes do not become tables of gigabytes."""
    arranged = make(tmp_path)
    found = cases(arranged.protocol, arranged.job, arranged.data)
    chosen = [case for case in found if case.message.endswith("which_way") and case.field == "handles"]
    large = [case for case in chosen if case.twist in ("all largest", "last largest", "all smallest")]
    assert large
    for case in large:
        ends = play_twisted(arranged.protocol, arranged.job, arranged.data, case)
        assert ends.parties[arranged.job.label_holder] == "ProtocolError"


def test_numbers_of_ids_are_limited(tmp_path):
    """Whoever announces more ids than the job allows is refused, by the comparer and by others."""
    arranged = aligning(tmp_path, 3)
    found = cases(arranged.protocol, arranged.job, arranged.data)
    large = [case for case in found if case.field == "n_ids" and case.twist in ("2147483648", "all largest")]
    assert {case.message for case in large} == {"vertical.ids_description", "vertical.ids_agreed"}
    for case in large:
        ends = play_twisted(arranged.protocol, arranged.job, arranged.data, case)
        assert "ProtocolError" in ends.parties.values()
        assert "finished" not in ends.parties.values()


def spoiled(arranged, kind, change):
    """The error of the party that got changed messages of a kind first."""

    def spoil(message):
        return change(message) if kind == type(message).NAME else message

    with pytest.raises(ProtocolError) as caught:
        vertical.play(arranged.protocol, arranged.job, arranged.data, spoil=spoil)
    return str(caught.value)


def test_noise_of_no_candidate_does_not_go_on_for_ever(tmp_path):
    """A feature holder that sends empty noise, and always more of it, is refused at the first."""
    said = spoiled(
        masked_gradients(tmp_path),
        "vertical.masked_gradients.noise_vectors",
        lambda message: replace(message, vectors=message.vectors[:0], last=False),
    )
    assert "noise of no candidate" in said


def test_gradients_whose_sums_do_not_fit_are_refused(tmp_path):
    """Each fits its field, but not all together."""
    said = spoiled(
        noised_gradients(tmp_path),
        "vertical.noised_gradients.noisy_gradients",
        lambda message: replace(message, gradients=np.full(N_ROWS, 2**30, np.int32)),
    )
    assert said == "anna sent units whose sums can exceed 2147483647"


@pytest.mark.parametrize("make", [noised_gradients, homomorphic, masked_gradients])
def test_sides_of_nodes_that_were_not_won_are_refused(make, tmp_path):
    """A feature holder has no say in where rows of other nodes go."""
    n_nodes = 1

    def everywhere(message):
        """Where it won some of the nodes, the winner sends the rows of all of them right."""
        nonlocal n_nodes
        if isinstance(message, NoisedWinners | HomomorphicWinners | MaskedWinners):
            n_nodes = len(message.roles)
        which_way = NoisedWhichWay | HomomorphicWhichWay | MaskedWhichWay
        if isinstance(message, which_way) and len(message.handles) < n_nodes:
            return replace(message, sides=np.packbits(np.ones(N_ROWS, np.uint8)))
        return message

    arranged = make(tmp_path)
    with pytest.raises(ProtocolError, match=r"which_way with sides of \d+ rows that are not in the nodes in question"):
        vertical.play(arranged.protocol, arranged.job, arranged.data, spoil=everywhere)


@pytest.mark.parametrize("kind", ["which_way", "partition"])
@pytest.mark.parametrize("make", [noised_gradients, homomorphic, masked_gradients])
def test_sides_of_rows_that_do_not_exist_are_refused(make, kind, tmp_path):
    """The last byte has room for more rows than there are."""
    arranged = make(tmp_path)

    def one_more(message):
        return replace(
            message, sides=message.sides | np.eye(1, len(message.sides), len(message.sides) - 1, np.uint8)[0]
        )

    said = spoiled(arranged, f"{arranged.job.NAME}.{kind}", one_more)
    assert said.endswith(f"{kind} with sides of 1 rows that are not in the nodes in question")


@pytest.mark.parametrize(("bit", "is_fine"), [(0, False), (1, True), (2, False), (3, False)])
def test_the_label_holder_changes_no_sides_that_others_decide(bit, is_fine):
    """A feature holder whose node row 0 is in, with row 1 in somebody else's and row 2 in a leaf, is told other sides.

    Row 3 does not exist.
    """
    level = {"row_ids": np.arange(3, dtype=np.uint32), "starts": np.arange(3), "stops": np.arange(1, 4)}
    own = np.array([1, 0, 0], np.uint8)
    told = np.array([1, 0, 0, 0], np.uint8)
    told[bit] ^= 1
    message = NoisedPartition(np.packbits(told))
    in_question = partial(count_sides, **level, wanted=np.array([False, True, False]))
    if is_fine:
        assert new_sides("bank", message, 3, in_question, known=own).tolist() == [0, 1, 0]
    else:
        with pytest.raises(ProtocolError, match=r"bank sent .* with sides of 1 rows"):
            new_sides("bank", message, 3, in_question, known=own)


@pytest.mark.parametrize(
    ("roles", "room"),
    [([YOURS, LEAF, LEAF], 3), ([LEAF, LEAF, OTHERS], 3), ([OTHERS, YOURS, LEAF], 1)],
)
def test_nodes_that_cannot_split_are_not_split(roles, room):
    """Neither one that was won without a split, nor one without rows, nor more than leaves are left."""
    splits = LevelSplits.room_for(3)
    splits.feature[:] = [-1, 2, -1]

    class Told:
        """A party that is told these roles."""

        def recv(self, _sender, kind, **_symbols):
            return kind(np.array(roles, np.uint8))

    with pytest.raises(ProtocolError, match="bank splits"):
        receive_roles(Told(), "bank", NoisedWinners, splits, room=room, counts=np.array([5, 5, 0]))


def test_nobody_gains_by_splitting_a_node_without_rows():
    """Else a feature holder could make trees of nothing, twice as many nodes in each level."""
    forest = SimpleNamespace(gains_of=lambda _party, _n: np.array([1.0, 2.0]), rows=SimpleNamespace())
    forest.rows.node_counts = np.array([3, 1])
    assert JointForest._checked_gains(forest, "shop", 2).tolist() == [1.0, 2.0]
    forest.rows.node_counts = np.array([4, 0])
    with pytest.raises(ProtocolError, match="shop says that splitting a node without rows"):
        JointForest._checked_gains(forest, "shop", 2)


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_wrong_values_end_in_an_error_or_a_result(name, tmp_path):
    """No crash, no hang, no raw error, no memory beyond the limit, for a sample of all cases."""
    arranged, found = all_cases(name, tmp_path)
    assert len(found) > SAMPLE
    assert disorderly(arranged, found[:SAMPLE]) == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_many_wrong_values_end_in_an_error_or_a_result(name, tmp_path):
    """The same for a quarter of all twists of every field of every message."""
    arranged, found = all_cases(name, tmp_path)
    assert disorderly(arranged, part_of(found, name, 4)) == []
