"""A run repeated by an auditor: the same model, byte for byte; and whatever was changed is found in the right step."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from hedgerow.errors import HedgerowError, InvalidInput, InvalidParameter, JobError
from hedgerow.federation.federation import Chosen
from hedgerow.node import audit, bundles, playing, replay
from hedgerow.node.commitments import Opening
from hedgerow.node.home import Home
from hedgerow.node.inputs import Inputs, read_inputs
from hedgerow.node.replay import COMMITMENT, MATCH, PART, PROPOSAL, STEPS, TRAIL
from hedgerow.node.words import view
from hedgerow.protocols.vertical.common.parts import load_part
from hedgerow.runtime.protocol import find, names
from hedgerow.schema import Schema
from twins.documented import blocks, commands_of
from twins.organisations import (
    HOLDERS,
    TREES,
    VERTICAL,
    Interrupted,
    agreed_by_all,
    at_every_node,
    attempted,
    job_text,
    or_raise,
    proposed,
    three_owners,
    trained,
    two_organisations,
)

PLAIN = "vertical.noised_gradients"


def organisations(folder, protocol=PLAIN, **more):
    """A bank and a shop, with a notary where one is needed, and what they have agreed on."""
    parties, options = VERTICAL[protocol]
    homes = two_organisations(folder, *(name for name in parties if name not in HOLDERS))
    proposal = proposed(homes["bank"], job_text(protocol, {**TREES, **options, **more}, parties))
    agreed_by_all(homes, proposal)
    return homes, proposal


def handed_over(homes, proposal, folder):
    """The bundles of all parties, by party."""
    return {name: bundles.write(home, proposal.run_id[:8], folder / name).folder for name, home in homes.items()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Bundles of an honest run of the bank and the shop, which tests copy; and their homes, which they leave alone."""
    folder = tmp_path_factory.mktemp("honest")
    homes, proposal = organisations(folder / "homes")
    trained(homes, proposal)
    return homes, proposal, handed_over(homes, proposal, folder / "bundles")


@pytest.fixture
def copies(honest, tmp_path):
    """Bundles to be changed."""
    return {name: Path(shutil.copytree(path, tmp_path / name)) for name, path in honest[2].items()}


def replayed(folders, failed=None, *, saying=""):
    """What becomes of bundles; it must fail in this step, with these words."""
    report = replay.replay(list(folders.values()))
    assert report.failed == failed, report
    assert report.ok == (failed is None)
    assert tuple(report.steps) == (STEPS if failed is None else STEPS[: STEPS.index(failed) + 1])
    assert saying in " ".join(report.steps.get(failed, ())), report
    return report


# --- honest runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["vertical.bucket_rr", "vertical.secret_shared"])
def test_an_honest_run_is_repeated(tmp_path, protocol):
    """With a party that has no data, too, whose bundle has no table; and without the bundle of that party."""
    homes, proposal = organisations(tmp_path / "homes", protocol)
    trained(homes, proposal)
    folders = handed_over(homes, proposal, tmp_path)
    assert replayed(folders).protocol == protocol
    assert all((folders[name] / bundles.TABLE).exists() == (name in HOLDERS) for name in folders)
    replayed({name: folders[name] for name in HOLDERS})


def test_equal_columns_are_chosen_alike(tmp_path):
    """Where two splits gain the same, a run on shares takes the same one again."""
    homes, proposal = organisations(tmp_path / "homes", "vertical.secret_shared")
    for home, pair in ((homes["bank"], ("x0", "x1")), (homes["shop"], ("x3", "x4"))):
        table = pq.read_table(home.path / "customers.parquet")
        place = table.column_names.index(pair[1])
        pq.write_table(table.set_column(place, pair[1], table.column(pair[0])), home.path / "customers.parquet")
    trained(homes, proposal)
    replayed(handed_over(homes, proposal, tmp_path))


