"""`hedgerow audit`: trails are checked and shown, by somebody who has nothing but the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hedgerow.node.audit import Trail
from hedgerow.transport.mtls import Identity

BANK, SHOP = Identity.create("bank"), Identity.create("shop")


@pytest.fixture
def trails(tmp_path: Path) -> list[Path]:
    """Trails of two parties, and a certificate of one."""
    places = []
    for identity, peer in ((BANK, "shop"), (SHOP, "bank")):
        place = tmp_path / f"{identity.certificate.owner}.jsonl"
        trail = Trail(place, identity)
        trail.append("received", proposal="ab" * 32, peer=peer)
        trail.append("refused", proposal="ab" * 32, party=peer, codes=[4])
        places.append(place)
    (tmp_path / "bank.pem").write_bytes(BANK.certificate.pem)
    return places


def test_help_has_an_example_and_exit_codes(run: Any) -> None:
    """For every command, within 80 columns."""
    for command in ("verify", "show", "export", "replay"):
        shown = run("audit", command, "--help").stdout
        assert f"Example: hedgerow audit {command}" in shown
        assert "Exit codes: 0 ok" in shown
        assert "--json" in shown
        assert max(len(line) for line in shown.splitlines()) <= 80


def test_a_trail_in_order(trails: list[Path], tmp_path: Path, run: Any) -> None:
    """Exit code 0, whose it is, its certificates and its head."""
    told = run("audit", "verify", trails[0], "--certificate", tmp_path / "bank.pem", "--json").json
    assert told["ok"]
    assert told["findings"] == []
    (trail,) = told["trails"]
    assert (trail["party"], trail["n_lines"], trail["vouched"]) == ("bank", 3, True)
    shown = run("audit", "verify", trails[0], "--certificate", tmp_path / "bank.pem").stdout
    assert "Nothing is wrong: chain, signatures and certificates hold." in shown
    assert f"certificate {BANK.fingerprint}" in shown
    assert "Note" not in shown
    assert "no certificate was given" in " ".join(run("audit", "verify", trails[0]).stdout.split())


def test_several_trails_are_compared(trails: list[Path], tmp_path: Path, run: Any) -> None:
    """With the certificates that there are."""
    shown = run("audit", "verify", *trails, "--certificate", tmp_path / "bank.pem").stdout
    assert "Together, they tell the same story." in shown
    assert "the certificate that you brought is one of its own" in shown


def test_a_broken_trail_has_a_code_of_its_own(trails: list[Path], run: Any) -> None:
    """Exit code 9, with the line and what is wrong with it; what can be read is shown all the same."""
    trails[0].write_bytes(trails[0].read_bytes().replace(b'"codes":[4]', b'"codes":[5]'))
    told = run("audit", "verify", trails[0], "--json", code=9).json
    assert not told["ok"]
    assert told["findings"][0]["line"] == 3
    shown = run("audit", "verify", trails[0], code=9).stdout
    assert "BROKEN: 2 findings" in shown
    assert "line 3: the signature is not that of this line by this key" in " ".join(shown.split())
    shown = run("audit", "show", trails[0], code=9).stdout
    assert "codes=5" in shown
    assert "BROKEN" in shown


def test_a_trail_is_shown(trails: list[Path], run: Any) -> None:
    """One line each, without certificates and whole digests; all of it as JSON; some kinds only."""
    shown = run("audit", "show", trails[1]).stdout.splitlines()
    assert shown[0] == "Trail of shop"
    assert "certificate=...  party=shop" in shown[1]
    assert shown[3].endswith("refused          codes=4  party=bank  proposal=abababababababab...")
    told = run("audit", "show", trails[1], "--kind", "received", "--json").json
    assert [entry["kind"] for entry in told["entries"]] == ["received"]
    assert told["party"] == "shop"


def test_wrong_usage(trails: list[Path], tmp_path: Path, run: Any) -> None:
    """Unknown kinds and too many certificates are wrong usage; files that cannot be read are data."""
    assert (
        "--kind 'gossip': there are init, paired" in run("audit", "show", trails[0], "--kind", "gossip", code=2).stderr
    )
    twice = ["--certificate", tmp_path / "bank.pem"] * 2
    assert "one trail has one certificate, got 2" in run("audit", "verify", trails[0], *twice, code=2).stderr
    assert "cannot be read" in run("audit", "verify", tmp_path / "missing", code=3).stderr
    assert "is not a certificate" in run("audit", "verify", trails[0], "--certificate", trails[0], code=3).stderr
    missing = run("audit", "verify", trails[0], "--certificate", tmp_path / "missing", code=3)
    assert missing.stderr.startswith("hedgerow: --certificate ")
