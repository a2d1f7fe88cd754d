"""What a model says about its training, by name and type: what roles write down, and statements read.

It is kept as a dict because it is written into model files as it is (`meta`), where readers of other versions may find
more than is listed here. Every entry is optional: each protocol writes those that it has. Where several parties have
parts of a model, this is what the label holder's part says; the others' parts say less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class Rounds(TypedDict):
    """Rounds of messages: before the first tree, and for the trees."""

    setup: int
    training: int


class TrainingRecord(TypedDict, total=False):
    """The training that a model comes from."""

    protocol: str
    estimator: str  # the scikit-learn face of the model
    has_feature_names: bool
    stamp: str | None  # what a user must not overlook, such as "NOT PRIVATE"
    date: str
    seed: int  # where something was drawn, to go on with the same draws
    prediction_bounds: list[float]  # of a private regression: where labels can lie
    rounds: Rounds
    lost_owners: Mapping[str, int]  # whom the others went on without -> number of the tree in which that was noticed

    privacy: Mapping[str, Any] | None  # epsilon, delta and accountant of the whole model; None: no noise
    edges_privacy: Mapping[str, float] | None  # of the edges of bins alone
    n_misfits_estimate: int | None  # rows that did not fit the schema, with noise
    transfers: Mapping[str, Any]  # vertical.bucket_rr: by feature holder, what it sent and what that cost
    gradient_bits: int  # fixed point of gradients on shares
    noise: Mapping[str, Any]  # vertical.masked_gradients: as it was drawn
    theorems_would_add_up_to: Mapping[str, Any] | None  # likewise: what the paper's theorems claim
    label_recovery: Mapping[str, Any] | None  # likewise: how many labels its own messages gave away
