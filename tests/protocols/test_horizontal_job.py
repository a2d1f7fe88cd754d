"""The job of horizontal.secure_sum: every rule has its sentence, before any party is asked for anything."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidParameter
from hedgerow.protocols.horizontal.secure_sum.job import NOT_WITH_DP, Job
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.schema import Schema
from twins.parties import asked

SCHEMA = Schema.from_public(bounds={"x0": (-5, 5)}, classes=[0, 1])
THREE = ("a", "b", "c")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"owners": ("a",)}, "at least 2 owners, got 1"),
        ({"owners": ()}, "at least 2 owners, got 0"),
        ({"owners": ("a", "b", "a")}, "owners must have different names"),
        ({"owners": ("a", "b", "")}, "owners must have different names"),
        ({"owners": ("a", "b")}, "with 2 owners protects nothing.*accept_no_masking=True"),
        ({"owners": ("a", "b"), "coordinator": "a"}, "with 2 owners protects nothing"),
        ({"min_owners": 1}, "min_owners must be between 2 and 3, got 1"),
        ({"min_owners": 4}, "min_owners must be between 2 and 3, got 4"),
        ({"owners": ("a", "b"), "accept_no_masking": True, "double_masking": True}, "double_masking needs at least 3"),
        ({"double_masking": True, "coordinator": "a"}, "at least 3 owners beside the coordinator, got 2"),
        ({"double_masking": 1}, "double_masking must be True or False, got 1"),
        ({"share_cover": None}, "share_cover must be True or False, got None"),
        ({"task": "regression"}, r"needs the range of its labels.*label_range=\(low, high\).*exact_label_range=True"),
        ({"exact_label_range": True}, "exact_label_range is for regressions without a declared range"),
        (
            {"task": "regression", "exact_label_range": True, "boosting": BoostingParams(label_range=(0.0, 1.0))},
            "exact_label_range is for regressions without a declared range",
        ),
        ({"task": "ranking"}, "task must be one of classification, regression, got 'ranking'"),
        ({"quantiles": "exact"}, "quantiles must be one of search, private, given, got 'exact'"),
        ({"max_bins": 1}, "max_bins must be between 2 and 256, got 1"),
        ({"max_bins": 257}, "max_bins must be between 2 and 256, got 257"),
        ({"max_bins": 16.0}, "max_bins must be between"),
        ({"max_bins": True}, "max_bins must be between"),
        ({"quantiles": "given"}, "quantiles='given' and edges"),
        ({"edges": {"x": [1.0]}}, "quantiles='given' and edges"),
        ({"boosting": BoostingParams(early_stopping_rounds=2, eval_metric="auc")}, "'auc' is no sum over rows"),
        ({"task": "regression", "boosting": BoostingParams(loss="absolute")}, "has no absolute loss: a leaf's value"),
        ({"task": "regression", "scale_pos_weight": 2.0}, "scale_pos_weight are for classes"),
        ({"quantiles": "private", "quantile_epsilon": 1.0, "quantile_delta": 1e-6}, "needs the columns' public bounds"),
        ({"quantiles": "private", "schema": SCHEMA}, "quantile_epsilon and quantile_delta must be"),
        (
            {"quantiles": "private", "schema": SCHEMA, "quantile_epsilon": 1.0, "quantile_delta": 1.0},
            "a delta between 0 and 1, got 1.0 and 1.0",
        ),
        ({"dp": (1.0,), "schema": SCHEMA}, r"dp must be \(epsilon, delta\)"),
        ({"dp": (0.0, 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (1.0, 0.0), "schema": SCHEMA}, "a delta between 0 and 1"),
        ({"dp": (float("nan"), 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": ("1", 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (True, 1e-5), "schema": SCHEMA}, "an epsilon above 0"),
        ({"dp": (1.0, 1e-5)}, "dp needs the public bounds and levels.*would not be private"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "share_cover": True}, "come from noisy sums.*leave out share_cover"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "max_bins": 64}, "leave out quantiles and max_bins"),
        (
            {"dp": (1.0, 1e-5), "schema": SCHEMA, "quantiles": "given", "edges": {"x0": [0.0]}},
            "leave out quantiles and max_bins",
        ),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "honest_owners": 0}, "honest_owners must be between 1 and 2, got 0"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "honest_owners": 3}, "honest_owners must be between 1 and 2, got 3"),
        ({"honest_owners": 1}, "honest_owners says whose noise is counted on, but no noise was asked for"),
        ({"honest_owners": 1.5}, "honest_owners must be a whole number, got 1.5"),
        ({"min_owners": "2"}, "min_owners must be a whole number, got '2'"),
        ({"quantile_epsilon": 1.0}, "quantile_epsilon goes with quantiles='private' only"),
        ({"dp": (1.0, 1e-5), "schema": SCHEMA, "classes": (0, 1)}, "come from the schema"),
        (
            {"dp": (1.0, 1e-5), "schema": SCHEMA, "task": "regression", "boosting": BoostingParams(loss="poisson")},
            "got loss='poisson'",
        ),
    ],
    ids=str,
)
def test_a_wrong_job_is_refused(fields, sentence):
    """Each rule of a job has its sentence, which comes before any party is asked for anything."""
    with pytest.raises(InvalidParameter, match=sentence):
        Job(**{"owners": THREE, "run_id": "r", **fields})


OTHER_VALUES = {
    "n_iterations": 7, "learning_rate": 0.2, "max_depth": 3, "max_leaves": 8, "l2": 2.0, "min_gain": 0.1,
    "min_child_weight": 2.0, "min_samples_leaf": 3, "colsample_bytree": 0.5, "colsample_bynode": 0.5, "monotone": (1,),
    "base_score": 0.5, "gradient_bits": 10, "missing_unseen": "right",
    "subsample": 0.5, "colsample_bylevel": 0.25, "interaction": ((0,),),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_WITH_DP)
def test_with_dp_no_wish_about_trees_is_ignored(name):
    """A parameter of trees that the private recipe would not look at is refused by the name people know."""
    with pytest.raises(InvalidParameter, match="the recipe decides") as refusal:
        Job(
            owners=THREE, run_id="r", dp=(1.0, 1e-5), schema=SCHEMA,
            boosting=BoostingParams(**{name: OTHER_VALUES[name]}),
        )  # fmt: skip
    assert NOT_WITH_DP[name] in str(refusal.value)
    assert str(OTHER_VALUES[name]) in str(refusal.value)


def test_two_owners_need_a_reason():
    """Two owners are fine with dp, or when somebody writes that there is no masking."""
    assert Job(owners=("a", "b"), run_id="r", accept_no_masking=True).masked_owners == ("a", "b")
    assert Job(owners=("a", "b"), run_id="r", dp=(1.0, 1e-5), schema=SCHEMA).assumed_honest == 1


@pytest.mark.parametrize(("n_owners", "fewest"), [(2, 2), (3, 3), (4, 3), (5, 4), (6, 4), (9, 6), (32, 22)])
def test_how_many_owners_must_be_left(n_owners, fewest):
    """By default two thirds, and never fewer than three where there were three."""
    job = Job(owners=tuple(f"o{k}" for k in range(n_owners)), run_id="r", accept_no_masking=True)
    assert job.fewest_owners == fewest
    assert job.assumed_honest == n_owners - 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"task": "regression", "boosting": BoostingParams(loss="squared", label_range=(0.0, 2.0), monotone=(1, 0))},
        {"quantiles": "given", "edges": {"x": np.array([1.0, 2.5])}, "max_bins": 8, "coordinator": "b"},
        {"dp": (2.0, 1e-6), "schema": SCHEMA, "honest_owners": 2},
        {"quantiles": "private", "schema": SCHEMA, "quantile_epsilon": 0.5, "quantile_delta": 1e-7, "min_owners": 2},
        {"double_masking": True},
        {"boosting": BoostingParams(missing_unseen="right")},
    ],
    ids=str,
)
def test_a_job_goes_through_json(fields):
    """A job that was written down and read again is the same job."""
    job = Job(owners=THREE, run_id="r", **fields)
    again = Job.from_dict(json.loads(json.dumps(job.to_dict())))
    assert again.to_dict() == job.to_dict()
    assert again.boosting == job.boosting
    assert again.schema == job.schema
    assert PROTOCOL.job.from_dict(job.to_dict()).to_dict() == job.to_dict()


@pytest.mark.parametrize(
    ("parties", "options", "sentence"),
    [
        (THREE, {"coordinator": "d"}, "coordinator must be one of the owners"),
        (("a", "b", "coordinator"), {}, "an owner may not be called 'coordinator'"),
    ],
)
def test_names_of_coordinators(parties, options, sentence):
    """The coordinator is an owner by name, or somebody that no owner is called like."""
    with pytest.raises(InvalidParameter, match=sentence):
        asked(PROTOCOL, parties, "r", "classification", BoostingParams(), 256, options)
