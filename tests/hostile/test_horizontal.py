"""horizontal.secure_sum against peers whose frames are well formed and whose values are not: no crash, no hang."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import ProtocolError
from hedgerow.protocols.horizontal.secure_sum import messages
from hedgerow.protocols.horizontal.secure_sum.agreement import check_agreement, check_description
from hedgerow.protocols.horizontal.secure_sum.job import Job
from hedgerow.protocols.horizontal.secure_sum.levels import Nodes
from hedgerow.protocols.horizontal.secure_sum.messages import Agreement, NextStep, Plan, TableDescription
from hedgerow.protocols.horizontal.secure_sum.spec import SPEC as PROTOCOL
from hedgerow.schema import Schema
from hedgerow.testing.hostile import cases, part_of, play_twisted
from hedgerow.testing.transcripts import play
from hedgerow.transport.frames import Message
from hedgerow.transport.ranges import check
from twins.horizontal import job_for, make_pooled, share_out
from twins.unstated import unstated

KINDS = [
    kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message) and kind != Message
]
COLUMNS = {
    "bounds": {"x0": (-4.0, 4.0), "few": (0.0, 2.0)},
    "levels": {"kind": ["level a", "level b"]},
    "integers": ["few"],
    "may_be_missing": True,
}
CLASSES, NUMBERS = Schema.from_public(**COLUMNS, classes=[0, 1]), Schema.from_public(**COLUMNS, label_bounds=(-4, 4))
DP = {"dp": (1.0, 1e-5), "schema": CLASSES}
SQUARED = {"task": "regression", "loss": "squared"}
VARIANTS = {
    "plain": ({}, {}),
    "double": ({"double_masking": True, "share_cover": True}, {}),
    "three classes": ({"min_samples_leaf": 3}, {"n_classes": 3}),
    "regression": (SQUARED, {"task": "regression"}),
    "declared": ({**SQUARED, "label_range": (-50.0, 50.0), "coordinator": "ben"}, {"task": "regression"}),
    "private edges": ({"quantiles": "private", "schema": CLASSES, "quantile_epsilon": 1.0, "quantile_delta": 1e-5}, {}),
    "weights and watching": ({"class_weight": "balanced", "early_stopping_rounds": 1}, {}),
    "going on": ({"subsample": 0.9}, {}),
    "dp": (DP, {}),
    "dp double": ({**DP, "double_masking": True}, {}),
    "dp regression": ({"dp": (1.0, 1e-5), "schema": NUMBERS, "task": "regression"}, {"task": "regression"}),
}
"""Changes of the job, changes of the rows."""


@pytest.fixture(scope="module")
def prepared():
    """Job, rows and cases by variant, made when first asked for."""
    made = {}

    def prepare(variant):
        if variant not in made:
            changes, rows = VARIANTS[variant]
            pooled = make_pooled(np.random.default_rng(3), 60, n_numeric=1, n_levels=2, **rows)
            data = share_out(pooled, [20, 20, 20])
            if variant == "weights and watching":
                own = {"weight": np.linspace(0.1, 2.0, 20), "validation": np.arange(20) % 4 == 0}
                data = {name: replace(brought, **own) for name, brought in data.items()}
            if variant == "going on":
                earlier = play(PROTOCOL, job_for(data, n_iterations=2, max_depth=2), data).results["anna"]
                data = {name: replace(brought, part=earlier) for name, brought in data.items()}
            if "dp" in changes:
                loss = "squared" if "task" in changes else "logistic"
                job = Job(owners=tuple(data), run_id="r", boosting=BoostingParams(loss=loss), **changes)
            else:
                job = job_for(data, n_iterations=2, max_depth=2, **changes)
            made[variant] = job, data, cases(PROTOCOL, job, data)
        return made[variant]

    return prepare


def play_some(job, data, chosen):
    """Every one of these must end in order; those that do not are told with their ends."""
    assert len(chosen) > 5
    wrong = [(case, ends) for case in chosen if not (ends := play_twisted(PROTOCOL, job, data, case)).is_orderly]
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_number_states_its_range(kind):
    """No field of any message is left to chance."""
    assert unstated(kind) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_twisted_field_ends_in_order(prepared, variant):
    """A sample of all twists, the same every time: each party ends with a result or an error of ours."""
    job, data, found = prepared(variant)
    rng = np.random.default_rng(list(VARIANTS).index(variant))
    n_chosen = 6 if job.dp is not None else 16
    play_some(job, data, [found[k] for k in rng.choice(len(found), n_chosen, replace=False).tolist()])


@pytest.mark.parametrize(
    ("field", "twist"),
    [
        ("feature", "all largest"),
        ("feature", "much too long"),
        ("build", "all largest"),
        ("build", "much too long"),
        ("leaf_values", "too short"),
        ("leaf_values", "last nan"),
        ("goes_left", "too short"),
        ("plan", "all largest"),
    ],
)
def test_a_twisted_step_is_refused_by_its_owner(prepared, field, twist):
    """Splits, nodes and leaf values that cannot be are a ProtocolError before any kernel sees them."""
    job, data, found = prepared("plain")
    steps = [case for case in found if case.message == NextStep.NAME and (case.field, case.twist) == (field, twist)]
    ends = play_twisted(PROTOCOL, job, data, steps[0 if field == "build" else -1])  # the last one asks for no sums
    assert ends.is_orderly
    assert "ProtocolError" in ends.parties.values()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", VARIANTS)
def test_many_twisted_fields_end_in_order(prepared, variant):
    """An eighth of all twists of every field of every message, of the first and the last one of each kind and party."""
    job, data, found = prepared(variant)
    play_some(job, data, part_of(found, variant, 8))


# --- what an owner checks by itself --------------------------------------------------------------------------------


def step(feature=(), leaf_values=(), build=(0,), **plan):
    """A step of training."""
    numbers = Plan(**{"new_round": 0, "last": 0, "start": -1, "tree": 0, "level": 0, "part": 0, **plan})
    n_nodes = len(feature)
    arrays = np.array(feature, np.int64), np.zeros((n_nodes, 32), np.uint8), np.array(leaf_values, np.float32)
    return NextStep(np.array(numbers, np.int64), *arrays, np.array(build, np.int64))


def taken(nodes, sent):
    """An owner receives a step."""
    check("hub", sent, {})
    nodes.follow("hub", sent)


def begun(n_outputs=1):
    """An owner at the root of the first tree."""
    nodes = Nodes(n_features=3, n_outputs=n_outputs, n_trees=4, n_cells=10, max_depth=3, watches=False)
    taken(nodes, step(start=0))
    return nodes


def test_steps_in_order_are_taken():
    """Down two levels, leaves, the next tree, the end."""
    nodes = begun()
    taken(nodes, step([2], build=[1], level=1))
    taken(nodes, step([-1, 0], build=[0], level=2))
    taken(nodes, step([1, -1], [0.1] * 4, last=1, start=0, tree=1))
    taken(nodes, step([-1], [0.5], build=[], tree=1, level=1, last=1))


@pytest.mark.parametrize(
    "wrong",
    [
        step([2**40], build=[0], level=1),
        step([3], build=[0], level=1),
        step([-2], build=[0], level=1),
        step([0] * 200_000, build=[0], level=1),
        step([0, 0], build=[0], level=1),
        step([0], build=[99999999999], level=1),
        step([0], build=[-1], level=1),
        step([0], build=[2], level=1),
        step([0], build=[1, 1], level=1),
        step([0], build=[1, 0], level=1),
        step([0], [0.5], last=1, start=0, tree=1),
        step([0], [0.5, 0.5, 0.5], last=1, start=0, tree=1),
        step([0], [0.5, np.nan], last=1, start=0, tree=1),
        step([0], [0.5, np.inf], last=1, start=0, tree=1),
        step([0], last=1, start=0, tree=1),
        step(start=0, tree=1),
        step([0], build=[], level=1),
        step(start=1),
        step(start=-2),
        step([0], build=[0], level=2**16),
        step(tree=4),
        step(new_round=2**62),
        step([0], build=range(10_000), level=1),
    ],
    ids=range(23),
)
def test_a_step_that_cannot_follow_is_refused(wrong):
    """Unknown features and nodes, too many of them, too few or too many leaf values, trees that begin too early."""
    with pytest.raises(ProtocolError, match=r"hub sent horizontal\.next_step"):
        taken(begun(), wrong)


MINE = TableDescription(("age", "town"), ("float64", "levels"), ("", '["a"]'), "[0, 1]")


@pytest.mark.parametrize(
    "levels",
    [
        "[" * 100_000,
        "{}",
        "[1e999]",
        '["a", 1]',
        '["a", "a"]',
        "[[]]",
        "1",
        '["\ud800',
        "[NaN]",
        f"[{'9' * 5000}]",
        "[",
    ],
    ids=range(11),
)
def test_levels_that_are_not_a_list_of_levels_are_refused(levels):
    """Deep nesting, other JSON, numbers that are none, repetitions: on both sides."""
    with pytest.raises(ProtocolError, match=r"hub sent horizontal\.agreement"):
        check_agreement("hub", Agreement(MINE.kinds, ("", levels), MINE.classes), MINE)
    with pytest.raises(ProtocolError, match=r"ben sent horizontal\.table_description"):
        check_description("ben", TableDescription(MINE.columns, MINE.kinds, ("", levels), "[0, 1]"), has_classes=True)


@pytest.mark.parametrize(
    "agreed",
    [
        (("float64", "float64"), ("", ""), "[0, 1]"),
        (("float64", "levels"), ("", '["b"]'), "[0, 1]"),
        (("float64", "levels"), ("", str(list(range(300)))), "[0, 1]"),
        (("?", "levels"), ("", '["a"]'), "[0, 1]"),
        (("float64", "levels"), ('["x"]', '["a"]'), "[0, 1]"),
        (("float64", "levels"), ("", '["a"]'), "[0, 2]"),
        (("float64", "levels"), ("", '["a"]'), ""),
        (("float64", "levels"), ("", '["a"]'), "[]"),
    ],
)
def test_an_agreement_must_leave_room_for_ones_own_table(agreed):
    """Other kinds, missing levels or classes, too many of them."""
    with pytest.raises(ProtocolError, match=r"hub sent horizontal\.agreement"):
        check_agreement("hub", Agreement(*agreed), MINE)
