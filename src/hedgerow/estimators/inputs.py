"""What people pass to an estimator besides the table: parameters, labels and weights, checked and in our own form.

Parameters have the names of scikit-learn's HistGradientBoosting. XGBoost's and LightGBM's spellings are accepted in the
constructor and in `set_params`; `get_params`, `repr` and the fitted model know only our names. Unknown names are
refused with a hint. Values are looked at in `fit`, never in the constructor, as scikit-learn wants it.

Labels and weights may be lists, numpy arrays, pandas, polars and arrow columns; neither pandas nor polars need be
installed. What cannot be trained on is refused in a sentence that names the first offending row.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeGuard, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import DataConversionWarning

from hedgerow.engine.dtypes import Floats
from hedgerow.engine.losses import BoostingParams
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.runtime.protocol import Option

Array = npt.NDArray[Any]
T = TypeVar("T")

SMALL_SPAN = 4096
"""Integer labels within such a span are encoded by counting instead of sorting."""

LARGEST = 1e37
"""Gradients and leaf values are single precision, which ends at 3e38."""


class UnknownParameter(InvalidParameter, TypeError):
    """A keyword nobody knows: a TypeError as in any Python call, a ValueError as in scikit-learn's `set_params`."""


_SPELLINGS = {
    "max_iter": ("n_estimators", "num_boost_round", "num_iterations"),
    "learning_rate": ("eta",),
    "l2_regularization": ("reg_lambda", "lambda_", "lambda_l2"),
    "min_split_gain": ("gamma", "min_split_loss", "min_gain_to_split"),
    "max_bins": ("max_bin",),
    "max_leaf_nodes": ("max_leaves", "num_leaves"),
    "max_features": ("colsample_bynode", "feature_fraction_bynode"),
    "monotonic_cst": ("monotone_constraints",),
    "interaction_cst": ("interaction_constraints",),
    "quantile": ("quantile_alpha", "alpha"),
    "n_jobs": ("nthread", "num_threads"),
    "random_state": ("seed",),
    "n_iter_no_change": ("early_stopping_rounds", "early_stopping_round"),
    "loss": ("objective",),
    "min_samples_leaf": ("min_data_in_leaf", "min_child_samples"),
    "min_child_weight": ("min_sum_hessian_in_leaf",),
    "colsample_bytree": ("feature_fraction",),
    "subsample": ("bagging_fraction",),
    "categorical_features": ("categorical_feature",),
}
ALIASES = {spelling: ours for ours, spellings in _SPELLINGS.items() for spelling in spellings}
"""XGBoost's or LightGBM's spelling -> ours."""

