"""`hedgerow attack`: attacks on recorded runs, from transcripts in a folder and tables in files."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hedgerow.attacks import registry
from hedgerow.attacks.bucket_rr.bucket_bayes import Guessed, outcome_of
from hedgerow.attacks.masked_gradients import label_network
from hedgerow.attacks.results import Interval, ceiling, share
from hedgerow.cli import attack as cli_attack
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.federation.federation import Federation
from hedgerow.federation.run import Run
from hedgerow.protocols.vertical.noised_gradients.noise import LabelNoise

N_ROWS = 400
TREES = {"n_estimators": 2, "max_depth": 2, "max_bins": 8}


def people(n_rows: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Four columns that go together, and a label that follows from them."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n_rows, 1))
    values = 0.9 * factor + math.sqrt(1 - 0.81) * rng.normal(size=(n_rows, 4))
    table = pd.DataFrame(values, columns=["income", "age", "basket", "visits"])
    table["repaid"] = np.where(values.sum(axis=1) + rng.normal(size=n_rows) > 1.0, "yes", "no")
    return table


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bank's and the shop's tables, and those of three owners of rows."""
    folder = tmp_path_factory.mktemp("files")
    table = people()
    table[["income", "repaid"]].to_csv(folder / "bank.csv", index=False)
    table[["age", "basket", "visits"]].to_parquet(folder / "shop.parquet")
    for k, owner in enumerate(("ash", "elm", "oak")):
        people(120, seed=k + 1).to_csv(folder / f"{owner}.csv", index=False)
    return folder


def saved(folder: Path, protocol: str, **options: Any) -> Path:
    """A recorded run of bank and shop, with the same noise every time."""
    table = people()
    bank, shop = table[["income"]], table[["age", "basket", "visits"]]
    federation = Federation.vertical({"bank": bank, "shop": shop}, labels=("bank", table["repaid"]))
    with pytest.MonkeyPatch.context() as patch:
        seeds = itertools.count()
        drawn = lambda: SecureRandom.from_seed(next(seeds).to_bytes(32, "big"))  # noqa: E731 - said once
        patch.setattr("hedgerow.runtime.party.SecureRandom", drawn)
        federation.fit(protocol, **(TREES | {"record": True} | options)).save(folder)
    return folder


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vertical.noised_gradients, epsilon 4."""
    return saved(tmp_path_factory.mktemp("noised"), "vertical.noised_gradients", epsilon=4.0, delta=1e-5, per="tree")


# --- labels behind noise ---------------------------------------------------------------------------------------------


def test_labels_behind_noise_stay_below_the_ceiling(noised: Path, files: Path, run: Any) -> None:
    """With the shop's own table it follows all scores; the AUC is about the ceiling of the claim, and no more."""
    truth = ("--labels", files / "bank.csv", "--column", "repaid", "--table", f"shop={files / 'shop.parquet'}")
    (outcome,) = run("attack", noised, *truth, "--json").json["outcomes"]
    mu = Run.load(noised).statement().facts["privacy"]["mu"]
    assert outcome["ceiling"] == pytest.approx(ceiling(mu))
    assert outcome["value"]["low"] < outcome["ceiling"] < outcome["value"]["high"]
    assert (outcome["attack"], outcome["attacker"], outcome["measure"]) == ("noised_labels", "shop", "AUC")
    assert outcome["verdict"] == "holds"
    shown = run("attack", noised, *truth).stdout
    assert f"AUC {outcome['value']['estimate']:.3f}  0.500   {outcome['ceiling']:.3f}    holds" in shown
    low, high = outcome["value"]["low"], outcome["value"]["high"]
    assert f"    99.99% interval {low:.3f} to {high:.3f}: {outcome['reason'].split(',')[0]}" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    weaker = run("attack", noised, *truth[:4], "--json").json["outcomes"][0]
    assert weaker["verdict"] == "holds"
    assert "with --table shop=FILE it follows them" in weaker["found"]