def test_classes_and_weights(tmp_path):
    """Weights are inputs as labels are: they are committed to, never trained on, and a changed one is found."""
    homes, proposal = organisations(tmp_path / "homes", "vertical.homomorphic")
    home = homes["bank"]
    table = pq.read_table(home.path / "customers.parquet")
    rated = pa.array(np.where(np.arange(table.num_rows) % 3, table.column("bad").to_numpy(), 2))
    table = table.set_column(table.column_names.index("bad"), "bad", rated)
    weight = np.random.default_rng(1).integers(0, 4, table.num_rows) / 2
    pq.write_table(table.append_column("exposure", pa.array(weight)), home.path / "customers.parquet")
    text = home.party_toml.read_text()
    home.party_toml.write_text(text.replace('label = "bad"', 'label = "bad"\nweight = "exposure"'))
    homes["bank"] = Home(home.path)
    told = view(proposal, homes["bank"])
    assert "- weights of rows: exposure" in told.lines()
    assert told.to_dict()["you"]["brings"]["weight"] == "exposure"
    trained(homes, proposal)
    folders = handed_over(homes, proposal, tmp_path)
    part = load_part(folders["bank"] / "part.json")
    assert [feature.name for feature in part.features] == ["x0", "x1"]
    assert part.ensemble.n_outputs == 3
    assert part.ensemble.meta["weighted"]
    replayed(folders)
    changed_cell(folders["bank"], "exposure", 3, float(weight[3]) + 0.5)
    replayed(folders, COMMITMENT, saying="bank")


def test_a_run_that_stops_early(tmp_path):
    """The rows that are watched follow from the agreed job and the label holder's own labels: they are found again."""
    homes, proposal = organisations(
        tmp_path / "homes", "vertical.homomorphic", early_stopping=True, n_iter_no_change=1, validation_fraction=0.3
    )
    trained(homes, proposal)
    folders = handed_over(homes, proposal, tmp_path)
    part = load_part(folders["bank"] / "part.json")
    (curve,) = part.ensemble.meta["learning_curve"].values()
    assert 0 <= part.ensemble.meta["best_iteration"] < len(curve)
    assert part.ensemble.n_iterations == part.ensemble.meta["best_iteration"] + 1
    replayed(folders)


def test_weights_that_a_protocol_does_not_take(tmp_path):
    """Said before anybody accepts, with the file, the dataset and a way out."""
    homes, proposal = organisations(tmp_path, per="message")
    home = homes["bank"]
    text = home.party_toml.read_text()
    home.party_toml.write_text(text.replace('label = "bad"', 'label = "bad"\nweight = "x1"'))
    said = rf"\[data.customers\] has a weight: {PLAIN} takes no weights of rows with these options; leave them out"
    with pytest.raises(InvalidParameter, match=said):
        view(proposal, Home(home.path))


def test_owners_of_rows(tmp_path):
    """Nothing is matched, and everybody has the whole model."""
    homes, proposal = three_owners(tmp_path / "homes")
    trained(homes, proposal)
    folders = handed_over(homes, proposal, tmp_path)
    replayed(folders)
    assert all((folder / "model.json").exists() and not (folder / bundles.ROWS).exists() for folder in folders.values())
    with pytest.raises(JobError, match="there is no bundle of carla"):
        replayed({name: folders[name] for name in ("anna", "ben")})


@pytest.mark.parametrize("protocol", [PLAIN, "vertical.secret_shared", "horizontal.secure_sum"])
def test_a_run_that_was_taken_up_again(tmp_path, protocol):
    """The model says how many attempts it took, and is the same in all else."""
    is_rows = protocol == "horizontal.secure_sum"
    homes, proposal = three_owners(tmp_path / "homes") if is_rows else organisations(tmp_path / "homes", protocol)
    for stop_after, resume in ((1, False), (2, True)):
        broken = attempted(homes, proposal, stop_after=stop_after, resume=resume)
        assert isinstance(broken[proposal.proposed_by], Interrupted)
    or_raise(attempted(homes, proposal, resume=True))
    report = replayed(handed_over(homes, proposal, tmp_path))
    assert report.attempts == 3
    assert [note for note in report.notes if "rounds" in note and "anna" in note] if is_rows else len(report.notes) == 1