UNSUPPORTED: dict[str, str] = {
    "reg_alpha": "there is no L1 penalty on leaf values; use l2_regularization (reg_lambda) or min_split_gain (gamma)",
    "alpha": "there is no L1 penalty on leaf values; use l2_regularization (reg_lambda) or min_split_gain (gamma)",
    "lambda_l1": "there is no L1 penalty on leaf values; use l2_regularization (lambda_l2) or min_split_gain",
    "tree_method": "trees are always grown from histograms, as with tree_method='hist'; leave it out",
    "device": "training runs on the CPU, as with device='cpu'; leave it out and choose threads with n_jobs",
    "gpu_id": "training runs on the CPU; leave it out and choose threads with n_jobs",
    "predictor": "there is one predictor, on the CPU; leave it out",
    "booster": "the booster is always gradient-boosted trees, as with booster='gbtree'; leave it out",
    "boosting_type": "the booster is always gradient-boosted trees, as with boosting_type='gbdt'; leave it out",
    "grow_policy": "trees grow level by level, as with grow_policy='depthwise'; see max_depth and max_leaf_nodes",
    "max_delta_step": "leaf values are not clipped; use a smaller learning_rate or a larger min_child_weight",
    "scale_pos_weight": "it is for classifiers of two classes; give the rows weights: fit(X, y, sample_weight=...)",
    "class_weight": "it is for classifiers; give the rows weights: fit(X, y, sample_weight=...)",
    "is_unbalance": "use class_weight='balanced'",
    "num_parallel_tree": "one tree is grown per iteration and output; leave it out",
    "sampling_method": "rows are drawn uniformly with subsample; leave it out",
    "bagging_freq": "rows are drawn anew for each tree with subsample (bagging_fraction); leave it out",
    "subsample_freq": "rows are drawn anew for each tree with subsample; leave it out",
    "enable_categorical": "categories are taken from the columns' dtypes; see categorical_features",
    "max_cat_to_onehot": "name the columns whose levels are split one against the rest in one_hot_levels",
    "max_cat_threshold": "categories are always split into two sets of levels; leave it out",
    "missing": "NaN and None are the missing values; replace other markers before fit",
    "num_class": "the number of classes is taken from y; leave it out",
    "validate_parameters": "parameters are always validated; leave it out",
    "verbosity": "use verbose=0 for silence, verbose=1 for progress lines",
    "silent": "use verbose=0 for silence, verbose=1 for progress lines",
    "importance_type": "call importances('gain') or importances('count') after fit",
    "scoring": "name a metric with eval_metric; early stopping then follows it",
    "refresh_leaf": "trees are never revisited; leave it out",
    "process_type": "trees are never revisited; leave it out",
    "multi_strategy": "one tree is grown per iteration and class; leave it out",
}
"""Names from elsewhere that have no counterpart here -> what to do instead."""

_ROUNDS_NAMES = {"early_stopping_rounds", "early_stopping_round"}
"""Giving one of these also switches early stopping on (None: off), unless `early_stopping` is given by itself."""

_OBJECTIVES = {
    "reg:squarederror": "squared_error",
    "regression": "squared_error",
    "squared_error": "squared_error",
    "count:poisson": "poisson",
    "poisson": "poisson",
    "reg:absoluteerror": "absolute_error",
    "absolute_error": "absolute_error",
    "mae": "absolute_error",
    "regression_l1": "absolute_error",
    "reg:quantileerror": "quantile",
    "quantile": "quantile",
}
_CLASSIFIER_OBJECTIVES = {"binary:logistic", "multi:softprob", "multi:softmax", "binary", "multiclass", "log_loss"}


def takes_parameters(*, of: type[Any] | None = None) -> Callable[[type[T]], type[T]]:
    """Give an estimator its constructor: a keyword for each attribute that the class body annotates and sets.

    What is set there is the default. The keywords of the class `of` come first. As scikit-learn wants it, the
    constructor only stores values. It takes the other spellings too, but `inspect.signature` shows our names alone,
    which is what scikit-learn's `clone` and `get_params` go by.
    """

    def with_constructor(kind: type[T]) -> type[T]:
        taken = {} if of is None else dict(inspect.signature(of).parameters)
        for name in [name for name in kind.__annotations__ if name in vars(kind)]:
            taken[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=vars(kind)[name], annotation=kind.__annotations__[name]
            )
            delattr(kind, name)  # a subclass that does not take it does not have it

        def store(self: Any, *args: Any, **given: Any) -> None:
            owner = type(self).__name__
            if args:
                raise UnknownParameter(f"{owner} takes its parameters by name only, got {args[0]!r} without a name")
            ours = translate(given, taken, owner)
            for name, parameter in taken.items():
                setattr(self, name, ours.get(name, parameter.default))

        everything = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *taken.values()]
        store.__signature__ = inspect.Signature(everything, return_annotation="None")  # type: ignore[attr-defined]  # not in the stubs
        kind.__init__ = store  # type: ignore[method-assign]  # that is the point
        return kind

    return with_constructor


