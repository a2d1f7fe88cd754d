"""Keys on disk: private, encrypted on request, never replaced by accident, rotated with the old one's word."""

from __future__ import annotations

import datetime as dt
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.node import keys
from hedgerow.transport.mtls import Identity, now
from twins.parties import Authority

WORDS, WRONG = "correct horse battery", "another horse"


@pytest.fixture(scope="module")
def identity():
    """A key with its certificate."""
    return Identity.create("bank")


def test_saved_and_loaded_it_is_the_same(identity, tmp_path):
    """The key file can be read by its owner alone, and holds the key that signs as before."""
    keys.save(identity, tmp_path / "keys")
    assert (tmp_path / "keys" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    again = keys.load(tmp_path / "keys")
    assert again.fingerprint == identity.fingerprint
    identity.certificate.verify(again.sign(b"x"), b"x")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_may_read_is_not_used(mode, identity, tmp_path):
    """A key file with a wider mode is refused, with its mode, to open and to look at."""
    keys.save(identity, tmp_path)
    (tmp_path / "key.pem").chmod(mode)
    for look in (keys.load, keys.is_encrypted):
        with pytest.raises(InvalidInput, match=f"mode {mode:03o}"):
            look(tmp_path)


def test_an_existing_key_is_not_replaced(identity, tmp_path):
    """Saving over another identity would lose it for good, so it is refused and the way out is named."""
    keys.save(identity, tmp_path)
    with pytest.raises(InvalidInput, match=r"not replaced.*keys rotate"):
        keys.make(tmp_path, "shop")
    assert keys.load(tmp_path).fingerprint == identity.fingerprint


def test_a_new_key_file_is_private_whatever_the_umask(identity, tmp_path):
    """Even when the process lets everybody read its files, nobody else can read the key."""
    before = os.umask(0)
    try:
        keys.save(identity, tmp_path / "here", WORDS)
    finally:
        os.umask(before)
    assert (tmp_path / "here" / "key.pem").stat().st_mode & 0o777 == 0o600


def test_unusable_files_say_what_is_wrong(identity, tmp_path):
    """No files, no PEM, or a key and a certificate of two parties: each error names the file."""
    with pytest.raises(InvalidInput, match=r"cannot read .*key\.pem"):
        keys.load(tmp_path / "nowhere")
    keys.save(identity, tmp_path)
    (tmp_path / "certificate.pem").write_bytes(Identity.create("bank").certificate.pem)
    with pytest.raises(InvalidInput, match=r"key\.pem: the key does not belong to the certificate"):
        keys.load(tmp_path)
    (tmp_path / "certificate.pem").write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match=r"certificate\.pem: this is not a certificate"):
        keys.load(tmp_path)
    (tmp_path / "certificate.pem").write_bytes(identity.certificate.pem)
    (tmp_path / "key.pem").write_bytes(b"nonsense")
    with pytest.raises(InvalidInput, match=r"key\.pem: this is not a private key"):
        keys.load(tmp_path)


# --- passphrases -----------------------------------------------------------------------------------------------------


def test_an_encrypted_key_opens_with_its_passphrase_alone(tmp_path):
    """Right, it opens; wrong or missing, the error says so and holds neither passphrase nor key."""
    made = keys.make(tmp_path, "bank", passphrase=WORDS)
    content = (tmp_path / "key.pem").read_bytes()
    assert b"ENCRYPTED PRIVATE KEY" in content
    assert content.startswith(b"Hedgerow-Passphrase: scrypt n=")
    assert keys.is_encrypted(tmp_path)
    assert keys.load(tmp_path, WORDS).fingerprint == made.fingerprint
    with pytest.raises(InvalidInput, match="does not open") as problem:
        keys.load(tmp_path, "correct horse batterz")
    assert "horse" not in str(problem.value)
    with pytest.raises(InvalidInput, match=r"encrypted and no passphrase was given.*HEDGEROW_PASSPHRASE"):
        keys.load(tmp_path)


def test_a_real_key_is_stretched_with_64_mebibytes(tmp_path, monkeypatch):
    """The cost that is written into files is scrypt's with n = 65,536 and r = 8."""
    monkeypatch.undo()
    assert (keys._SCRYPT_N, keys._SCRYPT_R) == (2**16, 8)
    keys.make(tmp_path, "bank", passphrase=WORDS)
    assert b"scrypt n=65536 r=8 p=1 salt=" in (tmp_path / "key.pem").read_bytes()
    assert keys.load(tmp_path, WORDS).certificate.names == ("bank",)