def test_levels_and_gaps_of_a_csv_file(tmp_path):
    """Texts, empty cells and numbers that only look like levels are committed to as they were read."""
    homes, proposal = organisations(tmp_path / "homes", "vertical.bucket_rr")
    home = homes["shop"]
    table = pq.read_table(home.path / "customers.parquet")
    region = pa.array([None if k % 7 == 0 else "north" if k % 3 else "NA" for k in range(table.num_rows)])
    visits = pa.array([None if k % 5 == 0 else k % 4 for k in range(table.num_rows)])
    csv.write_csv(table.append_column("region", region).append_column("visits", visits), home.path / "customers.csv")
    text = home.party_toml.read_text().replace("customers.parquet", "customers.csv")
    home.party_toml.write_text(text.replace('id = "customer"', 'id = "customer"\ncategorical = ["region", "visits"]'))
    homes = {name: Home(each.path) for name, each in homes.items()}
    trained(homes, proposal)
    folders = handed_over(homes, proposal, tmp_path)
    assert "region" in load_part(folders["shop"] / "part.json").to_dict()["features"][3]["name"]
    replayed(folders)


def test_who_goes_on_does_so_with_the_same_table(tmp_path):
    """A run that has begun is not taken up with another table, which no auditor could repeat."""
    homes, proposal = organisations(tmp_path)
    attempted(homes, proposal, stop_after=1)
    path = homes["bank"].path / "customers.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), path)

    def resumed(node):
        wait = 60.0 if node.name == "bank" else 15.0  # for a bank that does not come
        return playing.play(node, node.papers.get(proposal.hash), wait=wait, resume=True)

    found = at_every_node(homes, resumed)["bank"]
    assert isinstance(found, JobError)
    assert "is not what it was when the run began" in str(found)


# --- what is found in which step -------------------------------------------------------------------------------------


def changed_cell(folder, column, row, value):
    """A bundle's table with another value in one cell."""
    bundle = bundles.Bundle.read(folder)
    table = bundle.inputs.table
    values = table.column(column).to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    table = table.set_column(place, column, pa.array(values, table.column(column).type))
    Inputs(bundle.inputs.how, table).save(folder / bundles.TABLE)


def test_a_changed_cell(copies):
    """The table does not open the commitment; a salt that was made up does not help."""
    changed_cell(copies["shop"], "x3", 7, 0.25)
    replayed(copies, COMMITMENT, saying="the table in the bundle of shop is not the one that shop committed to")
    about = json.loads((copies["shop"] / "opening.json").read_text())
    (copies["shop"] / "opening.json").write_text(json.dumps({**about, "salt": "00" * 32}))
    replayed(copies, COMMITMENT)


def test_a_changed_label(copies):
    """Labels are inputs as columns are."""
    label = bundles.Bundle.read(copies["bank"]).inputs.table.column("bad")[0].as_py()
    changed_cell(copies["bank"], "bad", 0, 1 - label)
    replayed(copies, COMMITMENT, saying="bank")


def test_columns_read_in_another_way(copies):
    """Which columns are trained on, and as what, is part of the commitment."""
    about = json.loads((copies["shop"] / "opening.json").read_text())
    about["how"]["categorical"] = ["x2"]
    (copies["shop"] / "opening.json").write_text(json.dumps(about))
    replayed(copies, COMMITMENT)


def test_a_changed_line_of_a_trail(copies):
    """The chain or the signature breaks, and nothing after it is believed."""
    trail = copies["bank"] / bundles.TRAIL
    trail.write_bytes(trail.read_bytes().replace(b'"n_sent":', b'"n_sent":1', 1))
    replayed(copies, TRAIL, saying="signature")


def test_the_trail_of_somebody_else(copies):
    """Each bundle has its own party's trail, in which the run is over."""
    shutil.copyfile(copies["bank"] / bundles.TRAIL, copies["shop"] / bundles.TRAIL)
    replayed(copies, TRAIL, saying="is the trail of bank, in the bundle of shop")


def test_a_trail_that_ends_before_the_run_does(copies):
    """Cut off behind the commitments it is whole, and says nothing about a model."""
    trail = copies["shop"] / bundles.TRAIL
    trail.write_bytes(b"".join(trail.read_bytes().splitlines(keepends=True)[:-1]))
    replayed(copies, TRAIL, saying="does not say that the run")


