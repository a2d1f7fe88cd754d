"""A rehearsal plays the real protocol on made-up rows, from schemas alone, and says so everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hedgerow import Schema
from hedgerow.cli import telling
from hedgerow.errors import JobError
from hedgerow.ledger import Ledger
from hedgerow.node.job_file import read_job_file
from hedgerow.node.made_up import ID, STAMP, cast_of, make_up, table_of
from hedgerow.node.manifest import after, unannounced
from hedgerow.node.rehearse import rehearse
from twins.homes import make_home, write_job

BANK = Schema.from_public(
    bounds={"age": (18, 99), "balance": (-1e4, 1e5)},
    integers=["age"],
    levels={"branch": ["n", "s"]},
    classes=["no", "yes"],
)
SHOP = Schema.from_public(bounds={"spend": (0, 1e4)}, levels={"kind": [1, 2, 3]}, may_be_missing=["spend"])


def job(folder: Path, protocol: str, more: str = "", parties: str = "", **options: Any) -> Path:
    """job.toml between a bank and a shop, whose schemas are beside it."""
    BANK.save(folder / "bank.json")
    SHOP.save(folder / "shop.json")
    listed = "".join(f"{key} = {str(value).lower()}\n" for key, value in options.items())
    path = folder / "job.toml"
    seats = parties or '[parties.bank]\nschema = "bank.json"\n[parties.shop]\nschema = "shop.json"\n'
    path.write_text(f'protocol = "{protocol}"\n{seats}{more}[options]\nn_estimators = 2\nmax_depth = 2\n{listed}')
    return path


def test_made_up_rows_stay_within_what_is_public() -> None:
    """Every value lies within its bounds, whole where it must be, or is a listed level; gaps are where they may be."""
    rng = np.random.default_rng(0)
    table = table_of(BANK, 500, rng)
    ages = table.column("age").to_numpy()
    assert ages.dtype.kind == "i"
    assert 18 <= ages.min() <= ages.max() <= 99
    assert set(table.column("branch").to_pylist()) == {"n", "s"}
    spend = table_of(SHOP, 500, rng).column("spend")
    assert 0 < spend.null_count < 100
    assert set(table_of(SHOP, 500, rng).column("kind").to_pylist()) == {1, 2, 3}


def test_the_same_seed_makes_up_the_same_rows(tmp_path: Path) -> None:
    """A rehearsal can be repeated, and another seed gives other rows."""
    cast = cast_of(read_job_file(job(tmp_path, "vertical.secret_shared")), {})
    one, same, other = (make_up(cast, 100, seed) for seed in (1, 1, 2))
    assert one.tables["bank"].equals(same.tables["bank"])
    assert not one.tables["bank"].equals(other.tables["bank"])
    assert set(one.labels["bank"]) == {"no", "yes"}


def test_rows_are_matched_where_the_job_matches_them(tmp_path: Path) -> None:
    """With [matching] tables have ids, most of them common, in another order on each side."""
    cast = cast_of(read_job_file(job(tmp_path, "vertical.secret_shared", "[matching]\nminimum = 50\n")), {})
    tables = make_up(cast, 200).tables
    ids = {name: table.column(ID).to_pylist() for name, table in tables.items()}
    assert ids["bank"] != ids["shop"]
    assert len(set(ids["bank"]) & set(ids["shop"])) == 180


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("vertical.noised_gradients", {"epsilon": 4.0, "delta": 1e-6}),
        ("vertical.bucket_rr", {"epsilon": 4.0, "edges": '"quantile"'}),
        ("vertical.homomorphic", {}),
    ],
)
def test_the_manifest_of_a_rehearsal_is_what_its_ledgers_say(
    tmp_path: Path, protocol: str, options: dict[str, Any]
) -> None:
    """Counts and bytes add up to every ledger, matching included, and nothing went that had not been announced."""
    path = job(tmp_path, protocol, "[matching]\nminimum = 50\n", **options)
    found = rehearse(cast_of(read_job_file(path), {}), 200, transport="memory", attack=False)
    books = [found.run.ledgers, found.run.alignment.ledgers] if found.run.alignment else []
    for party in found.run.ledgers:
        lines = [line for each in books if party in each for line in each[party].lines("disclosed")]
        own = [each for each in found.sent if each.sender == party]
        assert sum(each.messages for each in own) == len(lines)
        assert sum(each.bytes for each in own) == sum(line.n_bytes for line in lines)
        for each in own:
            of_kind = [line for line in lines if (line.peer, line.message) == (each.receiver, each.message)]
            assert (len(of_kind), sum(line.n_bytes for line in of_kind)) == (each.messages, each.bytes)
            assert {(line.what, line.protection) for line in of_kind} == {(each.what, each.protection)}
    assert found.to_dict()["unannounced"] == []


def test_what_was_not_announced_is_found() -> None:
    """A message that a role never said it sends shows in the manifest."""
    from hedgerow.ledger import Kind
    from hedgerow.node.manifest import before
    from hedgerow.runtime.protocol import find

    book = Ledger("shop")
    book.write("disclosed", "bank", Kind("vertical.secret_file", 1, "all of it", "in the clear"), 10)
    announced = before([find("vertical.noised_gradients")], {"bank": "label holder", "shop": "feature holder"})
    assert [each.message for each in unannounced(announced, after({"shop": book}))] == ["vertical.secret_file"]


def test_by_processes_with_attacks(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs all parties as processes, tries the attacks, and stamps all that it says."""
    path = job(tmp_path, "vertical.noised_gradients", epsilon=4.0, delta=1e-6)
    told = run("rehearse", path, "--rows", "200", "--json").json
    assert told["stamp"] == STAMP
    assert [outcome["attack"] for outcome in told["attacks"]] == ["noised_labels"]
    assert {outcome["stamp"] for outcome in told["attacks"]} == {STAMP}
    assert told["statement"]["rows"] == STAMP
    assert told["seconds"] > 0
    assert {(each["sender"], each["receiver"]) for each in told["sent"]} == {("bank", "shop"), ("shop", "bank")}
    monkeypatch.setattr(telling, "SHORTEST", 0.0)
    shown = run("rehearse", path, "--rows", "200", "--no-attack")
    assert re.search(r"^vertical\.\w+: \d+ of \d+, ETA ", shown.stderr, flags=re.MULTILINE)
    text = shown.stdout
    assert text.count(STAMP) == 3
    assert "the gradient of every row" in text