def defaults_of(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator's class, and what they are unless somebody says otherwise."""
    parameters = inspect.signature(estimator.__init__).parameters.values()
    return {each.name: each.default for each in parameters if each.name != "self"}


def own_names(estimator: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters for an estimator's class in any spelling, under our names; raises for one that it does not have."""
    return translate(given, defaults_of(estimator), estimator.__name__)


def translate(given: Mapping[str, Any], valid: Iterable[str], owner: str) -> dict[str, Any]:
    """The same parameters under our names; raises for unknown ones and for one parameter given twice."""
    valid = [name for name in valid if name != "self"]
    translated: dict[str, Any] = {}
    spelling: dict[str, str] = {}
    for name, value in given.items():
        for target, converted in _ours(name, value, valid, owner).items():
            if target in translated:
                raise InvalidParameter(
                    f"{target} is given twice, as {spelling[target]}={translated[target]!r} "
                    f"and as {name}={value!r}; keep one"
                )
            translated[target] = converted
            spelling[target] = name
    if spelling.get("quantile") == "alpha" and translated.get("loss") != "quantile":
        raise UnknownParameter(f"{owner} has no parameter alpha without objective='quantile': {UNSUPPORTED['alpha']}")
    for name in _ROUNDS_NAMES & given.keys():
        translated.setdefault("early_stopping", given[name] is not None)
    return translated


def _ours(name: str, value: Any, valid: list[str], owner: str) -> dict[str, Any]:
    """One parameter under another library's name -> under ours, its value in our convention."""
    if name in valid:
        return {name: value}
    if name == "objective":
        return _loss_of_objective(value, valid, owner)
    if name in _ROUNDS_NAMES and value is None:
        return {}  # XGBoost's "no early stopping"
    if name == "max_leaves" and _is_whole(value) and value == 0:
        return {"max_leaf_nodes": None}  # XGBoost's "no limit"
    if name == "monotone_constraints" and isinstance(value, str):
        try:
            return {"monotonic_cst": tuple(int(part) for part in value.strip("() ").split(",") if part.strip())}
        except ValueError:
            raise InvalidParameter(f"monotone_constraints must look like '(1,0,-1)', got {value!r}") from None
    if ALIASES.get(name) in valid:
        return {ALIASES[name]: value}
    if name in UNSUPPORTED:
        raise UnknownParameter(f"{owner} has no parameter {name}: {UNSUPPORTED[name]}")
    near = nearest(name, [*valid, *(alias for alias, ours in ALIASES.items() if ours in valid)])
    hint = f"; did you mean {near}?" if near else f"; it has {', '.join(sorted(valid))}"
    raise UnknownParameter(f"{owner} has no parameter {name}{hint}")


def _loss_of_objective(value: Any, valid: list[str], owner: str) -> dict[str, Any]:
    if "loss" not in valid and value in _CLASSIFIER_OBJECTIVES:
        return {}
    if "loss" in valid and value in _OBJECTIVES:
        return {"loss": _OBJECTIVES[value]}
    known = sorted(_OBJECTIVES if "loss" in valid else _CLASSIFIER_OBJECTIVES)
    raise InvalidParameter(f"{owner} has no objective {value!r}; it knows {', '.join(known)}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like `name`, if any does."""
    matches = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> TypeGuard[float]:
    return _is_whole(value) or isinstance(value, (float, np.floating))


_NO_LIMIT = "a whole number of at least {}, or None for no limit"
_RANGES = {
    "learning_rate": Option(help="of each tree", kind=float, above=0),
    "max_iter": Option(help="trees of each output", kind=int, at_least=1),
    "max_leaf_nodes": Option(help="of a tree", kind=int, at_least=2, or_none=True, words=_NO_LIMIT.format(2)),
    "max_depth": Option(help="of a tree", kind=int, at_least=1, or_none=True, words=_NO_LIMIT.format(1)),
    "min_samples_leaf": Option(help="rows of a leaf", kind=int, at_least=1),
    "min_rows_per_sum": Option(help="rows of a node that is split further, and of its sibling", kind=int, at_least=1),
    "min_child_weight": Option(help="hessians of a child", kind=float, at_least=0),
    "l2_regularization": Option(help="penalty on leaf values", kind=float, at_least=0),
    "min_split_gain": Option(help="of a split", kind=float, at_least=0),
    "max_features": Option(help="columns that a node looks at", kind=float, above=0, at_most=1),
    "colsample_bytree": Option(help="columns that a tree looks at", kind=float, above=0, at_most=1),
    "colsample_bylevel": Option(help="of those, columns that a level looks at", kind=float, above=0, at_most=1),
    "quantile": Option(help="that is predicted", kind=float, above=0, below=1),
    "subsample": Option(help="rows that a tree looks at", kind=float, above=0, at_most=1),
    "max_bins": Option(
        help="of a column",
        kind=int,
        at_least=2,
        at_most=256,
        words="between 2 and 256 (the bin of missing values included)",
    ),
    "n_iter_no_change": Option(help="iterations without progress", kind=int, at_least=1),
    "tol": Option(help="what counts as progress", kind=float, at_least=0),
    "base_score": Option(
        help="before the first tree", kind=float, or_none=True, words="a number, or None to take it from the labels"
    ),
    "gradient_bits": Option(
        help="of a gradient",
        kind=int,
        at_least=-100,
        at_most=30,
        or_none=True,
        words="a whole number from -100 to 30, or None",
    ),
    "n_jobs": Option(help="threads", kind=int, or_none=True, words="a whole number, or None for all cores"),
    "verbose": Option(help="lines", kind=int, at_least=0, words="False, True or a whole number of at least 0"),
}


def check_values(params: Mapping[str, Any]) -> None:
    """Raise for the first parameter outside its range, in a sentence with its name and value."""
    for name, allowed in _RANGES.items():
        if name in params and not (name == "verbose" and isinstance(params[name], bool)):
            replace(allowed, name=name).checked("", params[name])
    stopping, fraction = params["early_stopping"], params["validation_fraction"]
    if not (isinstance(stopping, bool) or (isinstance(stopping, str) and stopping == "auto")):
        raise InvalidParameter(f"early_stopping must be True, False or 'auto', got {stopping!r}")
    if not (_is_whole(fraction) and fraction >= 1) and not (_is_number(fraction) and 0 < fraction < 1):
        raise InvalidParameter(
            f"validation_fraction must be between 0 and 1, or a whole number of rows, got {fraction!r}"
        )
    if params.get("loss", "squared_error") not in LOSSES:
        raise InvalidParameter(f"loss must be {', '.join(map(repr, LOSSES))}, got {params['loss']!r}")
    span = params.get("label_range")
    if span is not None and not (isinstance(span, (tuple, list)) and len(span) == 2 and all(map(_is_number, span))):
        raise InvalidParameter(f"label_range must be a pair of numbers (low, high) or None, got {span!r}")
    metric = params["eval_metric"]
    if not (metric is None or isinstance(metric, str) or callable(metric)):
        raise InvalidParameter(f"eval_metric must be one name or a function of labels and predictions, got {metric!r}")
    for callback in params["callbacks"] or ():
        if not callable(getattr(callback, "after_iteration", None)):
            raise InvalidParameter(
                f"callbacks must be objects with a method after_iteration(model, epoch, evals_log), got {callback!r}"
            )


LOSSES = {"squared_error": "squared", "poisson": "poisson", "absolute_error": "absolute", "quantile": "quantile"}
"""A regressor's loss -> what the engine calls it."""

_ENGINE_NAMES = {
    "max_leaf_nodes": "max_leaves",
    "l2_regularization": "l2",
    "min_split_gain": "min_gain",
    "max_features": "colsample_bynode",
}
"""Parameter -> what the engine calls it, where the names differ."""


def engine_params(params: Mapping[str, Any], columns: Sequence[tuple[str, bool]], **more: Any) -> BoostingParams:
    """Parameters of trees under the engine's names, for columns given as (name, whether it is categorical)."""
    given: dict[str, Any] = {_ENGINE_NAMES.get(name, name): value for name, value in params.items()}
    names = [name for name, _ in columns]
    given |= {"monotone": monotone_signs(params["monotonic_cst"], columns)}
    given |= {"one_hot_levels": _one_hot(params["one_hot_levels"], columns)}
    given |= {"interaction": interaction_groups(params["interaction_cst"], names), **more}
    kinds = {field.name: field.type for field in fields(BoostingParams)}
    for name, value in list(given.items()):
        if name not in kinds:
            del given[name]
        elif kinds[name] == "float":
            given[name] = float(value)
    return BoostingParams(**given)


def monotone_signs(wish: Any, columns: Sequence[tuple[str, bool]]) -> tuple[int, ...] | None:
    """One of -1, 0, 1 per column, from a list or from a dict by column name."""
    if wish is None:
        return None
    names = [name for name, _ in columns]
    if isinstance(wish, dict):
        unknown = [name for name in wish if name not in names]
        if unknown:
            near = nearest(str(unknown[0]), names)
            hint = f"; did you mean {near!r}?" if near else ""
            raise InvalidParameter(f"monotonic_cst names {unknown[0]!r}, which is not a column of X{hint}")
        wish = [wish.get(name, 0) for name in names]
    signs = list(wish)
    if len(signs) != len(names):
        raise InvalidParameter(f"monotonic_cst has {len(signs)} entries, but X has {len(names)} columns")
    for (name, is_categorical), sign in zip(columns, signs, strict=True):
        if sign not in (-1, 0, 1):
            raise InvalidParameter(f"monotonic_cst must be -1, 0 or 1 for each column, got {sign!r} for {name!r}")
        if sign != 0 and is_categorical:
            raise InvalidParameter(f"monotonic_cst: column {name!r} is categorical, and its levels have no order")
    return tuple(int(sign) for sign in signs) if any(signs) else None


MOST_PAIRED = 1000
"""Columns up to which "pairwise" lists all pairs."""


def interaction_groups(wish: Any, names: Sequence[str]) -> tuple[tuple[int, ...], ...] | None:
    """Groups of columns that may be asked about on one path, by number, from scikit-learn's or XGBoost's spelling."""
    if wish is None:
        return None
    if isinstance(wish, str):
        if wish == "no_interactions":
            return tuple((column,) for column in range(len(names)))
        if wish == "pairwise" and len(names) <= MOST_PAIRED:
            return tuple(itertools.combinations(range(len(names)), 2)) or ((0,),)
        few = f"; it is for up to {MOST_PAIRED:,} columns, and X has {len(names):,}" if wish == "pairwise" else ""
        groups = re.findall(r"\[([^\[\]]+)\]", wish)  # XGBoost's text '[[0, 1], [2, 3]]', LightGBM's '[0, 1], [2, 3]'
        if not groups:
            raise InvalidParameter(
                "interaction_cst must be 'pairwise', 'no_interactions' or a list of groups of columns, "
                f"got {wish!r}{few}"
            )
        members = ([member.strip(" \"'") for member in group.split(",")] for group in groups)
        wish = [[int(member) if member.isdecimal() else member for member in group] for group in members]
    if not isinstance(wish, list | tuple) or not all(isinstance(g, list | tuple | set | frozenset) and g for g in wish):
        raise InvalidParameter(
            f"interaction_cst must be a list of groups of columns, such as [{{0, 1}}, {{2, 3}}], got {wish!r}"
        )
    return tuple(tuple(sorted({_column_number(member, names) for member in group})) for group in wish)


def _one_hot(wish: Any, columns: Sequence[tuple[str, bool]]) -> tuple[int, ...]:
    """Numbers of columns whose levels are split one against all others: of all with levels, or of those listed."""
    with_levels = tuple(number for number, (_, is_categorical) in enumerate(columns) if is_categorical)
    if wish is None or wish is False:
        return ()
    if wish is True:
        return with_levels
    if not isinstance(wish, list | tuple):
        raise InvalidParameter(f"one_hot_levels must be True, None or a list of columns with levels, got {wish!r}")
    names = [name for name, _ in columns]
    found = tuple(sorted({_column_number(member, names, "one_hot_levels") for member in wish}))
    without = [names[number] for number in found if number not in with_levels]
    if without:
        raise InvalidParameter(f"one_hot_levels names {without[0]!r}, a column without levels")
    return found


def _column_number(member: Any, names: Sequence[str], where: str = "interaction_cst") -> int:
    """A column by its name or number."""
    if isinstance(member, str) and member in names:
        return names.index(member)
    if _is_whole(member) and 0 <= member < len(names):
        return int(member)
    near = nearest(member, names) if isinstance(member, str) else None
    hint = f"; did you mean {near!r}?" if near else f"; X has {len(names)} columns"
    raise InvalidParameter(f"{where} names {member!r}, which is not a column of X{hint}")


def seed_from(random_state: Any) -> int:
    """scikit-learn's `random_state` as a seed: a number is one, a generator gives one, None draws a fresh one.

    `check_random_state(None)` would use numpy's process-wide generator, which any other code can move.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if _is_whole(random_state) and 0 <= random_state < 2**32:
        return int(random_state)
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**32, dtype=np.uint64))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    raise InvalidParameter(
        f"random_state must be None, a whole number from 0 to 2**32 - 1 or a numpy generator, got {random_state!r}"
    )


# --- labels and weights ----------------------------------------------------------------------------------------------


def read_classes(y: Any, n_rows: int, where: str = "y") -> Array:
    """Class labels as given: strings, booleans or whole numbers, none missing."""
    values = _one_dimensional(y, n_rows, where)
    if values.dtype.kind == "f" and (values != np.floor(values)).any():
        example = values[values != np.floor(values)][0]
        raise InvalidInput(
            f"Unknown label type: continuous. A classifier needs classes, but {where} holds numbers with fractions "
            f"such as {example:g}; round them to classes, or use BoostedTreesRegressor"
        )
    if values.dtype.kind in "mMSV":
        raise InvalidInput(
            f"Unknown label type: {values.dtype}. A classifier needs strings, booleans or whole numbers in {where}"
        )
    return values


def encode_classes(values: Array, where: str = "y") -> tuple[Array, Floats]:
    """The sorted distinct classes, and each row's class as 0.0, 1.0, ..."""
    if values.dtype.kind in "bui" and values.size:
        wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
        low = wide.min()
        span = int(wide.max()) - int(low) + 1
        if span <= SMALL_SPAN:
            offsets = (wide - low).astype(np.intp)
            present = np.bincount(offsets, minlength=span) > 0
            classes = (np.flatnonzero(present).astype(wide.dtype) + low).astype(values.dtype)
            positions: Floats = np.cumsum(present).astype(np.float64) - 1.0
            return classes, positions[offsets]
    try:
        classes, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise InvalidInput(
            f"Unknown label type: {where} mixes {' and '.join(kinds)}; make all labels of one kind"
        ) from None
    return classes, codes.astype(np.float64)


FEWEST_SUSPECT = 30
"""Classes from which whole numbers are looked at once more."""


def warn_of_numbers(classes: Array, codes: Floats) -> None:
    """UserWarning if classes look like amounts: many different numbers, of which each, or many, have few rows.

    Many are 30 or more, with less than 10 rows each on average, or a tenth of them with a single row. Text is never an
    amount, and numbers that each stand for many rows, as digits or numbers of shops do, may well be classes.
    """
    if classes.dtype.kind not in "uif" or classes.size < FEWEST_SUSPECT:
        return
    alone = int(np.count_nonzero(np.bincount(codes.astype(np.intp)) == 1))
    if codes.size < 10 * classes.size or alone >= classes.size / 10:
        warnings.warn(
            f"y has {classes.size} classes, all of them numbers, in {codes.size} rows, and one tree is grown per class "
            "and iteration; for numbers use BoostedTreesRegressor. If they are classes indeed, give them as text",
            UserWarning,
            stacklevel=7,
        )


def encode_like(values: Array, classes: Array, where: str) -> Floats:
    """Each row's position in `classes`; a label that is not among them is an error."""
    known = {label: position for position, label in enumerate(classes.tolist())}
    found, inverse = encode_classes(values)
    unknown = [label for label in found.tolist() if label not in known]
    if unknown:
        raise InvalidInput(
            f"{where} holds the label {unknown[0]!r}, which is not among the classes of the training labels: "
            + ", ".join(repr(label) for label in classes.tolist()[:10])
        )
    positions = np.array([known[label] for label in found.tolist()], dtype=np.float64)
    return positions[inverse.astype(np.intp)]


def plain_class(label: Any) -> Any:
    """1.0 and 1 are the same class, so that one party's floats do not differ from another's integers."""
    return int(label) if isinstance(label, float | np.floating) and float(label).is_integer() else label


def read_targets(y: Any, n_rows: int, where: str = "y") -> Floats:
    """Regression targets as finite float64."""
    values = _one_dimensional(y, n_rows, where)
    if values.dtype.kind not in "buif":
        example = values.tolist()[0]
        raise InvalidInput(f"{where} must hold numbers, got {example!r} of type {type(example).__name__} in row 0")
    targets = values.astype(np.float64)
    if targets.size and np.abs(targets).max() > LARGEST:
        row = int(np.argmax(np.abs(targets)))
        raise InvalidInput(f"{where} is {targets[row]:g} in row {row}; beyond {LARGEST:g} divide by a constant first")
    return targets


def read_weights(sample_weight: Any, n_rows: int, where: str = "sample_weight") -> Floats | None:
    """Weights as finite, non-negative float64 that are not all zero; None stays None."""
    if sample_weight is None:
        return None
    if np.isscalar(sample_weight):
        sample_weight = np.full(n_rows, sample_weight)
    weights = read_targets(sample_weight, n_rows, where)
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise InvalidInput(
            f"Negative values in data passed to {where}: {weights[row]:g} in row {row}; weights must be at least 0"
        )
    if not weights.any():
        raise InvalidInput(f"all weights in {where} are zero: at least one row must count")
    return weights


def class_weights(
    codes: Floats,
    classes: Sequence[Any],
    class_weight: Any = None,
    scale_pos_weight: float | None = None,
    sample_weight: Floats | None = None,
) -> Floats | None:
    """Weights of rows whose labels are `codes` of `classes`: the rows' own, times that of their class.

    `class_weight` is a weight for each class by name (1 for those left out), or "balanced": as heavy as if all classes
    had equally many rows, by scikit-learn's rule n_rows / (n_classes * rows of the class), own weights counted.
    `scale_pos_weight` is XGBoost's: the weight of the second of two classes. None where all rows count the same.
    """
    if class_weight is None and scale_pos_weight is None:
        return sample_weight
    factors = np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        each = np.bincount(codes.astype(np.intp), sample_weight, minlength=len(classes)).astype(np.float64)
        there = each > 0
        factors[there] = each.sum() / (len(classes) * each[there])
    elif isinstance(class_weight, Mapping):
        for label, factor in class_weight.items():
            if label not in list(classes):
                known = ", ".join(repr(each) for each in list(classes)[:10])
                raise InvalidParameter(f"class_weight names {label!r}, which is not a class of y; it has {known}")
            factors[list(classes).index(label)] = _class_factor("class_weight", factor)
    elif class_weight is not None:
        raise InvalidParameter(
            f"class_weight must be 'balanced', a dict of weights by class, or None, got {class_weight!r}"
        )
    if scale_pos_weight is not None:
        if len(classes) != 2:
            raise InvalidParameter(
                f"scale_pos_weight={scale_pos_weight!r} is for two classes, and y has {len(classes)}; use class_weight"
            )
        factors[1] *= _class_factor("scale_pos_weight", scale_pos_weight)
    weights = factors[codes.astype(np.intp)] * (1.0 if sample_weight is None else sample_weight)
    if not weights.any():
        raise InvalidParameter(f"class_weight={class_weight!r} leaves no row with a weight above 0")
    return weights


def _class_factor(name: str, factor: Any) -> float:
    if not _is_number(factor) or not 0 <= factor <= LARGEST:
        raise InvalidParameter(f"{name} must hold numbers of at least 0, got {factor!r}")
    return float(factor)


def _one_dimensional(values: Any, n_rows: int, where: str) -> Array:
    """One value per row, none of them missing or infinite, as an array of the plainest dtype that holds them."""
    if values is None:
        raise InvalidInput(f"fit requires {where} to be passed, but the target {where} is None")
    array = _as_array(values)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector {where} was passed when a 1d array was expected. Please change the shape of {where} to "
            "(n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=6,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise InvalidInput(f"{where} should be a 1d array with one value per row, got shape {array.shape}")
    if array.shape[0] != n_rows:
        raise InvalidInput(f"X and {where} must have as many rows: X has {n_rows}, {where} has {array.shape[0]}")
    if array.dtype.kind == "c":
        raise InvalidInput(f"Complex data not supported: {where} has dtype {array.dtype}")
    if array.dtype.kind == "O":
        array = _plain(array, where)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        _refuse_first(~np.isfinite(array), where, array)
    return array


def _as_array(values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "dictionary_decode"):  # arrow's dictionary arrays convert to their codes otherwise
        values = values.dictionary_decode()
    if hasattr(values, "to_numpy"):  # pandas, polars and arrow columns
        try:
            return np.asarray(values.to_numpy(zero_copy_only=False))
        except TypeError:
            return np.asarray(values.to_numpy())
    return exact_array(values)


def exact_array(values: Any) -> Array:
    """`np.array(values)` in which whole numbers keep their values: numpy makes floats of those beyond 2^63."""
    array = np.asarray(values)
    if array.dtype.kind != "f" or array.ndim != 1 or not array.size or not np.abs(array).max() >= 2**53:
        return array
    plain = list(values)
    if not all(isinstance(value, int | np.integer) for value in plain):
        return array
    fits = all(0 <= value < 2**64 for value in plain)
    return np.array(plain, np.uint64 if fits else object)


def _plain(array: Array, where: str) -> Array:
    """Python objects as numbers or booleans where they are; strings stay objects."""
    missing = np.fromiter((_is_missing(value) for value in array), dtype=np.bool_, count=array.size)
    if missing.any():
        _refuse_first(missing, where, array)
    if all(isinstance(value, str) for value in array):
        return array
    plain = exact_array(array.tolist())
    return plain if plain.dtype.kind in "buif" and plain.ndim == 1 else array


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 - only NaN and NaT differ from themselves
    except (TypeError, ValueError):  # pandas.NA refuses to be a truth value; an array in a cell has many
        return True


def _refuse_first(bad: npt.NDArray[np.bool_], where: str, array: Array) -> None:
    row = int(np.argmax(bad))
    word = "infinity" if array.dtype.kind == "f" and np.isinf(array[row]) else "NaN"
    raise InvalidInput(
        f"Input {where} contains {word}: {int(bad.sum())} of {bad.size} rows, the first is row {row}; "
        "drop these rows or fill them in"
    )
