"""Scores of a table by nodes that talk over the network: what comes out, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hedgerow.cli import app
from hedgerow.errors import BudgetExceeded, HedgerowError, InvalidParameter, JobError, PeerRefused, ProtocolError
from hedgerow.node.audit import verify
from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.scoring import MESSAGES, ScoringAnswered, ScoringNamed, columns_of, score
from hedgerow.node.trained import Trained
from hedgerow.transport.ranges import check
from twins.trained_homes import ID, NOISED, N, trained_homes
from twins.unstated import unstated

WAIT = 60.0
MP_FEDXGB = {"accept_known_leaks": True}


def played(homes, rows, **how):
    """What each party has in the end, or the error that ended its part."""

    def part(name):
        home = Home(homes[name].path)  # party.toml as it is now
        trained = Trained.find(home, next(home.runs.iterdir()).name[:8])
        try:
            trained.check("batch")
            own = None if trained.part is None else trained.rows(rows.get(name, "customers"))
            with Node(home, home.identity(), trained.proposal.peers_of(name)) as node:
                return score(node, trained, own, wait=WAIT, **(how if trained.is_asking else {})), own
        except HedgerowError as problem:
            return problem, None

    with ThreadPoolExecutor(len(homes)) as pool:
        return dict(zip(homes, pool.map(part, homes), strict=True))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A bank and a shop with a model without noise."""
    return trained_homes(tmp_path_factory.mktemp("exact"))


@pytest.mark.parametrize(
    ("protocol", "options", "dealer"),
    [
        ("vertical.bucket_rr", None, False),
        ("vertical.noised_gradients", NOISED, False),
        ("vertical.homomorphic", {}, False),
        ("vertical.mp_fedxgb", MP_FEDXGB, True),
    ],
)
def test_scores_are_those_of_a_federation(tmp_path, protocol, options, dealer):
    """Bit for bit, by ids, in the label holder's order, whoever listens and with a dealer where leaves are shared."""
    how = {} if options is None else {"options": options}
    house = trained_homes(tmp_path, protocol, dealer=dealer, scoring="batch", **how)
    found = played(house.homes, {})
    scored, own = found["bank"]
    assert np.array_equal(scored.predictions, house.expected(range(N)))
    columns = columns_of(scored, own, ["age"])
    assert [str(each) for each in columns[ID]] == house.ids
    assert list(columns) == [ID, "age", "prediction", "probability_no", "probability_yes"]
    assert all(other.raw is None for name, (other, _) in found.items() if name != "bank")
    for name, home in house.homes.items():
        folder = next((home.runs / house.run_id / "scorings").iterdir())
        ledgers = {path.stem for path in folder.glob("*.jsonl")}
        assert ledgers == ({"naming", "ledger"} if name == "notary" else {"naming", "matching", "ledger"})
        report = verify(home.audit, home.certificate.pem)
        assert report.ok
        assert '"kind":"scored"' in home.audit.read_text()


def test_several_classes_have_a_probability_each(tmp_path):
    """As a federation has them, bit for bit; the class that is likeliest is the prediction."""
    house = trained_homes(tmp_path, "vertical.homomorphic", {}, several=True, scoring="batch")
    scored, own = played(house.homes, {})["bank"]
    assert np.array_equal(scored.predictions, house.expected(range(N)))
    columns = columns_of(scored, own, [])
    assert list(columns) == [ID, "prediction", "probability_later", "probability_no", "probability_yes"]
    assert {"later", "no", "yes"} >= set(columns["prediction"])


def test_rows_that_not_all_have_are_left_out(house, tmp_path):
    """Each party brings a file of its own; what is common is scored, in the order of the label holder."""
    bank, shop = tmp_path / "bank.parquet", tmp_path / "shop.csv"
    mine, theirs = list(range(40, 10, -1)), list(range(20, 60))
    with_ids = {name: table.append_column(ID, pa.array(house.ids)) for name, table in house.tables.items()}
    pq.write_table(with_ids["bank"].take(pa.array(mine)), bank)
    pcsv.write_csv(with_ids["shop"].take(pa.array(theirs)), shop)
    scored, own = played(house.homes, {"bank": str(bank), "shop": str(shop)})["bank"]
    common = [k for k in mine if k in theirs]
    assert np.array_equal(scored.predictions, house.expected(common))
    assert [str(each) for each in columns_of(scored, own, [])[ID]] == [house.ids[k] for k in common]


def test_without_matching_rows_are_taken_as_they_stand(tmp_path):
    """Where the training took rows in their order, so does a scoring, and no id is needed."""
    house = trained_homes(tmp_path, matching=False, scoring="batch")
    scored, own = played(house.homes, {})["bank"]
    assert np.array_equal(scored.predictions, house.expected(range(N)))
    assert list(columns_of(scored, own, [])) == ["prediction", "probability_no", "probability_yes"]


def test_a_model_that_nobody_agreed_to_score_with_is_not(tmp_path):
    """The proposal has the first word, and says so before anybody is asked."""
    house = trained_homes(tmp_path, scoring="no")
    for problem, _ in played(house.homes, {}).values():
        assert isinstance(problem, JobError)
        assert "says scoring = 'no', not 'batch'" in str(problem)