def test_rows_that_are_split(tmp_path: Path) -> None:
    """Owners of rows all bring the columns of their schemas, with labels each."""
    seats = "".join(f'[parties.{name}]\nschema = "bank.json"\nrole = "owner"\n' for name in ("anna", "ben", "carla"))
    path = job(tmp_path, "horizontal.secure_sum", parties=seats)
    found = rehearse(cast_of(read_job_file(path), {}), 200, transport="memory", attack=False)
    assert set(found.run.ledgers) == {"anna", "ben", "carla", "coordinator"}
    assert found.sent


def test_the_own_party_is_known_by_its_folder(tmp_path: Path) -> None:
    """Without a schema in party.toml the kinds of its columns are looked up, and a note says what is made up."""
    home = make_home(tmp_path, "bank", label="paid")
    wanted = read_job_file(write_job(home, "vertical.secret_shared", ("bank", "shop")))
    cast = cast_of(wanted, {"shop": SHOP}, home)
    assert cast.schemas["bank"].names == ("bank_0", "bank_1", "bank_2")
    assert cast.label_holder == "bank"
    assert cast.rows == {"bank": 300}
    assert any("has no schema" in note for note in cast.notes)


def test_what_is_missing_is_told(tmp_path: Path, run: Any) -> None:
    """A party of which nothing is known, and labels that nobody has, are errors with a way out."""
    home = make_home(tmp_path, "bank", label="paid")
    wanted = read_job_file(write_job(home, "vertical.secret_shared", ("bank", "shop")))
    with pytest.raises(JobError, match=r"columns of shop: give \[parties.shop\] schema"):
        cast_of(wanted, {}, home)
    with pytest.raises(JobError, match="nobody holds the labels"):
        cast_of(wanted, {"bank": SHOP, "shop": SHOP})
    with pytest.raises(JobError, match="--schema names 'nobody'"):
        cast_of(wanted, {"bank": BANK, "shop": SHOP, "nobody": SHOP})
    assert "--schema takes PARTY=FILE" in run("rehearse", wanted.path, "--schema", "shop", code=2).stderr
