"""What was to be reached, and whether it was: in the order of the file, and in the mean of random splits."""

from __future__ import annotations

from pathlib import Path

from experiments.central_dp.show import Summary, table
from experiments.federboost.cells import Cell, Result
from experiments.federboost.tables.common import DATASETS, Results, aucs, gain, mean, shown

AT_LEAST = {
    ("give_me_some_credit", None): 0.8585,
    ("give_me_some_credit", 4.0): 0.8570,
    ("default_credit_card", None): 0.7765,
    ("default_credit_card", 4.0): 0.7727,
}
"""The paper's own figures for vertical training."""
WITHIN = 0.002
SMALL_EPSILONS = (1.0, 2.0)
ENOUGH = 3
WORDS = {"file": "order of the file", "random": "random splits"}


def cells(*, quick: bool) -> list[Cell]:
    """None of its own: it is read off Figure 5."""
    del quick
    return []


def report(results: Results, folder: Path, link: str) -> str:
    """One line per bar and kind of split."""
    del folder, link
    return table(["bar", "split", "measured", "XGBoost, pooled", "verdict"], lines(results["figure5"]))


def lines(found: list[Result]) -> list[list[str]]:
    """All bars for which there are results."""
    out = []
    for (dataset, epsilon), bar in AT_LEAST.items():
        for split, words in WORDS.items():
            value = mean(aucs(found, dataset=dataset, epsilon=epsilon, split=split))
            pooled = mean(aucs(found, dataset=dataset, method="XGBoost, pooled", split=split))
            if value is not None:
                noise = "no noise" if epsilon is None else f"epsilon {epsilon:g}, debiased"
                what, met = f"{dataset}, {noise}: at least {bar:.4f}", _verdict(met=value.mean >= bar)
                out.append([what, words, shown(value), shown(pooled), met])
    for split, words in WORDS.items():
        joint = aucs(found, dataset="susy_30k", split=split)
        difference = gain(joint, aucs(found, dataset="susy_30k", method="engine, pooled", split=split))
        pooled = mean(aucs(found, dataset="susy_30k", method="XGBoost, pooled", split=split))
        if difference is not None:
            bar = f"susy_30k, no noise: within {WITHIN:g} of the pooled engine"
            met = _verdict(met=abs(difference.mean) <= WITHIN)
            met += " as worded: better by more than that" if difference.mean > WITHIN else ""
            out.append([bar, words, shown(difference, signed=True), shown(pooled), met])
    for split, words in WORDS.items():
        for epsilon in SMALL_EPSILONS:
            gains = {dataset: _debiasing(found, dataset, epsilon, split) for dataset in DATASETS}
            there = {dataset: value for dataset, value in gains.items() if value is not None}
            n_better = sum(value.mean > 0 for value in there.values())
            bar = f"debiasing better than none at epsilon {epsilon:g} on at least {ENOUGH} of {len(DATASETS)}"
            measured = f"{n_better} of {len(there)}: " + ", ".join(shown(v, signed=True) for v in there.values())
            if len(there) == len(DATASETS):
                out.append([bar, words, measured, "", _verdict(met=n_better >= ENOUGH)])
    return out


def _debiasing(found: list[Result], dataset: str, epsilon: float, split: str) -> Summary | None:
    wanted = {"dataset": dataset, "epsilon": epsilon, "split": split}
    return gain(aucs(found, **wanted), aucs(found, **wanted, debias=False))


def _verdict(*, met: bool) -> str:
    return "met" if met else "not met"