@pytest.mark.parametrize(
    ("changed", "step", "saying"),
    [
        (lambda lines, late: [*lines[:-1], late, lines[-1]], COMMITMENT, "is not the one that shop committed to"),
        (lambda lines, late: [*lines[:2], late, *lines[2:]], COMMITMENT, "is not the one that shop committed to"),
        (lambda lines, late: [*lines[:2], late, *lines[2:]], TRAIL, "has two commitments to inputs"),
        (lambda lines, late: [*lines, late], TRAIL, "does not say that the run"),
    ],
)
def test_a_commitment_that_came_late_or_twice(honest, copies, changed, step, saying):
    """With its key a party can write its trail anew, but what it commits to must stand before the first message."""
    identity = honest[0]["shop"].identity()
    trail = copies["shop"] / bundles.TRAIL
    _, *lines = [(entry.kind, entry.facts) for _, entry in audit.Reading(trail).entries]
    (place,) = [k for k, (_, facts) in enumerate(lines) if "inputs" in facts]
    late = lines[place]
    if step == COMMITMENT:
        del lines[place]
    trail.unlink()
    for kind, facts in changed(lines, late):
        audit.Trail(trail, identity).append(kind, **facts)
    assert not audit.verify(trail).findings
    replayed(copies, step, saying=saying)


@pytest.mark.parametrize(
    "name", ["audit.jsonl", "opening.json", "inputs.arrow", "rows.npy", "proposal.json", "part.json"]
)
def test_damaged_files_are_told_in_words(copies, name):
    """A file with other bytes, or cut off, is a finding or an error in words; or it says the same as before."""
    path, rng = copies["shop"] / name, np.random.default_rng(3)
    whole = path.read_bytes()
    before = list(map(bytes, bundles.Bundle.read(copies["shop"]).inputs.blocks()))
    for _ in range(12):
        damaged = bytearray(whole)
        for place in rng.integers(len(whole), size=3):
            damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged if rng.random() < 0.7 else whole[: int(rng.integers(len(whole)))])
        try:
            is_ok = replay.replay(list(copies.values())).ok
        except HedgerowError:
            is_ok = False
        if is_ok:  # in what fills up a file of arrow, or between the words of a document
            assert list(map(bytes, bundles.Bundle.read(copies["shop"]).inputs.blocks())) == before
            assert name in ("inputs.arrow", "proposal.json", "opening.json")


def test_a_certificate_from_elsewhere(honest, copies):
    """One that belongs to a trail is taken, another one is a finding."""
    folders = list(copies.values())
    assert replay.replay(folders, [honest[0]["bank"].certificate.pem]).notes == ()
    stranger = Home.create(copies["bank"].parent / "stranger", "bank").certificate.pem
    assert replay.replay(folders, [stranger]).failed == TRAIL


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_changed_proposal(copies, everywhere):
    """Nobody has signed it, in one bundle or in all."""
    for folder in copies.values() if everywhere else [copies["bank"]]:
        path = folder / "proposal.json"
        about = json.loads(path.read_text())
        about["params"]["n_estimators"] += 1
        path.write_text(json.dumps(about))
    replayed(copies, PROPOSAL, saying="an answer to another proposal")


def test_an_answer_that_is_missing_or_another(copies):
    """All have to have accepted, each with the key that the proposal names."""
    (copies["bank"] / "answers" / "shop.json").unlink()
    replayed(copies, PROPOSAL, saying="waiting for shop")
    forged = json.loads((copies["shop"] / "answers" / "shop.json").read_text())
    (copies["bank"] / "answers" / "shop.json").write_text(json.dumps({**forged, "at": "2020-01-01T00:00:00+00:00"}))
    replayed(copies, PROPOSAL)


def test_another_order_of_matched_rows(copies):
    """The order is committed to."""
    rows = np.load(copies["shop"] / bundles.ROWS)
    rows[[0, 1]] = rows[[1, 0]]
    np.save(copies["shop"] / bundles.ROWS, rows)
    replayed(copies, MATCH, saying="are not those that shop committed to")


