"""What others depend on stays the same, byte for byte: frames of messages, jobs, traffic, model files, public names.

Where a change is meant, write the files anew and say in the commit what changed and why:

    HEDGEROW_WRITE_GOLDEN=1 make test ARGS=tests/golden
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import math
import os
import pkgutil
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hedgerow
from hedgerow import Federation, Schema, node
from hedgerow.runtime.checkpoint import MESSAGES
from hedgerow.runtime.protocol import find, names, services
from hedgerow.transport.frames import encode, registered, schema

HERE = Path(__file__).parent
N_ROWS = 240
TREES = {"n_estimators": 2, "max_depth": 3, "learning_rate": 0.3, "random_state": 5}
BOUNDS = {f"{party}.x{k}": (-4.0, 4.0) for party in ("bank", "shop") for k in range(3)}


def same_as_file(name, found):
    """The golden file says so; or becomes so, where that is asked for."""
    path = HERE / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if os.environ.get("HEDGEROW_WRITE_GOLDEN"):
        path.write_text(text)
    assert json.loads(text) == json.loads(path.read_text())


# --- messages ------------------------------------------------------------------------------------------------------


def all_messages():
    """Every message class of every protocol, of the runtime and of nodes."""
    for name in (*names(), *services()):
        find(name)
    for module in pkgutil.iter_modules(node.__path__, "hedgerow.node."):
        importlib.import_module(module.name)
    ours = {name: kind for name, kind in sorted(registered().items()) if kind.__module__.startswith("hedgerow.")}
    ours = {name: kind for name, kind in ours.items() if not kind.__module__.startswith("hedgerow.testing")}
    return {name: kind for name, kind in ours.items() if kind not in later_messages()}


def later_messages():
    """Those of later attempts alone, which have a golden file of their own."""
    return (*MESSAGES, *(kind for name in names() for kind in find(name).later))


MADE = {"bool": True, "int": 7, "float": 0.5, "text": "text", "bytes": b"\x01\x02\x03", "texts": ("a", "bc")}


def example(kind):
    """One of this class, with values that depend on nothing but the types of its fields."""
    numbers = (np.arange(6) % 2).reshape(2, 3)
    return kind(
        *(MADE[words] if words in MADE else numbers.astype(words.split()[-1]) for words in schema(kind).values())
    )


def test_frames():
    """One frame of each message class."""
    found = {}
    for name, kind in all_messages().items():
        frame = encode(example(kind))
        found[name] = {
            "version": kind.VERSION,
            "discloses": f"{kind.discloses.of} ({kind.discloses.protection})",
            "fields": [f"{field}: {words}" for field, words in schema(kind).items()],
            "frame": hashlib.sha256(frame).hexdigest(),
        }
    same_as_file("frames", found)


def test_frames_of_later_attempts():
    """Those of the messages by which parties agree where to go on."""
    found = {kind.NAME: hashlib.sha256(encode(example(kind))).hexdigest() for kind in later_messages()}
    same_as_file("frames_of_later_attempts", found)


# --- runs ----------------------------------------------------------------------------------------------------------


def rows():
    """Three owners."""
    X, y = _table()
    X[::17, 1] = np.nan
    return Federation.horizontal({name: (X[k::3], y[k::3]) for k, name in enumerate(("ada", "ben", "cleo"))})


def columns():
    """A bank with labels, and a shop."""
    X, y = _table()
    return Federation.vertical({"bank": X[:, :3], "shop": X[:, 3:]}, labels=("bank", y))


def _table():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N_ROWS, 6)).round(3).clip(-4, 4)
    return X, (X[:, 0] + X[:, 3] * X[:, 4] > 0).astype(int)


def public():
    """What the private protocols need to know beforehand."""
    return Schema.from_public(bounds=BOUNDS, classes=[0, 1])


RUNS = {
    "secure_sum": lambda: rows().fit("horizontal.secure_sum", **TREES),
    "secure_sum_by_an_owner": lambda: rows().fit(
        "horizontal.secure_sum", coordinator="ada", double_masking=False, share_cover=True, **TREES
    ),
    "bucket_rr": lambda: columns().fit("vertical.bucket_rr", epsilon=math.inf, buckets=8, edges="quantile", **TREES),
    "bucket_rr_public": lambda: columns().fit(
        "vertical.bucket_rr", epsilon=math.inf, buckets=8, schema=public(), debias=False, **TREES
    ),
    "noised_gradients": lambda: columns().fit("vertical.noised_gradients", epsilon=math.inf, classes=[0, 1], **TREES),
    "noised_gradients_per_run": lambda: columns().fit(
        "vertical.noised_gradients", epsilon=math.inf, per="run", classes=[0, 1], max_bins=16, **TREES
    ),
    "homomorphic": lambda: columns().fit("vertical.homomorphic", max_bins=8, **TREES),
    "homomorphic_ou": lambda: columns().fit("vertical.homomorphic", scheme="ou", max_bins=8, **TREES),
    "secret_shared": lambda: columns().fit("vertical.secret_shared", max_bins=8, **TREES),
    "mp_fedxgb": lambda: columns().fit(
        "vertical.secret_shared", disclosure="paper", accept_known_leaks=True, max_bins=8, **TREES
    ),
    "mp_fedxgb_first_layer": lambda: columns().fit(
        "vertical.mp_fedxgb", accept_known_leaks=True, first_layer_mask=True, max_bins=8, **TREES
    ),
    "private_histograms": lambda: columns().fit(
        "vertical.private_histograms", epsilon=math.inf, schema=public(), max_bins=8, **TREES
    ),
    "private_histograms_smooth": lambda: columns().fit(
        "vertical.private_histograms", epsilon=math.inf, schema=public(), policy="smooth_then_trees", random_state=5
    ),
    "masked_gradients": lambda: columns().fit(
        "vertical.masked_gradients", sigma1=0.1, sigma2=0.1, C=1.0, accept_known_leaks=True, **TREES
    ),
}
DRAWN = {"masked_gradients", "mp_fedxgb", "mp_fedxgb_first_layer", "private_histograms", "private_histograms_smooth"}
"""Their models depend on noise, or on how shares were rounded."""


@pytest.mark.parametrize("name", RUNS)
def test_runs(name, tmp_path):
    """The job, who sent what to whom and how long it was, and the files of the model."""
    run = RUNS[name]()
    run.save(tmp_path / "run")
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    about["job"].pop("run_id")
    ledgers = tmp_path / "run" / "ledgers"
    found = {
        "job": about["job"],
        "traffic": {party: _passed(ledgers / f"{party}.jsonl", sizes=name not in DRAWN) for party in about["parties"]},
        "files": sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()),
        "statement": sorted(about["statement"]),
    }
    if name not in DRAWN:
        files = sorted((tmp_path / "run").glob("model*/**/*.json")) + sorted((tmp_path / "run").glob("model.json"))
        found["model"] = {str(path.relative_to(tmp_path)): _digest(json.loads(path.read_text())) for path in files}
    same_as_file(f"run_{name}", found)


SIGNED = {"horizontal.mask_key", "horizontal.mask_keys"}
"""They carry signatures and certificates, which are a byte longer now and then."""


def _passed(path, *, sizes):
    """How many messages of each kind and length a party sent to and received from each peer."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    said = [f"{line['direction']} {line['peer']}: {line['message']}" for line in lines]
    if not sizes:
        return sorted(set(said))
    lengths = ["signed" if line["message"] in SIGNED else line["n_bytes"] for line in lines]
    return dict(Counter(f"{words} {length}" for words, length in zip(said, lengths, strict=True)))


