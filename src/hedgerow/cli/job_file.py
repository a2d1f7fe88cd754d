"""The job: what to train on, which model, where to put it. Read from a TOML file, the environment and flags.

A flag beats an environment variable, which beats the file. Each setting remembers where it came from, so a mistake is
reported with the file's line, the variable or the flag. Format: docs/reference/job_file.md.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hedgerow.errors import HedgerowError, JobError
from hedgerow.node.settings import NAMES, NUMBER, PATH, TEXT, hint, number, read_toml

KINDS = ("classifier", "regressor")
KEYS = {
    "data": {
        "train": PATH,
        "valid": PATH,
        "test": PATH,
        "label": TEXT,
        "weight": TEXT,
        "drop": NAMES,
        "categorical": NAMES,
    },
    "output": {"model": PATH, "result": PATH, "predictions": PATH},
    "privacy": {
        "protocol": TEXT,
        "epsilon": NUMBER,
        "delta": NUMBER,
        "schema": PATH,
        "budget": PATH,
        "dataset": TEXT,
    },
}
"""Section -> key -> what it holds; [model] has the parameters of the estimators."""
FLAGS = {"train": "--data", "model": "--out", "result": "--out"}
"""Those that are not called as what they set."""
SECTIONS = ("data", "model", "output", "privacy")
PROTOCOLS = ("central.gaussian", "central.dpboost", "central.sequential", "central.parallel", "central.plain")


@dataclass(frozen=True)
class Setting:
    """A value, where it was written (for error messages), and the folder that relative paths start from."""

    value: Any
    origin: str
    folder: Path


Settings = dict[tuple[str, str], Setting]


@dataclass(frozen=True)
class Privacy:
    """What the released model must guarantee, and which budget it is charged to."""

    schema: Path
    epsilon: float
    delta: float | None = None
    protocol: str = PROTOCOLS[0]
    budget: Path | None = None
    dataset: str | None = None


@dataclass(frozen=True)
class Job:
    """A job with every path absolute or relative to the working directory, every name checked."""

    train: Path
    label: str
    valid: Path | None = None
    test: Path | None = None
    weight: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    kind: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    model: Path = Path("model.json")
    result: Path | None = None
    predictions: Path | None = None
    privacy: Privacy | None = None


def read_job(path: Path | None, environment: Mapping[str, str], given: Settings) -> Job:
    """Put the three sources together and check the result."""
    settings = {**(_from_file(path) if path else {}), **_from_environment(environment), **given}
    for (section, key), setting in settings.items():
        if section not in SECTIONS:
            raise JobError(f"{setting.origin}: unknown section {section!r}{hint(section, SECTIONS)}")
        if section != "model" and key not in KEYS[section]:
            raise JobError(f"{setting.origin}: unknown key {key!r} in [{section}]{hint(key, KEYS[section])}")
    return _job(settings)


def flags(section: str, **values: Any) -> Settings:
    """Settings of a section given by flags of the command, without those that were left out."""
    given = {key: value for key, value in values.items() if value is not None and value != []}
    return {(section, key): Setting(value, FLAGS.get(key, f"--{key}"), Path()) for key, value in given.items()}


def set_flags(pairs: Iterable[str]) -> Settings:
    """`--set key=value` for the model, `--set section.key=value` for the rest; values are written as in TOML."""
    settings: Settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        section, dot, key = name.strip().rpartition(".")
        if not equals or not key:
            raise JobError(f"--set {pair}: write it as --set key=value, for instance --set max_iter=200")
        settings[section if dot else "model", key] = Setting(_value(text), f"--set {name.strip()}", Path())
    return settings


# --- sources -------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> Settings:
    document = read_toml(path, "job file")
    settings: Settings = {}
    for section, entries in document.content.items():
        where = document.where(section)
        if section not in SECTIONS:
            raise JobError(f"{where}: unknown section or key {section!r}{hint(section, SECTIONS)}")
        if not isinstance(entries, dict):
            raise JobError(f"{where}: {section} must be a section, written [{section}]")
        for key, value in entries.items():
            settings[section, key] = Setting(value, document.where(section, key), path.parent)
    return settings


def _from_environment(environment: Mapping[str, str]) -> Settings:
    """HEDGEROW_DATA_LABEL is [data] label, HEDGEROW_MODEL_MAX_ITER is [model] max_iter."""
    settings: Settings = {}
    for variable, text in environment.items():
        match = re.fullmatch(r"HEDGEROW_(DATA|MODEL|OUTPUT|PRIVACY)_(\w+)", variable)
        if match:
            section, key = match[1].lower(), match[2].lower()
            value = [part.strip() for part in text.split(",")] if KEYS.get(section, {}).get(key) is NAMES else text
            settings[section, key] = Setting(
                _value(text) if section in {"model", "privacy"} else value, variable, Path()
            )
    return settings


def _value(text: str) -> Any:
    """A value as TOML writes it; what is not TOML is a string, so that quotes can be left out."""
    try:
        return tomllib.loads(f"value = {text}", parse_float=number)["value"]
    except (ValueError, RecursionError):
        return text.strip()


# --- checks --------------------------------------------------------------------------------------------------------


def _job(settings: Settings) -> Job:
    found: dict[str, Any] = {}
    private: dict[str, Any] = {}
    for (section, key), setting in settings.items():
        if section != "model":
            (private if section == "privacy" else found)[key] = _checked(section, key, setting)
    for key, remedy in (("train", "--data FILE"), ("label", "--label COLUMN")):
        if not found.get(key):
            raise JobError(f"the job does not say [data] {key}; write it in the job file or give {remedy}")
    kind = settings.pop(("model", "kind"), None)
    if kind is not None and kind.value not in KINDS:
        raise JobError(f"{kind.origin}: kind must be 'classifier' or 'regressor', got {kind.value!r}")
    found["kind"] = kind.value if kind else None
    found["privacy"] = _privacy(private, found) if private else None
    found["params"] = _params(settings, found["kind"], found["privacy"])
    return Job(**found)


def _privacy(given: dict[str, Any], data: Mapping[str, Any]) -> Privacy:
    for key, remedy in (("epsilon", "--epsilon NUMBER"), ("schema", "--schema FILE")):
        if key not in given:
            raise JobError(f"the job does not say [privacy] {key}; write it in the job file or give {remedy}")
    if given.get("protocol", PROTOCOLS[0]) not in PROTOCOLS:
        raise JobError(f"[privacy] protocol must be one of {', '.join(PROTOCOLS)}, got {given['protocol']!r}")
    if ("budget" in given) != ("dataset" in given):
        raise JobError("[privacy] budget and dataset belong together: the file, and the name of the dataset in it")
    for key, why in (
        ("valid", "validation rows would decide when to stop"),
        ("weight", "weights change what one row can do"),
    ):
        if data.get(key):
            raise JobError(f"[data] {key} cannot be used with [privacy]: {why}, which no protocol accounts for")
    if data.get("categorical"):
        raise JobError("[data] categorical cannot be used with [privacy]: the schema says which columns have levels")
    return Privacy(**given)


def private_owner(privacy: Privacy, kind: str | None) -> Any:
    """The estimator that trains a private job."""
    from hedgerow.estimators import private

    if privacy.protocol == "central.gaussian":
        return private.PrivateBoostingRegressor if kind == "regressor" else private.PrivateBoostingClassifier
    return private.DPBoostRegressor if kind == "regressor" else private.DPBoostClassifier


def _checked(section: str, key: str, setting: Setting) -> Any:
    value, kind = setting.value, KEYS[section][key]
    if isinstance(value, Path):
        value = str(value)
    if kind is NAMES and isinstance(value, str):
        value = [value]
    return kind.checked(key, value, setting.origin, setting.folder)


def _params(settings: Settings, kind: str | None, privacy: Privacy | None) -> dict[str, Any]:
    """The model's parameters under the estimators' own names."""
    from hedgerow.estimators.inputs import translate
    from hedgerow.estimators.plain import BoostedTreesClassifier, BoostedTreesRegressor

    owner = BoostedTreesClassifier if kind == "classifier" else BoostedTreesRegressor
    taken = {"callbacks", "categorical_features"}
    if privacy is not None:
        owner, taken = private_owner(privacy, kind), {*KEYS["privacy"], "bounds"}
    valid = [name for name in inspect.signature(owner).parameters if name not in taken]
    given: dict[str, Any] = {}
    for (section, key), setting in settings.items():
        if section != "model":
            continue
        if key == "categorical_features":
            raise JobError(f"{setting.origin}: name categorical columns with [data] categorical")
        value = None if isinstance(setting.value, str) and setting.value.lower() == "none" else setting.value
        try:
            translate({key: value}, valid, "[model]")
        except HedgerowError as problem:
            raise JobError(f"{setting.origin}: {problem}") from None
        given[key] = value
    try:
        return translate(given, valid, "[model]")
    except HedgerowError as problem:
        raise JobError(str(problem)) from None