@pytest.mark.parametrize(
    ("bank", "shop", "saying"),
    [
        (slice(None), slice(None, None, -1), "are not the same records in the same order"),
        (slice(1, None), slice(1, None), "are not all the records"),
    ],
)
def test_rows_that_were_never_matched(tmp_path, bank, shop, saying):
    """Parties that trained on other rows than those that they have in common are found, though they committed to it."""
    homes, proposal = organisations(tmp_path / "homes")
    for name, some in (("bank", bank), ("shop", shop)):
        ids = np.array(read_inputs(proposal, homes[name]).ids.to_pylist())
        common = np.flatnonzero(np.char.startswith(ids, "c"))
        folder = homes[name].runs / proposal.run_id
        folder.mkdir()
        np.save(folder / "rows.npy", common[np.argsort(ids[common])][some])
    trained(homes, proposal)
    replayed(handed_over(homes, proposal, tmp_path), MATCH, saying=saying)


def test_a_swapped_part(copies):
    """A part that the trail has no commitment to."""
    shutil.copyfile(copies["shop"] / "part.json", copies["bank"] / "part.json")
    replayed(copies, PART, saying="is not what bank committed to when the run was over")
    (copies["bank"] / "part.json").unlink()
    replayed(copies, PART, saying="has neither part.json nor model.json")


def test_a_part_that_the_run_does_not_give(tmp_path, monkeypatch):
    """A party that writes down another threshold, and commits to it, is found by the repetition alone."""
    homes, proposal = organisations(tmp_path / "homes")
    save = playing.save_result

    def lie(proposal, party, result, folder):
        save(proposal, party, result, folder)
        if party == "shop":
            path = folder / "part.json"
            about = json.loads(path.read_text())
            about["features"][0]["edges"][0] -= 2.0**-40
            path.write_text(json.dumps(about, separators=(",", ":")))
            load_part(path)

    monkeypatch.setattr(playing, "save_result", lie)
    trained(homes, proposal)
    replayed(handed_over(homes, proposal, tmp_path), PART, saying="gives shop another part")


# --- what cannot be repeated -----------------------------------------------------------------------------------------


@pytest.fixture
def never_played(monkeypatch):
    """No run is repeated."""

    def refuse(*_args, **_how):
        raise AssertionError("it was played")

    monkeypatch.setattr(replay, "run_together", refuse)


@pytest.mark.usefixtures("never_played")
def test_noise_is_refused(tmp_path, monkeypatch):
    """No bundle is made of a run that draws something, and one that there is all the same is not played."""
    homes, proposal = organisations(tmp_path / "homes", epsilon=4.0, delta=1e-6)
    trained(homes, proposal)
    why = r"vertical.noised_gradients, as it was run, draws noise for the gradients of rows at random"
    with pytest.raises(JobError, match=why):
        bundles.write(homes["bank"], proposal.run_id, tmp_path / "bank")
    assert not (tmp_path / "bank").exists()
    with monkeypatch.context() as careless:
        careless.setattr(bundles, "check_repeatable", lambda _proposal: None)
        folders = handed_over(homes, proposal, tmp_path)
    with pytest.raises(JobError, match=why):
        replay.replay(list(folders.values()))


BOUNDS = Schema.from_public(bounds={f"x{k}": (-3.0, 3.0) for k in range(5)}, classes=[0, 1])
TWO, DEALT = ("bank", "shop"), {"dealer": "notary"}
DRAWN = {
    "vertical.bucket_rr": [
        {"epsilon": 4.0, "edges": "quantile"},
        {"epsilon": math.inf, "edges": "private", "schema": BOUNDS},
    ],
    "vertical.noised_gradients": [{"epsilon": 4.0, "delta": 1e-6}],
    "vertical.secret_shared": [{**DEALT, "disclosure": "paper", "accept_known_leaks": True}],
    "vertical.mp_fedxgb": [{**DEALT, "accept_known_leaks": True}],
    "vertical.private_histograms": [{**DEALT, "epsilon": math.inf, "schema": BOUNDS}],
    "vertical.masked_gradients": [{"accept_known_leaks": True, "sigma1": 1.0, "sigma2": 1.0, "C": 1.0}],
    "horizontal.secure_sum": [
        {"dp": (1.0, 1e-6), "schema": BOUNDS},
        {"quantiles": "private", "quantile_epsilon": 1.0, "quantile_delta": 1e-6, "schema": BOUNDS},
    ],
}
EXACT = {
    "vertical.bucket_rr": [{"epsilon": math.inf, "edges": "quantile"}],
    "vertical.noised_gradients": [{"epsilon": math.inf}],
    "vertical.secret_shared": [DEALT],
    "horizontal.secure_sum": [{}],
}


