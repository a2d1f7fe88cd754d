"""Cross-validation and search by parties together: the same folds as on one table, and what every trial costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

from hedgerow import BoostedTreesClassifier, Schema
from hedgerow.errors import BudgetExceeded, InvalidParameter, PrivacyWarning
from hedgerow.privacy.budget_file import BudgetFile
from hedgerow.runtime import features
from twins.features import LOSSLESS, NAMES, OPTIONS, SMALL, Case, federation_of, options_for

SCHEMA = Schema.from_public(bounds=dict.fromkeys(NAMES, (0.0, 9.0)), classes=[0, 1], may_be_missing=["b0"])
NOISY = {"epsilon": 2.0, "buckets": 8, "schema": SCHEMA, "max_iter": 2, "random_state": 7}


@pytest.mark.parametrize("protocol", OPTIONS)
def test_every_protocol_is_cross_validated(protocol):
    """Where trees are the pooled engine's, so are the scores of every fold; elsewhere they are better than chance."""
    assert features.offered(protocol, "cross_validation") is None
    case = Case.of()
    found = federation_of(case, protocol).cross_validate(protocol, cv=3, **SMALL, **options_for(case, protocol))
    assert found.scoring == "accuracy"
    assert found.bytes_sent > 0
    assert found.score > 0.5
    if protocol in LOSSLESS and protocol.startswith("vertical"):
        like = {name: OPTIONS[protocol][name] for name in ("gradient_bits",) if name in OPTIONS[protocol]}
        folds = StratifiedKFold(3, shuffle=True, random_state=SMALL["random_state"])
        model = BoostedTreesClassifier(**SMALL, **like)
        wanted = cross_val_score(model, case.table.to_pandas(), case.labels, cv=folds)
        np.testing.assert_array_equal(found.scores, wanted)


def test_folds_are_given_by_a_splitter_or_as_rows():
    """A splitter of scikit-learn's and its pairs of rows are the same folds, for a regression too."""
    case = Case.of("squared")
    federation = federation_of(case, "vertical.bucket_rr")
    how = {"scoring": "neg_root_mean_squared_error", **case.params, **OPTIONS["vertical.bucket_rr"]}
    pairs = list(KFold(2).split(case.labels))
    one = federation.cross_validate("vertical.bucket_rr", cv=KFold(2), **how)
    other = federation.cross_validate("vertical.bucket_rr", cv=pairs, **how)
    np.testing.assert_array_equal(one.scores, other.scores)
    assert one.score < 0


def test_a_search_finds_the_best_and_trains_with_it():
    """All trials have the same folds; the best one's parameters are trained on all rows."""
    case = Case.of()
    federation = federation_of(case, "vertical.bucket_rr")
    how = {**SMALL, **OPTIONS["vertical.bucket_rr"]}
    del how["max_depth"]
    found = federation.tune("vertical.bucket_rr", {"max_depth": [1, 3]}, cv=3, scoring="roc_auc", **how)
    assert [trial.params for trial in found.trials] == [{"max_depth": 1}, {"max_depth": 3}]
    assert found.best.score == max(trial.score for trial in found.trials)
    assert found.run.job.boosting.max_depth == found.best_params["max_depth"]
    assert "* {'max_depth'" in str(found)
    drawn = federation.tune("vertical.bucket_rr", {"max_depth": [1, 2, 3]}, n_trials=2, refit=False, cv=2, **how)
    assert len(drawn.trials) == 2
    assert drawn.run is None


def test_every_fold_spends_and_that_is_said():
    """Without a budget there is a warning; what is stated is the sum over folds."""
    federation = federation_of(Case.of(), "vertical.bucket_rr")
    with pytest.warns(PrivacyWarning, match="every fold is a training that spends epsilon .* of the rows of ben"):
        found = federation.cross_validate("vertical.bucket_rr", cv=2, **NOISY)
    once = federation.fit("vertical.bucket_rr", **NOISY).statement().facts
    assert math.isinf(found.costs["anna"].epsilon), once  # labels are not protected
    assert found.costs["ben"].epsilon == pytest.approx(2 * 2 * NOISY["epsilon"])  # two columns, two folds
    assert "anna: no guarantee; ben: epsilon 8, delta 0" in str(found)


def test_a_kept_transfer_is_free(tmp_path):
    """With a cache the second trial sends nothing of feature holders, and costs nothing."""
    federation = federation_of(Case.of(), "vertical.bucket_rr")
    with pytest.warns(PrivacyWarning, match="every fold of each of 2 trials"):
        found = federation.tune(
            "vertical.bucket_rr", {"max_depth": [2, 3]}, cv=2, cache=str(tmp_path / "kept"), refit=False, **NOISY
        )
    first, second = found.trials
    assert first.costs["ben"].epsilon == pytest.approx(8.0)
    assert second.costs["ben"].epsilon == 0
    assert second.free["ben"] == 2
    assert second.bytes_sent < first.bytes_sent
    assert found.costs["ben"] == first.costs["ben"]


def test_folds_are_charged_to_a_budget(tmp_path):
    """A budget for one fold is spent in the first; the second is refused."""
    federation = federation_of(Case.of(), "vertical.bucket_rr")
    books = BudgetFile(tmp_path / "budget")
    budget = {
        name: books.open(name, epsilon=columns * 2.0, delta=0.0, adjacency="replace_one")
        for name, columns in (("ben", 2), ("carla", 1))
    }
    with pytest.raises(BudgetExceeded):
        federation.cross_validate("vertical.bucket_rr", cv=2, budget=budget, **NOISY)
    assert budget["ben"].remaining == 0


def test_what_cannot_be_tried_is_refused():
    """Before anything is trained."""
    federation, how = federation_of(Case.of(), "vertical.bucket_rr"), OPTIONS["vertical.bucket_rr"]
    with pytest.raises(InvalidParameter, match="max_depth is to be searched, and is given as 2 too"):
        federation.tune("vertical.bucket_rr", {"max_depth": [1]}, max_depth=2, **how)
    with pytest.raises(InvalidParameter, match="cv must be between 2 and the number of rows of anna, 160, got 1"):
        federation.cross_validate("vertical.bucket_rr", cv=1, **how)
    with pytest.raises(InvalidParameter, match="max_dept"):
        federation.tune("vertical.bucket_rr", {"max_dept": [1]}, **how)
    with pytest.raises(InvalidParameter, match="there is nothing to choose from"):
        federation.tune("vertical.bucket_rr", [], **how)
