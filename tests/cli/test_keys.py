"""`hedgerow init` and `hedgerow keys`, as the shell sees them."""

from __future__ import annotations

import pytest

from hedgerow.node import keys
from hedgerow.node.home import Home
from twins.homes import introduce, simplify

WORDS = "correct horse battery"


@pytest.fixture(autouse=True)
def _simple(monkeypatch, tmp_path):
    """Homes are cheap to make, in a folder of their own."""
    simplify(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bank(tmp_path):
    """The home of a party, paired with the shop."""
    return Home.create(tmp_path / "bank", "bank")


@pytest.fixture
def shop(tmp_path, bank):
    """The home of another party, paired with the bank."""
    home = Home.create(tmp_path / "shop", "shop")
    introduce(bank, home)
    return home


@pytest.fixture
def words(tmp_path):
    """Writes a file with a passphrase."""

    def write(text, name="words"):
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    return write


def test_init_makes_a_home(run, tmp_path):
    """A folder of the party's name, with what it says on the terminal and as JSON; never a second time."""
    result = run("init", "bank", "--json").json
    home = Home(tmp_path / "bank")
    assert result["home"] == str(home.path)
    assert result["fingerprint"] == home.certificate.fingerprint
    assert result["encrypted"] is False
    assert "it is not replaced" in run("init", "bank", code=3).stderr
    shown = run("init", "shop", "--home", tmp_path / "elsewhere", "--days", "30").stdout
    assert "is the home of shop" in shown
    assert keys.grouped(Home(tmp_path / "elsewhere").certificate.fingerprint)[0] in shown
    assert "PRIVATE KEY" not in shown


def test_init_encrypts_on_request(run, words, tmp_path):
    """With a passphrase from a file or from the environment; not just because the environment has one."""
    assert run("init", "bank", "--passphrase-file", words(WORDS), "--json").json["encrypted"]
    assert Home(tmp_path / "bank").identity(WORDS).certificate.names == ("bank",)
    assert "a passphrase is needed" in run("init", "shop", "--encrypt", code=2).stderr
    assert not (tmp_path / "shop").exists()
    assert "at least 8 characters" in run("init", "shop", "--passphrase-file", words("short"), code=2).stderr


def test_init_takes_the_passphrase_of_the_environment(run, monkeypatch, tmp_path):
    """Where --encrypt asks for one."""
    monkeypatch.setenv("HEDGEROW_PASSPHRASE", WORDS)
    assert run("init", "bank", "--encrypt", "--json").json["encrypted"]
    assert not run("init", "shop", "--json").json["encrypted"]
    assert Home(tmp_path / "bank").identity().certificate.names == ("bank",)


@pytest.mark.parametrize(
    ("arguments", "words"), [(["two words"], "a party's name"), (["a", "--days", "0"], "days must")]
)
def test_init_refuses_what_cannot_be(arguments, words, run, tmp_path):
    """Exit code 2, and no key."""
    assert words in run("init", *arguments, code=2).stderr
    assert not list(tmp_path.rglob("key.pem"))


def test_show_tells_who_is_who(run, bank, shop):
    """One's own certificate, those of partners and what was revoked; without a passphrase and without the key."""
    result = run("keys", "show", "--home", bank.path, "--json").json
    assert (result["name"], result["fingerprint"]) == ("bank", bank.certificate.fingerprint)
    assert result["days_left"] == 824
    (peer,) = result["peers"]
    assert (peer["name"], peer["fingerprint"]) == ("shop", shop.certificate.fingerprint)
    bank.peers.revoke("shop")
    result = run("keys", "show", "--home", bank.path)
    assert f"revoked: {shop.certificate.fingerprint} of shop" in result.stdout
    assert "warning" not in result.stderr
    assert "PRIVATE" not in result.stdout


def test_an_expiring_certificate_is_told(run, tmp_path):
    """On stderr, by every verb that looks at it."""
    run("init", "bank", "--days", "7")
    home = tmp_path / "bank"
    assert "expires in 6 days" in run("keys", "show", "--home", home).stderr
    arguments = ("--write-invitation", tmp_path / "i.json", "--advertise", "bank.example.org:7341")
    assert "expires in 6 days" in run("pair", *arguments, "--home", home).stderr


def test_the_key_is_encrypted_and_its_passphrase_changed(run, bank, words):
    """From files; the old passphrase must be right."""
    one, other = words(WORDS), words("something else", "other")
    assert run("keys", "encrypt", "--home", bank.path, "--passphrase-file", one, "--json").json["changed"] is False
    both = ("--passphrase-file", other, "--new-passphrase-file", other)
    assert "does not open" in run("keys", "encrypt", "--home", bank.path, *both, code=3).stderr
    alone = run("keys", "encrypt", "--home", bank.path, "--passphrase-file", one, code=2)
    assert "the new passphrase is needed" in alone.stderr
    both = ("--passphrase-file", one, "--new-passphrase-file", other)
    assert "has another passphrase now" in run("keys", "encrypt", "--home", bank.path, *both).stdout
    assert bank.identity("something else").certificate == bank.certificate


def test_a_rotation_is_followed(run, bank, shop, words):
    """The partner says one command, and has the new certificate."""
    file = ("--passphrase-file", words(WORDS))
    run("keys", "encrypt", "--home", shop.path, *file)
    assert "a passphrase is needed" in run("keys", "rotate", "--home", shop.path, code=2).stderr
    result = run("keys", "rotate", "--home", shop.path, *file, "--json").json
    followed = run("keys", "follow", result["succession"], "--home", bank.path, "--json").json
    assert followed["fingerprint"] == result["fingerprint"] == shop.certificate.fingerprint != result["old"]
    assert "pinned already" in run("keys", "follow", result["succession"], "--home", bank.path, code=8).stderr
    assert "keys follow succession.json" in run("keys", "rotate", "--home", shop.path, *file).stdout


def test_revoking_asks_first(run, bank, shop, monkeypatch):
    """No, or no answer, revokes nothing; --yes does not ask."""
    from typer.testing import CliRunner

    from hedgerow.cli import app

    for answer in ("n\n", ""):
        done = CliRunner().invoke(app, ["keys", "revoke", "shop", "--home", str(bank.path)], input=answer)
        assert done.exit_code == 2
    assert bank.peers.names() == ["shop"]
    run("keys", "revoke", "shop", "--yes", "--home", bank.path)
    assert bank.peers.names() == []
    assert "is not paired" in run("keys", "revoke", "shop", "--yes", "--home", bank.path, code=8).stderr
    monkeypatch.chdir(shop.path)
    assert CliRunner().invoke(app, ["keys", "revoke", "bank"], input="y\n").exit_code == 0
    assert shop.peers.names() == []


def test_a_folder_that_is_no_home_is_told(run):
    """Exit code 2, with what to do."""
    assert "hedgerow init NAME makes one" in run("keys", "show", code=2).stderr


def test_a_key_that_others_can_read_is_told(run, bank):
    """Exit code 3."""
    bank.key.chmod(0o644)
    assert "may be read by others" in run("keys", "show", "--home", bank.path, code=3).stderr
    assert (
        "may be read by others" in run("keys", "rotate", "--home", bank.path, "--json", code=3).json["error"]["message"]
    )


@pytest.mark.parametrize("verb", ["show", "encrypt", "rotate", "follow", "revoke"])
def test_every_verb_of_keys_has_help(verb, run):
    """With an example, exit codes and --json, within 80 columns."""
    shown = run("keys", verb, "--help").stdout
    assert f"Example: hedgerow keys {verb}" in shown
    assert "Exit codes: 0 ok" in shown
    assert "--json" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