@pytest.mark.parametrize("protocol", names())
def test_which_jobs_can_be_repeated(protocol):
    """Those that draw nothing that stays in the model; each of the others says what it draws."""
    spec = find(protocol)
    parties, holder = (TWO, "bank") if spec.partition == "columns" else (("anna", "ben", "carla"), None)
    for repeatable, options in ((True, EXACT), (False, DRAWN)):
        for given in options.get(protocol, []):
            chosen = Chosen.of(protocol, given, partition=spec.partition, task="classification")
            why = chosen.protocol.drawn(chosen.job(parties, holder, []))
            assert (why is None) == repeatable, (given, why)


def test_every_protocol_says_whether_it_can_be_repeated(honest):
    """By a declaration of its own; the default, of a protocol that says nothing, is a refusal."""
    default = type(find(PLAIN)).__dataclass_fields__["drawn"].default
    assert default(honest[1].job) is not None
    assert all(find(name).drawn is not default for name in names())


def test_bundles_that_do_not_belong_together(honest, copies, tmp_path):
    """Of one party twice, of one party alone, of another run, or no bundle at all."""
    folders = list(copies.values())
    with pytest.raises(JobError, match="are both bundles of bank"):
        replay.replay([folders[0], honest[2]["bank"]])
    with pytest.raises(JobError, match="give two or more, got 1"):
        replay.replay(folders[:1])
    with pytest.raises(InvalidInput, match="is not a bundle"):
        replay.replay([folders[0], tmp_path])
    about = json.loads((copies["shop"] / "opening.json").read_text())
    (copies["shop"] / "opening.json").write_text(json.dumps({**about, "run_id": "0" * 32}))
    with pytest.raises(JobError, match="of different runs"):
        replay.replay(folders)


def test_a_source_that_has_changed_is_not_exported(tmp_path):
    """The bundle has the table of the run, or there is none; the order of rows counts."""
    homes, proposal = organisations(tmp_path / "homes")
    trained(homes, proposal)
    path = homes["shop"].path / "customers.parquet"
    table = pq.read_table(path)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), path)
    with pytest.raises(InvalidInput, match="Put it back as it was, and export again"):
        bundles.write(homes["shop"], proposal.run_id, tmp_path / "shop")
    assert not (tmp_path / "shop").exists()
    pq.write_table(table, path)
    bundles.write(homes["shop"], proposal.run_id, tmp_path / "shop")


def test_a_bundle_has_the_run_and_nothing_later(honest, tmp_path):
    """The trail ends with the run, is whole, and is for its owner alone to read."""
    homes, proposal, _ = honest
    home = Home(shutil.copytree(homes["bank"].path, tmp_path / "bank"))
    audit.Trail(home.audit, home.identity()).append("refused", proposal="ab" * 32, party="shop", codes=[1])
    made = bundles.write(home, proposal.run_id[:6], tmp_path / "bundle")
    assert not audit.verify(made.trail).findings
    assert b'"kind":"run_ended"' in made.trail.read_bytes().splitlines()[-1]
    assert {path.stat().st_mode & 0o777 for path in made.folder.rglob("*") if path.is_file()} == {0o600}


# --- what the trail tells --------------------------------------------------------------------------------------------


