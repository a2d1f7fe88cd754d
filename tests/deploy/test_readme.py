"""The commands of deploy/README.md, as far as they are ours: by hand on a machine, and in a pod by its user."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from hedgerow.node.home import Home
from twins.documented import commands_of
from twins.offices import Office, code_of, typed_in
from twins.organisations import bank_and_shop, customers, free_port, job_text

pytestmark = pytest.mark.timeout(300)
PAGE = "deploy/README.md"


def in_folder(folder):
    """Our commands of the page, with its places in a folder of this machine.

    What else it shows needs root, systemd or a cluster; tests/deploy checks the files that it speaks of.
    """
    places = {"/var/lib/hedgerow/bank": str(folder / "bank"), "/run/hedgerow/passphrase": str(folder / "passphrase")}
    return [[places.get(word, word) for word in words] for words in commands_of(PAGE)]


def paired(bank, shop, address):
    """Both have each other's certificate; the bank's command was typed and waits."""
    shop.say("pair", address, told=f"{code_of(bank)}\n")
    Office.finish(bank)


@pytest.mark.long
def test_a_party_that_is_set_up_by_hand_and_one_in_a_pod(tmp_path):
    """init and pair with a home of their own; then pair, accept and run with a passphrase from a file."""
    init, by_hand, *in_the_pod = in_folder(tmp_path)
    assert [words[1] for words in (init, by_hand, *in_the_pod)] == ["init", "pair", "pair", "accept", "run"]
    tables, address = bank_and_shop(customers()), f"127.0.0.1:{free_port()}"
    shop, place = Office(tmp_path / "shop"), tmp_path / "bank"
    pq.write_table(tables["bank"], shop.folder / "customers.parquet")
    shop.say("init", "shop", "--data", "customers.parquet", "--id", "customer", "--label", "bad")
    Office.finish(typed_in(tmp_path, init))
    settings = f'name = "bank"\n[network]\nbind = "{address}"\n'
    settings += '[data.main]\nsource = "customers.parquet"\nid = "customer"\n'
    pq.write_table(tables["shop"], place / "customers.parquet")
    (place / "party.toml").write_text(settings)
    paired(typed_in(tmp_path, by_hand), shop, address)
    # The pod has the home of another party of that name, whose key is encrypted.
    home = tmp_path / "pod"
    (tmp_path / "passphrase").write_text("correct horse battery\n")
    (tmp_path / "passphrase").chmod(0o600)
    Office.finish(typed_in(tmp_path, ["hedgerow", "init", "bank", "--home", str(home), *in_the_pod[0][2:]]))
    pq.write_table(tables["shop"], home / "customers.parquet")
    (home / "party.toml").write_text(settings)
    pod = {"HEDGEROW_HOME": str(home)}
    shop = Office(tmp_path / "other shop")
    pq.write_table(tables["bank"], shop.folder / "customers.parquet")
    shop.say("init", "shop", "--data", "customers.parquet", "--id", "customer", "--label", "bad")
    pair, accept, run = in_the_pod
    paired(typed_in(tmp_path, pair, **pod), shop, address)
    (shop.folder / "job.toml").write_text(
        job_text(
            "vertical.noised_gradients",
            {"n_estimators": 2, "epsilon": 4.0, "delta": 1e-6},
            {"shop": "label holder", "bank": "feature holder"},
        )
    )
    proposing = shop.start("propose", "job.toml")
    Office.finish(typed_in(tmp_path, accept, **pod), told="y\n")
    Office.finish(proposing)
    running = shop.start("run")
    Office.finish(typed_in(tmp_path, run, **pod))
    Office.finish(running)
    assert next(Home(home).runs.iterdir()).joinpath("part.json").is_file()