def test_a_key_encrypted_elsewhere_opens_too(identity, tmp_path):
    """Without our line in front, the passphrase is used as it is, as other programs do."""
    keys.save(identity, tmp_path)
    (tmp_path / "key.pem").write_bytes(identity.encrypted_key_pem(WORDS.encode()))
    assert keys.load(tmp_path, WORDS).fingerprint == identity.fingerprint


@pytest.mark.parametrize(
    "numbers", ["n=3 r=8 p=1", "n=4194304 r=8 p=1", "n=16 r=0 p=1", "n=16 r=99 p=1", "n=16 r=8 p=0"]
)
def test_a_key_file_cannot_ask_for_any_amount_of_memory(numbers, tmp_path):
    """Costs that we never write are refused before anything is computed."""
    keys.make(tmp_path, "bank", passphrase=WORDS)
    path = tmp_path / "key.pem"
    path.write_bytes(path.read_bytes().replace(b"n=16 r=8 p=1", numbers.encode()))
    with pytest.raises(InvalidInput, match="asks for scrypt with"):
        keys.load(tmp_path, WORDS)


def test_the_environment_has_the_passphrase(tmp_path, monkeypatch):
    """HEDGEROW_PASSPHRASE opens the key where none is given."""
    keys.make(tmp_path, "bank", passphrase=WORDS)
    monkeypatch.setenv("HEDGEROW_PASSPHRASE", WORDS)
    assert keys.load(tmp_path).certificate.names == ("bank",)
    assert keys.stored_passphrase(None) == WORDS


def test_nobody_is_asked_for_a_key_in_the_clear(identity, tmp_path):
    """The question is put only if the answer is needed."""

    def ask():
        raise AssertionError

    keys.save(identity, tmp_path)
    assert keys.load(tmp_path, ask).fingerprint == identity.fingerprint


def test_a_passphrase_file_is_private_and_not_empty(tmp_path):
    """Its first line counts; one that others can read, that is empty or that is not there is refused."""
    path = tmp_path / "words"
    path.write_text(f"{WORDS}\nsecond line\n", encoding="utf-8")
    path.chmod(0o600)
    assert keys.stored_passphrase(path) == WORDS
    path.chmod(0o644)
    with pytest.raises(InvalidInput, match="may be read by others"):
        keys.stored_passphrase(path)
    path.chmod(0o600)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="it is empty"):
        keys.stored_passphrase(path)
    path.write_bytes(b"\xff\xff\n")
    with pytest.raises(InvalidInput, match="not text"):
        keys.stored_passphrase(path)
    with pytest.raises(InvalidInput, match="cannot read"):
        keys.stored_passphrase(tmp_path / "nowhere")


def test_a_passphrase_can_be_given_and_changed(identity, tmp_path):
    """A key in the clear gets one, one gives way to another, and the key stays the same."""
    keys.save(identity, tmp_path)
    keys.encrypt(tmp_path, WORDS)
    keys.encrypt(tmp_path, "another one", WORDS)
    assert keys.load(tmp_path, "another one").fingerprint == identity.fingerprint
    with pytest.raises(InvalidInput, match="does not open"):
        keys.load(tmp_path, WORDS)
    with pytest.raises(InvalidInput, match="does not open"):
        keys.encrypt(tmp_path, "a third one", WORDS)
    with pytest.raises(InvalidParameter, match="at least 8 characters, got 5"):
        keys.encrypt(tmp_path, "short", "another one")
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600


# --- validity and fingerprints ----------------------------------------------------------------------------------------


def test_a_certificate_lasts_825_days(tmp_path):
    """Unless another number is asked for."""
    assert 824 < keys.days_left(keys.make(tmp_path / "a", "bank").certificate) <= 825
    assert 9 < keys.days_left(keys.make(tmp_path / "b", "bank", days=10).certificate) <= 10


@pytest.mark.parametrize("days", [0, -1, 0.5, 3651, float("nan"), float("inf")])
def test_a_validity_out_of_range_is_refused(days, tmp_path):
    """No key is made for a certificate of no days, or of more than ten years."""
    with pytest.raises(InvalidParameter, match="days must be between 1 and 3650"):
        keys.make(tmp_path, "bank", days=days)
    assert list(tmp_path.iterdir()) == []


