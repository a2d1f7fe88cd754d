"""The egress manifest of a proposal before its run, and of the run afterwards, which is what the ledger says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hedgerow.ledger import Ledger
from hedgerow.node.desk import Node
from hedgerow.node.home import Home
from hedgerow.node.job_file import read_job_file
from hedgerow.node.manifest import size_of
from hedgerow.node.papers import Papers, answer
from hedgerow.node.playing import play
from hedgerow.node.proposal import Proposal, propose
from hedgerow.runtime.party import Abort
from hedgerow.runtime.protocol import find, names
from twins.homes import free_port, key_of, make_home, pair, write_job


@pytest.fixture
def agreed(tmp_path: Path) -> tuple[dict[str, Home], Proposal]:
    """A bank and a shop that have signed a run, matched by ids."""
    bank = make_home(tmp_path, "bank", bind=f"127.0.0.1:{free_port()}", label="paid")
    shop = make_home(tmp_path, "shop")
    pair(bank, shop)
    path = write_job(
        bank, "vertical.noised_gradients", ("bank", "shop"), epsilon=4.0, delta=1e-6, n_estimators=2, max_depth=2
    )
    path.write_text(path.read_text().replace("[options]", "[matching]\nminimum = 100\n[options]"))
    offer = propose(read_job_file(path), bank)
    homes = {"bank": bank, "shop": shop}
    for home in homes.values():
        Papers(home).keep(offer, [answer(offer, key_of(each), "accept") for each in homes.values()])
    return homes, offer


def test_before_and_after_a_run(agreed: tuple[dict[str, Home], Proposal], run: Any) -> None:
    """Before it, kinds of messages; after it, counts and bytes that equal the ledgers, all of them announced."""
    homes, offer = agreed
    told = run("manifest", "--home", homes["shop"].path, "--json").json
    assert not told["has_run"]
    assert (told["sent"], told["received"]) == ([], [])
    announced = {each["message"] for each in told["announced"] if each["sender"] == "shop"}
    assert "vertical.noised_gradients.best_gains" in announced
    assert "vertical.noised_gradients.noisy_gradients" not in announced
    assert "It has not run." in run("manifest", "--home", homes["shop"].path).stdout

    def work(home: Home) -> None:
        with Node(home, key_of(home), offer.peers_of(home.name)) as node:
            play(node, node.papers.get(offer.hash), wait=60.0)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, home) for home in homes.values()]:
            done.result()
    for name, home in homes.items():
        told = run("manifest", offer.hash[:12], "--home", home.path, "--json").json
        folder = home.runs / offer.run_id
        books = [Ledger.from_json_lines(name, (folder / f"{b}.jsonl").read_text()) for b in ("matching", "ledger")]
        for direction, key in (("disclosed", "sent"), ("learned", "received")):
            lines = [line for book in books for line in book.lines(direction)]
            assert sum(each["messages"] for each in told[key]) == len(lines)
            assert sum(each["bytes"] for each in told[key]) == sum(line.n_bytes for line in lines)
            for each in told[key]:
                peer = each["receiver"] if key == "sent" else each["sender"]
                same = [line for line in lines if (line.peer, line.message) == (peer, each["message"])]
                assert (each["messages"], each["bytes"]) == (len(same), sum(line.n_bytes for line in same))
        total = json.loads((folder / "run.json").read_text())["traffic"]
        assert sum(each["bytes"] for each in told["sent"]) == sum(b["total"]["bytes_sent"] for b in total.values())
        assert told["unannounced"] == []
        assert "Everything that left had been announced." in run("manifest", "--home", home.path, offer.run_id).stdout
    sent = run("manifest", offer.hash, "--home", homes["bank"].path, "--json").json["sent"]
    came = run("manifest", offer.hash, "--home", homes["shop"].path, "--json").json["received"]
    assert sent == came


def test_every_message_says_how_large_it_can_be() -> None:
    """Sizes follow from the classes: numbers where they are fixed, symbols where they grow."""
    assert size_of(Abort) == "at most 8 bytes"
    told = {kind.NAME: size_of(kind) for name in names() for kind in find(name).messages}
    assert all(size.startswith("at most ") or size == "a heading alone" for size in told.values())
    assert any("n_rows" in size for size in told.values())
