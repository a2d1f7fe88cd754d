"""A party's folder: made once, found in three ways, private."""

from __future__ import annotations

import pytest

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused
from hedgerow.node.home import Home
from twins.homes import introduce
from twins.parties import Authority


def test_a_new_home_is_complete_and_private(bank):
    """Key, certificate, party.toml and the folders; others can look into none of them."""
    assert bank.name == "bank"
    assert bank.party_file.name == "bank"
    assert bank.identity().certificate == bank.certificate
    assert bank.peers.names() == []
    assert bank.party_file.name == "bank"
    assert (bank.path / "party.schema.json").exists()
    for path in (bank.path, bank.peers_folder, bank.proposals, bank.runs):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in (bank.key, bank.party_toml):
        assert path.stat().st_mode & 0o777 == 0o600


def test_an_existing_home_is_left_alone(bank):
    """Making it again is refused and changes nothing."""
    before = {path: path.read_bytes() for path in bank.path.rglob("*") if path.is_file()}
    with pytest.raises(InvalidInput, match="there is a key already"):
        Home.create(bank.path, "bank")
    assert {path: path.read_bytes() for path in bank.path.rglob("*") if path.is_file()} == before


def test_a_party_file_that_is_there_is_kept(tmp_path):
    """Whoever restores party.toml and has lost the key gets a new key beside it."""
    (tmp_path / "party.toml").write_text('name = "bank"\n# mine\n', encoding="utf-8")
    home = Home.create(tmp_path, "bank")
    assert "# mine" in home.party_toml.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["", "two words", "../up", "parties.json", "a" * 64])
def test_a_name_that_is_none_makes_nothing(name, tmp_path):
    """Names are checked before anything is written."""
    with pytest.raises(InvalidParameter):
        Home.create(tmp_path / "here", name)
    assert not (tmp_path / "here").exists()


def test_a_file_in_the_way_is_named(tmp_path):
    """A home is a folder."""
    (tmp_path / "bank").write_text("", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is a file"):
        Home.create(tmp_path / "bank", "bank")


def test_a_home_is_found_in_three_ways(bank, shop, tmp_path, monkeypatch):
    """What is given beats the environment, which beats the working directory."""
    monkeypatch.chdir(bank.path)
    assert Home.find().path == bank.path
    monkeypatch.setenv("HEDGEROW_HOME", str(shop.path))
    assert Home.find().path == shop.path
    assert Home.find(bank.path).path == bank.path
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEDGEROW_HOME")
    with pytest.raises(InvalidParameter, match=r"no party\.toml\..*hedgerow init NAME"):
        Home.find()
    with pytest.raises(InvalidParameter, match=r"--home: there is no party\.toml in"):
        Home.find(tmp_path)
    with pytest.raises(InvalidParameter, match="HEDGEROW_HOME: there is no"):
        Home.find(None, {"HEDGEROW_HOME": str(tmp_path)})


def test_a_name_that_differs_from_the_certificate_is_told(bank):
    """party.toml and certificate must speak of one party."""
    bank.party_toml.write_text('name = "shop"\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"called 'shop', but its certificate is made for bank"):
        bank.party_file  # noqa: B018 - reading it is what is tested


def test_an_authority_of_the_party_file_counts(bank, shop):
    """[network] authority is accepted for parties that are not pinned."""
    ours = Authority("ours")
    (bank.path / "ca.pem").write_bytes(ours.certificate.pem)
    bank.party_toml.write_text('name = "bank"\n[network]\nauthority = "ca.pem"\n', encoding="utf-8")
    introduce(bank, shop)
    trust = bank.peers.trust_store(["shop", "mill"])
    trust.check("mill", ours.issue("mill").certificate)
    trust.check("shop", shop.certificate)
    with pytest.raises(PeerRefused):
        trust.check("mill", Authority("theirs").issue("mill").certificate)