def test_an_expiring_certificate_is_told():
    """From 30 days before the end, and after it; not earlier."""
    month = Identity.create("bank", 31).certificate
    assert keys.expiry_warning(month, "bank") is None
    week = Identity.create("bank", 7).certificate
    assert "expires in 6 days" in keys.expiry_warning(week, "bank")
    past = Identity.create("bank", 7, valid_from=now() - dt.timedelta(days=8)).certificate
    assert "expired on" in keys.expiry_warning(past, "bank")


def test_a_fingerprint_is_read_out_in_groups_and_typed_in_any_way(identity):
    """Four lines of four groups; with or without spaces, colons, capitals and the prefix it is the same."""
    lines = keys.grouped(identity.fingerprint)
    assert [len(line.split()) for line in lines] == [4] * 4
    for typed in (" ".join(lines), "\n".join(lines).upper(), identity.fingerprint, f"SHA256:{'-'.join(lines)} "):
        assert keys.ungrouped(typed) == identity.fingerprint


@given(st.text(max_size=80))
def test_what_is_not_a_whole_fingerprint_is_refused(text):
    """Half of one would be compared by nobody, so all 64 digits are asked for."""
    try:
        found = keys.ungrouped(text)
    except InvalidParameter:
        return
    assert len(found) == 7 + 64


# --- rotation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("passphrase", [None, WORDS])
def test_a_rotation_keeps_the_old_key_and_the_passphrase(passphrase, tmp_path):
    """The new key has the same name and passphrase, the old one still opens where it is kept."""
    old = keys.make(tmp_path, "bank", passphrase=passphrase)
    done = keys.rotate(tmp_path, passphrase=passphrase)
    new = keys.load(tmp_path, passphrase)
    assert keys.is_encrypted(tmp_path) == (passphrase is not None)
    assert new.fingerprint == done.new.fingerprint != old.fingerprint
    assert new.certificate.key_fingerprint != old.certificate.key_fingerprint
    assert new.certificate.names == ("bank",)
    kept = tmp_path / "old-keys" / old.fingerprint.removeprefix("sha256:")
    assert keys.load(kept, passphrase).fingerprint == old.fingerprint
    assert (kept / "key.pem").stat().st_mode & 0o777 == 0o600
    assert done.succession == kept / "succession.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificate.pem", "key.pem", "old-keys"]


def test_a_rotation_with_a_wrong_passphrase_changes_nothing(tmp_path):
    """Nor does one that is asked for no days."""
    old = keys.make(tmp_path, "bank", passphrase=WORDS)
    with pytest.raises(InvalidInput, match="does not open"):
        keys.rotate(tmp_path, passphrase=WRONG)
    with pytest.raises(InvalidParameter, match="days"):
        keys.rotate(tmp_path, passphrase=WORDS, days=0)
    assert keys.load(tmp_path, WORDS).fingerprint == old.fingerprint


def test_a_certificate_of_an_authority_is_not_rotated_by_us(tmp_path):
    """It would give way to one that only those accept who pin it."""
    issued = Authority("ours").issue("bank")
    keys.save(issued, tmp_path)
    with pytest.raises(InvalidInput, match="have that authority make the new one"):
        keys.rotate(tmp_path)
    assert keys.load(tmp_path).fingerprint == issued.fingerprint
    assert not (tmp_path / "old-keys").exists()


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_machine_that_stops_while_rotating_has_a_key_afterwards(moves, tmp_path, monkeypatch):
    """However many of the files were moved in by then, the next opening finds a key with its own certificate."""
    keys.make(tmp_path, "bank")
    real, done = keys._finish_rotation, []

    def stops(folder):
        staged = folder / keys._ROTATING
        if staged.is_dir() and not done:
            done.append(True)
            for name in (keys.KEY_FILE, keys.CERTIFICATE_FILE)[:moves]:
                (staged / name).replace(folder / name)
            raise KeyboardInterrupt
        real(folder)

    monkeypatch.setattr(keys, "_finish_rotation", stops)
    with pytest.raises(KeyboardInterrupt):
        keys.rotate(tmp_path)
    found = keys.load(tmp_path)
    assert found.certificate.names == ("bank",)
    assert not (tmp_path / keys._ROTATING).exists()
    again = keys.rotate(tmp_path)
    assert again.old.fingerprint == found.fingerprint
