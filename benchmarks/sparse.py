"""Sparse tables: seconds and largest memory of a training on a matrix as text gives it, plain and private.

    python benchmarks/sparse.py plain                          72,309 x 20,958, 0.25% of it filled
    python benchmarks/sparse.py dpboost
    python benchmarks/sparse.py horizontal --owners 3
    python benchmarks/sparse.py plain --rows 5000 --columns 2000
    python benchmarks/sparse.py bucket_rr --dense --rows 100000 --columns 5000     a wide table of numbers instead

Rows are made up in the shape of the public dataset real-sim: few columns are in most rows and most are in few, values
are positive, and rows have length 1. One training per process, so that the largest memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np
import scipy.sparse as sp

import hedgerow


def made_up(n_rows: int, n_columns: int, filled: float, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of words by a power law, and labels that some of the words decide."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, n_columns + 1) ** 0.9
    n_entries = int(1.12 * filled * n_rows * n_columns)  # some are the same word twice
    columns = rng.choice(n_columns, n_entries, p=shares / shares.sum())
    rows = rng.integers(0, n_rows, n_entries)
    matrix = sp.csr_matrix((rng.lognormal(size=n_entries), (rows, columns)), (n_rows, n_columns))
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1)).A1
    matrix = sp.csr_matrix(sp.diags(1.0 / np.maximum(lengths, 1e-9)) @ matrix)
    weights = rng.normal(size=n_columns) * (rng.random(n_columns) < 0.1)
    scores = matrix @ weights
    return matrix, (scores + 0.1 * rng.normal(size=n_rows) > np.median(scores)).astype(int)


def wide(n_rows: int, n_columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A wide table of float32 numbers."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_columns), np.float32)
    return X, (X[:, :20].sum(axis=1) + rng.normal(size=n_rows) > 0).astype(int)


def peak() -> float:
    """The largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trained(what: str, X: sp.csr_matrix, y: np.ndarray, options: argparse.Namespace) -> None:
    """One training."""
    trees = {"max_iter": options.trees, "max_depth": options.depth}
    if what == "plain":
        model = hedgerow.BoostedTreesClassifier(**trees).fit(X, y)
        print(f"accuracy on the training rows {np.mean(model.predict(X) == y):.3f}")
    elif what == "dpboost":
        names = [f"x{j}" for j in range(X.shape[1])]
        schema = hedgerow.Schema.from_public(bounds=dict.fromkeys(names, (0.0, 1.0)), classes=[0, 1])
        hedgerow.DPBoostClassifier(epsilon=1.0, schema=schema, **trees).fit(X, y)
    elif what == "bucket_rr":
        half = X.shape[1] // 2
        parties = {"bank": X[:, :half], "shop": X[:, half:]}
        how = {"epsilon": 8.0, "edges": "quantile", "buckets": 16, **trees}
        hedgerow.Federation.vertical(parties, labels=("bank", y)).fit("vertical.bucket_rr", **how)
    else:
        parts = np.array_split(np.arange(X.shape[0]), options.owners)
        owners = {f"owner{k}": (X[rows], y[rows]) for k, rows in enumerate(parts)}
        hedgerow.Federation.horizontal(owners).fit("horizontal.secure_sum", max_bins=32, **trees)


def main() -> None:
    """Measure one training and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plain", "dpboost", "horizontal", "bucket_rr"])
    for name, default in (("rows", 72_309), ("columns", 20_958), ("trees", 10), ("depth", 6), ("owners", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--filled", type=float, default=0.0025)
    parser.add_argument("--dense", action="store_true")
    options = parser.parse_args()
    size = (options.rows, options.columns)
    X, y = wide(*size) if options.dense else made_up(*size, options.filled)
    before = peak()
    began = time.perf_counter()
    trained(options.what, X, y, options)
    measured = {"seconds": round(time.perf_counter() - began, 1), "peak_gib": round(peak(), 2)}
    print(json.dumps({**vars(options), "entries": int(X.size), "peak_before_gib": round(before, 2), **measured}))


if __name__ == "__main__":
    main()