def _digest(model):
    """Of the JSON with its keys in their order."""
    return hashlib.sha256(json.dumps(_rounded(model)).encode()).hexdigest()


def _rounded(value):
    """Floats to six digits: another machine's exponential function may differ in the last bit."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items() if name not in ("run_id", "seconds")}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# --- names ---------------------------------------------------------------------------------------------------------


def test_public_names():
    """What can be imported from the front door, parameters of estimators, options of protocols, commands."""
    estimators = [name for name in hedgerow.__all__ if name.endswith(("Classifier", "Regressor"))]
    same_as_file(
        "names",
        {
            "hedgerow": sorted(hedgerow.__all__),
            "estimators": {name: sorted(getattr(hedgerow, name)().get_params()) for name in estimators},
            "public members": {name: _members(getattr(hedgerow, name)) for name in hedgerow.__all__},
            "messages": {
                name: sorted(f"{kind.NAME} {kind.VERSION}" for kind in find(name).messages)
                for name in (*names(), *services())
            },
            "options": {name: sorted(find(name).options) for name in (*names(), *services())},
        },
    )


MODULES = r"hedgerow(\.[a-z_]+)*\."
"""Where a class is defined, which is nobody's business."""


def _members(thing):
    if not inspect.isclass(thing):
        return []
    return sorted(
        f"{name}{re.sub(MODULES, '', str(inspect.signature(member)))}" if inspect.isfunction(member) else name
        for name, member in inspect.getmembers(thing)
        if not name.startswith("_")
    )