def test_rows_per_day_hold_over_scorings(tmp_path):
    """The second table is too much: its feature holder refuses, and the label holder reads the reason in words."""
    house = trained_homes(tmp_path, policy={"shop": f"rows_per_day = {N + 10}"})
    assert played(house.homes, {})["bank"][0].n_rows == N
    found = played(house.homes, {})
    assert isinstance(found["bank"][0], PeerRefused)
    assert "its policy does not let this many rows be scored in one day" in str(found["bank"][0])
    assert f"rows_per_day is {N + 10}" in str(found["shop"][0])


def test_randomised_answers_are_charged_as_their_event_says(tmp_path):
    """With a budget, answers in the clear are refused; randomised ones cost epsilon for each column asked about."""
    budget = "[policy.budget]\nepsilon = 5.0"
    house = trained_homes(tmp_path, policy={"shop": budget})
    clear = played(house.homes, {})
    assert "the run would cost its rows more" in str(clear["bank"][0])
    assert isinstance(clear["shop"][0], JobError)
    scored, _ = played(house.homes, {}, predict_epsilon=1.0)["bank"]
    assert scored.n_rows == N
    asked = len(np.unique(house.model.parts["shop"].questions.column))
    again = played(house.homes, {}, predict_epsilon=5.1 / asked)
    assert "privacy budget" in str(again["bank"][0])
    assert not isinstance(again["shop"][0], BudgetExceeded)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ScoringNamed("0" * 15, 1, math.inf, 1), "scoring"),
        (ScoringNamed("0" * 16, 0, math.inf, 1), "n_rows"),
        (ScoringNamed("0" * 16, 1, -1.0, 1), "predict_epsilon"),
        (ScoringNamed("0" * 16, 1, math.nan, 1), "predict_epsilon"),
        (ScoringNamed("0" * 16, 1, 1.0, 0), "batch_rows"),
        (ScoringAnswered(-1), "code"),
        (ScoringAnswered(1000), "code"),
    ],
)
def test_what_a_hostile_peer_says_is_checked(message, field):
    """Every field of the conversation has a range, and what is outside of it is seen by nobody."""
    assert all(unstated(kind) == [] for kind in MESSAGES)
    with pytest.raises(ProtocolError, match=f"with {field} "):
        check("bank", message, {})


def test_a_name_that_is_a_path_is_refused(house, monkeypatch):
    """The name of a scoring becomes the name of a folder, so it is hexadecimal digits and nothing else."""
    monkeypatch.setattr("hedgerow.node.scoring.secrets.token_hex", lambda _: "../../etc/passwd")
    found = played(house.homes, {})
    assert isinstance(found["shop"][0], ProtocolError)
    assert "something else than 16 hexadecimal digits" in str(found["shop"][0])


def test_what_is_kept_tells_what_was_disclosed(house):
    """The files of a scoring name its job, its statement and its traffic, for the party's eyes alone."""
    played(house.homes, {})
    for home in house.homes.values():
        folder = max((home.runs / house.run_id / "scorings").iterdir(), key=lambda path: path.stat().st_mtime)
        about = json.loads((folder / "scoring.json").read_text())
        assert about["job"]["model_run_id"] == house.run_id
        assert about["traffic"]["ledger"]["total"]["bytes_sent"] > 0
        assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}


def test_the_command_scores_and_writes_a_file(house, tmp_path):
    """The label holder's has ids, what it keeps, predictions and probabilities."""

    def command(name, *options):
        line = [sys.executable, "-m", "hedgerow.cli", "predict", house.run_id[:6], "customers", *options]
        return subprocess.Popen(line, cwd=house.homes[name].path, stderr=subprocess.PIPE, stdout=subprocess.PIPE)

    out = tmp_path / "scores.parquet"
    shop, bank = command("shop"), command("bank", "--out", str(out), "--keep", "age")
    for process in (bank, shop):
        assert b"The ledger is in" in process.communicate(timeout=5 * WAIT)[1]
        assert process.returncode == 0
    found = pq.read_table(out)
    assert found.column_names == [ID, "age", "prediction", "probability_no", "probability_yes"]
    assert found.column(ID).to_pylist() == house.ids
    assert np.array_equal(found.column("probability_yes").to_numpy(), house.expected(range(N))[:, 1])


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("bank", ["customers"], "bank gets the scores: say where to write them, --out FILE"),
        ("bank", ["nowhere", "--out", "x.csv"], "'nowhere' is no file or folder, and no dataset of"),
        ("bank", ["customers", "--out", "x.csv", "--keep", "hight"], "there is no column 'hight'"),
        ("bank", ["customers", "--out", "x.txt"], "the file must end in .parquet or .csv"),
        ("shop", ["customers", "--out", "x.csv"], "shop only answers"),
        ("shop", ["customers", "--predict-epsilon", "1"], "shop only answers"),
        ("shop", [], "shop needs DATA, its own rows to score"),
        ("shop", ["customers", "--dry-run"], f"{N} rows can be scored with"),
    ],
)
def test_the_command_says_what_each_party_has_to_give(house, name, options, sentence):
    """Before anybody else is asked."""
    line = ["predict", house.run_id[:6], *options, "--home", str(house.homes[name].path)]
    assert sentence in " ".join(CliRunner().invoke(app, line).stderr.split())


def test_a_run_that_is_not_there_is_told_with_those_that_are(house):
    """A beginning that fits none gets the list."""
    with pytest.raises(InvalidParameter, match=f"no run begins with 'zz' in .*; there are {house.run_id[:12]}"):
        Trained.find(house.homes["bank"], "zz")