def test_noise_that_is_too_weak_is_called_broken(
    tmp_path: Path, files: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the noise that the statement counts with: BROKEN, and an exit code of its own."""

    def weak(self: LabelNoise, exact: Any, random: Any) -> Any:
        released = honest(self, exact, random)
        return released._replace(values=exact + (released.values - exact) // 10)

    honest = LabelNoise.release
    monkeypatch.setattr(LabelNoise, "release", weak)
    folder = saved(tmp_path, "vertical.noised_gradients", epsilon=2.0, delta=1e-5)
    told = run("attack", folder, "--labels", files / "bank.csv", "--column", "repaid", "--json", code=7).json
    assert told["broken"] is True
    assert told["outcomes"][0]["verdict"] == "BROKEN"
    assert told["outcomes"][0]["value"]["estimate"] > 0.99


def test_without_truth_only_claims_are_shown(noised: Path, run: Any) -> None:
    """What the attack says it found, without a number."""
    told = run("attack", noised, "--json").json
    (outcome,) = told["outcomes"]
    assert outcome["verdict"] == "not scored"
    assert outcome["value"] is outcome["ceiling"] is None
    assert outcome["found"].startswith("how much each of 400 rows looks like class 1, from 2 messages")
    shown = run("attack", noised).stdout
    assert "not scored: the truth was not given" in shown


@pytest.mark.parametrize(
    ("options", "stamp"),
    [
        ({"epsilon": math.inf}, "NOT PRIVATE"),
        ({"epsilon": 8.0, "delta": 1e-5, "per": "message"}, "PER MESSAGE"),
    ],
)
def test_stamped_runs_have_no_ceiling(tmp_path: Path, files: Path, run: Any, options: Any, stamp: str) -> None:
    """Nothing is promised, so nothing can be broken: labels are plain, as stated."""
    folder = saved(tmp_path, "vertical.noised_gradients", **options)
    told = run("attack", folder, "--labels", files / "bank.csv", "--column", "repaid", "--json").json
    (outcome,) = told["outcomes"]
    assert told["stamp"] == stamp
    assert (outcome["verdict"], outcome["ceiling"]) == ("as stated", None)
    assert outcome["value"]["estimate"] > (0.95 if stamp == "NOT PRIVATE" else 0.8)


# --- sums under encryption -------------------------------------------------------------------------------------------


def test_what_encryption_does_not_hide_is_shown_as_stated(tmp_path: Path, files: Path, run: Any) -> None:
    """Labels from rows of nodes by the shop, numbers and rows of bins by the bank; nothing was promised of either."""
    folder = saved(tmp_path, "vertical.homomorphic", max_bins=8)
    truth = ("--labels", files / "bank.csv", "--column", "repaid", "--table", f"shop={files / 'shop.parquet'}")
    told = run("attack", folder, *truth, "--table", f"bank={files / 'bank.csv'}", "--json").json
    found = [(each["attack"], each["attacker"], each["measure"], each["verdict"]) for each in told["outcomes"]]
    stated = "as stated"
    assert found == [("label_clusters", "shop", "AUC", stated), *[("bin_sums", "bank", "share", stated)] * 2]
    assert told["outcomes"][0]["value"]["low"] > 0.6
    assert told["outcomes"][1]["value"]["estimate"] == 1.0
    assert told["broken"] is False
    shown = run("attack", folder, *truth).stdout
    assert "everybody's --table are needed" in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines()) <= 80


# --- buckets ---------------------------------------------------------------------------------------------------------


def test_buckets_are_guessed_within_what_is_promised(tmp_path: Path, files: Path, run: Any) -> None:
    """One answer stays below the ceiling of an element; all of a row know more, below that of a record."""
    folder = saved(tmp_path, "vertical.bucket_rr", epsilon=2.0, buckets=8, edges="quantile")
    told = run("attack", folder, "--table", f"shop={files / 'shop.parquet'}", "--json").json
    own, together = told["outcomes"]
    for outcome in (own, together):
        assert (outcome["attacker"], outcome["target"], outcome["verdict"]) == ("bank", "columns of shop", "holds")
        assert outcome["chance"] < outcome["value"]["estimate"]
        assert outcome["value"]["low"] <= outcome["ceiling"] <= 1.0
    assert own["ceiling"] < together["ceiling"]
    assert together["value"]["estimate"] > own["value"]["estimate"] - 0.02
    claims = run("attack", folder, "--json").json["outcomes"]
    assert [outcome["verdict"] for outcome in claims] == ["not scored"] * 2
    assert "a guess for each of 1,200 values" in claims[0]["found"]


# --- masks -----------------------------------------------------------------------------------------------------------


def test_masked_gradients_are_unmasked_by_who_made_the_masks(
    tmp_path: Path, files: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the shop's own transcript: all labels. The noise shows the bank which rows go left."""
    monkeypatch.setattr(label_network, "N_MADE_UP", 300)
    noise = {"sigma1": 3.0, "sigma2": 0.3, "C": 4.0, "accept_known_leaks": True}
    folder = saved(tmp_path, "vertical.masked_gradients", n_estimators=4, **noise)
    truth = ("--labels", files / "bank.csv", "--column", "repaid", "--table", f"shop={files / 'shop.parquet'}")
    one, two, network, sets = run("attack", folder, *truth, "--json").json["outcomes"]
    assert {outcome["verdict"] for outcome in (one, two, network, sets)} == {"as stated"}
    assert one["value"]["estimate"] > 0.95
    assert two["value"]["estimate"] == 1.0
    assert network["attack"] == "label_network"
    assert (sets["attacker"], sets["target"]) == ("bank", "columns of shop")
    assert sets["value"]["low"] > 0.5
    claims = run("attack", folder, "--json").json["outcomes"]
    assert [outcome["verdict"] for outcome in claims] == ["not scored", "not scored", "not run", "not scored"]


# --- shares ----------------------------------------------------------------------------------------------------------


def test_what_mp_fedxgb_opens_gives_labels_columns_and_leaves_away(tmp_path: Path, files: Path, run: Any) -> None:
    """From P2's and P1's transcripts and their own tables: the leaks that the run was stamped for."""
    options = {"n_estimators": 1, "accept_known_leaks": True}
    folder = saved(tmp_path, "vertical.mp_fedxgb", **options)
    tables = ("--table", f"shop={files / 'shop.parquet'}", "--table", f"bank={files / 'bank.csv'}")
    told = run("attack", folder, *tables, "--column", "repaid", "--json").json
    labels, columns, rows, leaves, *masks = told["outcomes"]
    assert told["stamp"].startswith("accepted known leaks")
    assert {outcome["verdict"] for outcome in told["outcomes"][:4]} == {"as stated"}
    assert [(each["attack"], each["attacker"], each["verdict"]) for each in masks] == [
        ("mask_reuse", "bank", "holds"),
        ("mask_reuse", "shop", "holds"),
    ]
    assert (labels["attack"], labels["attacker"]) == ("argmax_opened", "shop")
    assert labels["value"]["estimate"] > 0.7
    assert (columns["attack"], columns["attacker"]) == ("denominators_opened", "bank")
    assert columns["value"]["estimate"] > 0.8
    assert (rows["attacker"], leaves["attacker"]) == ("bank", "shop")
    assert leaves["value"]["estimate"] == 1.0
    claims = run("attack", folder, "--json").json["outcomes"]
    assert [outcome["verdict"] for outcome in claims[:4]] == ["not scored", "not scored", "as stated", "as stated"]
    assert "sums are clear" in claims[1]["found"]


def test_secret_shared_leaves_nothing_to_work_on(tmp_path: Path, run: Any) -> None:
    """No party has anything that was opened."""
    folder = saved(tmp_path, "vertical.secret_shared", n_estimators=1)
    outcomes = run("attack", folder, "--json").json["outcomes"]
    holds = [("bank", "holds"), ("shop", "holds")]
    assert [(outcome["attacker"], outcome["verdict"]) for outcome in outcomes] == holds * 2
    assert outcomes[0]["found"] == "Nothing was opened: there is nothing to work on."
    assert outcomes[2]["attack"] == "mask_reuse"
    assert re.match(r"nothing: no two of \d+ rounds had the same masks", outcomes[2]["found"])


# --- rows ------------------------------------------------------------------------------------------------------------


def owners(folder: Path, files: Path, **options: Any) -> Path:
    """A recorded run of three owners of rows."""
    tables = {name: pd.read_csv(files / f"{name}.csv") for name in ("ash", "elm", "oak")}
    data = {name: (table.drop(columns="repaid"), table["repaid"]) for name, table in tables.items()}
    trees = {"n_estimators": 2, "max_depth": 3}
    Federation.horizontal(data).fit("horizontal.secure_sum", **trees, record=True, **options).save(folder)
    return folder


def test_the_coordinator_finds_single_records(tmp_path: Path, files: Path, run: Any) -> None:
    """In sums over all owners, as the statement says; it has their labels right."""
    folder = owners(tmp_path, files)
    tables = [part for name in ("ash", "elm", "oak") for part in ("--table", f"{name}={files / name}.csv")]
    (outcome,) = run("attack", folder, *tables, "--column", "repaid", "--json").json["outcomes"]
    assert (outcome["attacker"], outcome["verdict"]) == ("coordinator", "as stated")
    assert outcome["value"]["estimate"] > 0.95
    (claim,) = run("attack", folder, "--json").json["outcomes"]
    assert claim["verdict"] == "not scored"
    assert outcome["found"].startswith(claim["found"])


# --- what is printed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beyond", [registry.BROKEN, registry.INCONCLUSIVE])
@pytest.mark.parametrize("low", [0.71, 0.7430, 0.74339, 0.74341, 0.7438, 0.76])
def test_the_verdict_follows_from_the_interval_as_printed(low: float, beyond: str) -> None:
    """The lower end that is printed is above the ceiling that is printed just where the verdict says so."""
    value = Interval(max(low + 0.001, 0.749), low, 0.79)
    outcome = registry.Aim("noised_labels", "shop", "labels of bank").scored(
        "labels", "AUC", value, chance=0.5, ceiling=0.7434, beyond=beyond
    )
    told = outcome.to_dict()
    assert told["value"] == {**value._asdict(), "confidence": registry.CONFIDENCE}
    row, words = (
        line for line in cli_attack._lines({"protocol": "p", "stamp": None, "outcomes": [told]}) if "0.7" in line
    )
    printed = re.search(r"99\.99% interval (\S+) to \S+: (.*)", words)
    assert printed
    is_above = float(printed[1]) > float(row.split()[5])
    assert row.endswith(f" {beyond if is_above else 'holds'}")
    assert told["verdict"] == (beyond if is_above else "holds") == (beyond if low > 0.7434 else "holds")
    assert printed[2].startswith("all of it is above the ceiling" if is_above else "it reaches below the ceiling")


def test_one_column_that_is_guessed_too_well_is_shown_by_itself() -> None:
    """A mean over columns would hide it: what is printed is the interval that the verdict is about."""

    def guessed(accuracy: float) -> Guessed:
        return Guessed(share(round(1000 * accuracy), 1000, registry.CONFIDENCE), chance=0.2, ceiling=0.7)

    scored = [guessed(0.6), guessed(0.6), guessed(0.8)]
    outcome = outcome_of(registry.Aim("bucket_bayes", "bank", "x"), "buckets", "an element", scored, is_noisy=True)
    assert outcome.verdict == registry.BROKEN
    assert outcome.value.low > outcome.ceiling
    assert "column 3 of 3 alone" in outcome.found
    fine = outcome_of(registry.Aim("bucket_bayes", "bank", "x"), "buckets", "an element", scored[:2], is_noisy=True)
    assert (fine.verdict, fine.value.estimate) == (registry.HOLDS, pytest.approx(0.6))


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_run_without_transcripts_is_told_so(tmp_path: Path, run: Any) -> None:
    """One line, exit code 3, and what to do."""
    folder = saved(tmp_path, "vertical.noised_gradients", epsilon=4.0, delta=1e-5, record=False)
    told = run("attack", folder, code=3)
    assert told.stderr == (
        "hedgerow: this run was not recorded, so there is nothing to attack: fit(..., record=True)\n"
    )
    assert run("attack", tmp_path / "nowhere", code=3).stderr.endswith("run.save(folder) writes one\n")


def test_a_damaged_transcript_is_refused(noised: Path, tmp_path: Path, run: Any) -> None:
    """A file that was cut, and one with a changed byte: exit code 3, with the file's name."""
    shop = noised / "transcripts" / "shop.frames"
    data = shop.read_bytes()
    try:
        shop.write_bytes(data[:-20])
        assert "shop.frames: the transcript breaks off in" in run("attack", noised, code=3).stderr
        shop.write_bytes(data[:500] + bytes([data[500] ^ 255]) + data[501:])
        assert "of the transcript is damaged" in run("attack", noised, code=3).stderr
    finally:
        shop.write_bytes(data)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--labels", "bank.csv"], 2, "--labels needs --column"),
        (["--labels", "bank.csv", "--column", "repayed"], 3, "no column 'repayed', which is the label; did you mean"),
        (["--column", "repaid"], 2, "neither --labels nor --table bank=FILE is given"),
        (["--table", "shop.parquet"], 2, "--table takes PARTY=FILE, got 'shop.parquet'"),
        (["--table", "club=shop.parquet"], 2, "a table of 'club', but the run's parties are bank, shop"),
        (["--labels", "ash.csv", "--column", "repaid"], 3, "bank: its labels has 120 rows, but the run was trained"),
        (["--labels", "bank.csv", "--column", "income"], 3, "bank: labels"),
        (["--table", "shop=nothing.csv"], 3, "there is no such file"),
        (
            ["--attack", "bucket_bayes"],
            2,
            "'bucket_bayes' is not an attack on vertical.noised_gradients; there are noised",
        ),
    ],
)
def test_mistakes_are_named(
    noised: Path, files: Path, run: Any, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, said: str
) -> None:
    """One line that says what is wrong."""
    monkeypatch.chdir(files)
    told = run("attack", noised, *args, code=code)
    assert said in told.stderr
    assert len(told.stderr.splitlines()) == 1


def test_every_attack_names_a_protocol_that_there_is_and_can_be_loaded() -> None:
    """The registry has no dead entries."""
    known = set(registry.names())
    for homes in registry.ATTACKS.values():
        assert set(homes) <= known
        assert all(callable(registry.load(home)) for home in homes.values())
    assert list(registry.applicable("vertical.bucket_rr")) == ["bucket_bayes"]
    assert registry.applicable("vertical.scoring") == {}