def test_a_guess_is_not_confirmed_without_the_salt(honest):
    """Who knows table, part, ledger, papers and trail of a party, but no salt, finds none of them in its trail."""
    homes, proposal, folders = honest
    for name, home in homes.items():
        opening, run = Opening.read(folders[name] / "opening.json"), home.runs / proposal.run_id
        inputs = bundles.Bundle.read(folders[name]).inputs
        rows = np.load(run / "rows.npy")
        guesses = {
            "inputs": list(inputs.blocks()),
            "rows": [rows.tobytes()],
            "rows as a file": [(run / "rows.npy").read_bytes()],
            "model": [(run / "part.json").read_bytes()],
            "ledger": [(run / "ledger.jsonl").read_bytes()],
            "source": [(home.path / "customers.parquet").read_bytes()],
        }
        text = home.audit.read_text()
        lines = set(re.findall(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text))
        public = [proposal.run_id, proposal.hash, name, home.certificate.fingerprint, "\0" * 32, ""]
        for what, content in guesses.items():
            whole = b"".join(map(bytes, content))
            assert hashlib.sha256(whole).hexdigest() not in lines, what
            for known in public:
                for label in ("", *(f"hedgerow commitment to {of}, version 1\0" for of in guesses)):
                    made = hmac.new(known.encode(), label.encode() + whole, "sha256").hexdigest()
                    assert made not in lines, (what, known)
            if what in ("inputs", "rows", "model", "ledger"):
                assert opening.commit(what, content) in lines, what
        assert opening.salt.hex() not in text
        others = [other for other in homes.values() if other is not home]
        assert all(
            opening.salt.hex() not in path.read_text(errors="ignore")
            for other in others for path in other.path.rglob("*") if path.is_file()
        )  # fmt: skip


def test_two_runs_on_the_same_table_look_different(tmp_path):
    """Their commitments and digests of messages have nothing in common, though tables and messages are the same."""
    homes, _ = organisations(tmp_path)
    parties, options = VERTICAL["vertical.bucket_rr"]
    for _ in range(2):
        trained(homes, proposed(homes["bank"], job_text("vertical.bucket_rr", {**TREES, **options}, parties)))
    for home in homes.values():
        entries = [json.loads(line) for line in home.audit.read_text().splitlines()]
        facts = [entry["facts"] for entry in entries]
        for what in ("inputs", "rows", "model", "ledger", "sent", "received"):
            found = [each[what] for each in facts if what in each]
            assert len(found) >= 2
            assert len(set(found)) == len(found), what


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_says_which_step_failed(copies, run):
    """In words, as JSON, and by its exit code: 9 for a trail, 11 for other steps, 2 for what cannot be repeated."""
    told = run("audit", "replay", *copies.values(), "--json").json
    assert (told["ok"], told["failed"], [each["step"] for each in told["steps"]]) == (True, None, list(STEPS))
    shown = run("audit", "replay", *copies.values()).stdout
    assert "gives the same model, byte for byte" in shown
    assert max(map(len, shown.splitlines())) <= 80
    shutil.copyfile(copies["shop"] / "part.json", copies["bank"] / "part.json")
    told = run("audit", "replay", *copies.values(), "--json", code=11).json
    assert told["failed"] == "part"
    changed_cell(copies["shop"], "x3", 7, 0.25)
    shown = run("audit", "replay", *copies.values(), code=11).stdout
    assert "commitment  FAILED" in shown
    assert "part        not reached" in shown
    trail = copies["bank"] / bundles.TRAIL
    trail.write_bytes(trail.read_bytes().replace(b'"attempt":1', b'"attempt":2', 1))
    assert run("audit", "replay", *copies.values(), "--json", code=9).json["failed"] == "trail"
    assert "give two or more" in run("audit", "replay", copies["bank"], code=2).stderr


@pytest.mark.parametrize(("page", "remark"), [("operations.md", "after a run"), ("reference/audit.md", None)])
def test_the_commands_of_the_pages(honest, tmp_path, run, monkeypatch, page, remark):
    """How trails are checked, runs exported and repeated: typed as printed, in the order of the page, after a run."""
    homes, proposal, _ = honest
    auditor = tmp_path / "auditor"
    for name, home in homes.items():
        (auditor / name).mkdir(parents=True)
        for path in (home.audit, home.audit.with_name("audit.jsonl.head")):
            shutil.copy(path, auditor / name)
        shutil.copyfile(home.certificate_file, auditor / f"{name}.pem")
    typed = []
    for block in blocks(page):
        if block.language != "console" or block.remark != remark:
            continue
        for words in block.commands:
            folder = auditor if block.party == "auditor" else homes[block.party].path
            monkeypatch.chdir(folder)
            run(*(proposal.run_id[:8] if word == "RUN" else word for word in words[1:]))
            typed.append(words)
            if words[2] == "export":
                shutil.move(folder / words[words.index("--out") + 1], auditor / f"from-{block.party}")
    assert len(typed) >= 3
    if remark is None:
        assert typed == commands_of(f"docs/{page}")
