"""A party's key and certificate on disk: made here, readable by their owner alone, encrypted on request, rotated.

`key.pem` is PKCS8. Encrypted, it starts with a line that says how the passphrase is stretched:

    Hedgerow-Passphrase: scrypt n=65536 r=8 p=1 salt=...
    -----BEGIN ENCRYPTED PRIVATE KEY-----

The encryption that `cryptography` offers for PKCS8 stretches a passphrase by 2,048 rounds of PBKDF2 only, which a
graphics card tries by the million each second. So its password is what scrypt makes of the passphrase, with 64 MiB per
guess. A file without that line, made by another program, is opened with the passphrase as it is.

Rotating makes a new key. The old one is kept in `old-keys/`, and its last act is to sign the new certificate
(`succession.py`), so that peers who pinned the old one can follow.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused
from hedgerow.node.documents import read_bounded, write_whole
from hedgerow.node.succession import write_succession
from hedgerow.runtime.saved_files import private_folder
from hedgerow.transport.mtls import Certificate, Identity, now

DAYS = 825
"""How long a certificate is valid; what browsers long took for the most."""
MOST_DAYS = 3650
WARN_DAYS = 30
VARIABLE = "HEDGEROW_PASSPHRASE"
KEY_FILE, CERTIFICATE_FILE, OLD_KEYS, SUCCESSION_FILE = "key.pem", "certificate.pem", "old-keys", "succession.json"
SHORTEST_PASSPHRASE = 8

Passphrase = str | Callable[[], str] | None
"""A passphrase, what asks for it if it is needed, or None: the environment may have it."""

_ROTATING = ".rotating"
_MOST_BYTES = 16 * 1024
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**16, 8, 1
_STRETCHED = re.compile(rb"\AHedgerow-Passphrase: scrypt n=(\d{1,7}) r=(\d{1,2}) p=(\d) salt=([0-9a-f]{32})\n")
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


def make(folder: Path, name: str, *, days: float = DAYS, passphrase: str | None = None) -> Identity:
    """A new key with its certificate in the folder. An existing key is never replaced."""
    if not 1 <= days <= MOST_DAYS:
        raise InvalidParameter(f"days must be between 1 and {MOST_DAYS}, got {days}")
    identity = Identity.create(name, days)
    save(identity, folder, passphrase)
    return identity


def save(identity: Identity, folder: Path, passphrase: str | None = None) -> None:
    """Write both into the folder, the key for its owner alone to read. An existing key is never replaced."""
    private_folder(folder)
    content = _key_text(identity, passphrase)
    try:
        # The mode is given at creation: there is no moment at which others could open the file.
        descriptor = os.open(folder / KEY_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        check_no_key(folder)
        raise
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fsync(file.fileno())
    write_whole(folder / CERTIFICATE_FILE, identity.certificate.pem, mode=0o644)


def check_no_key(folder: Path) -> None:
    """InvalidInput if the folder holds a key."""
    if (folder / KEY_FILE).exists():
        raise InvalidInput(
            f"there is a key already in {folder}; it is not replaced. For a new one: hedgerow keys rotate"
        )


def load(folder: Path, passphrase: Passphrase = None) -> Identity:
    """Read what `save` wrote; a key file that others could read is refused."""
    _finish_rotation(folder)
    content = _read_key(folder / KEY_FILE)
    certificate = read_certificate(folder)
    return _opened(content, certificate, folder / KEY_FILE, passphrase)


def read_certificate(folder: Path) -> Certificate:
    """The party's own certificate, for which no passphrase is needed."""
    path = folder / CERTIFICATE_FILE
    try:
        return Certificate.from_pem(read_bounded(path, _MOST_BYTES))
    except PeerRefused as problem:
        raise InvalidInput(f"{path}: {problem}") from None


def is_encrypted(folder: Path) -> bool:
    """Does the key need a passphrase?"""
    return _ENCRYPTED in _read_key(folder / KEY_FILE)


def encrypt(folder: Path, new: str, old: Passphrase = None) -> None:
    """Encrypt the key at rest, or change its passphrase."""
    identity = load(folder, old)
    write_whole(folder / KEY_FILE, _key_text(identity, new))


def days_left(certificate: Certificate) -> float:
    """Until it expires; negative afterwards."""
    return (certificate.x509.not_valid_after_utc - now()).total_seconds() / 86_400


def expiry_warning(certificate: Certificate, whose: str) -> str | None:
    """A sentence if it expires within 30 days, or has expired."""
    left = days_left(certificate)
    if left >= WARN_DAYS:
        return None
    day = f"{certificate.x509.not_valid_after_utc:%Y-%m-%d}"
    if left < 0:
        return f"the certificate of {whose} expired on {day}: hedgerow keys rotate makes a new one, then pair again"
    return (
        f"the certificate of {whose} expires in {int(left)} days, on {day}: hedgerow keys rotate makes a new one that "
        "peers can follow as long as the old one is valid"
    )


# --- fingerprints as people read them ---------------------------------------------------------------------------------


def grouped(fingerprint: str) -> list[str]:
    """A fingerprint in four lines of four groups of four, to be read out."""
    digits = fingerprint.removeprefix("sha256:")
    groups = [digits[k : k + 4] for k in range(0, len(digits), 4)]
    return [" ".join(groups[k : k + 4]) for k in range(0, len(groups), 4)]


def ungrouped(text: str) -> str:
    """A fingerprint as somebody typed it, in the form that certificates state."""
    digits = re.sub(r"[\s:.-]", "", text.strip().lower().removeprefix("sha256:"))
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise InvalidParameter(
            f"a fingerprint has 64 hexadecimal digits, got {len(digits)} characters; all of it must be compared"
        )
    return f"sha256:{digits}"


# --- passphrases -----------------------------------------------------------------------------------------------------


def stored_passphrase(file: Path | None) -> str | None:
    """The passphrase in a file that only its owner can read, or else that of the environment, if there is one."""
    if file is None:
        return os.environ.get(VARIABLE) or None
    line = _read_key(file).split(b"\n")[0].removesuffix(b"\r")
    try:
        found = line.decode()
    except UnicodeDecodeError:  # which would show the passphrase
        raise InvalidInput(f"the first line of {file} must be the passphrase, and it is not text in UTF-8") from None
    if not found:
        raise InvalidInput(f"the first line of {file} must be the passphrase, and it is empty")
    return found


def check_passphrase(passphrase: str) -> str:
    """The passphrase itself, if it is not too short to protect anything."""
    if len(passphrase) < SHORTEST_PASSPHRASE:
        raise InvalidParameter(
            f"a passphrase has at least {SHORTEST_PASSPHRASE} characters, got {len(passphrase)}; several words are best"
        )
    return passphrase


def _key_text(identity: Identity, passphrase: str | None) -> bytes:
    if passphrase is None:
        return identity.key_pem
    salt = secrets.token_bytes(16)
    line = f"Hedgerow-Passphrase: scrypt n={_SCRYPT_N} r={_SCRYPT_R} p={_SCRYPT_P} salt={salt.hex()}\n"
    password = _stretched(check_passphrase(passphrase), salt, _SCRYPT_N, _SCRYPT_R, _SCRYPT_P)
    return line.encode() + identity.encrypted_key_pem(password)


def _stretched(passphrase: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    """In hexadecimal digits, so that other programs can be given it as a password."""
    return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase.encode()).hex().encode()


def _opened(content: bytes, certificate: Certificate, path: Path, passphrase: Passphrase) -> Identity:
    password = None
    if _ENCRYPTED in content:
        given = passphrase() if callable(passphrase) else passphrase or os.environ.get(VARIABLE)
        if not given:
            raise InvalidInput(
                f"{path} is encrypted and no passphrase was given: use --passphrase-file, or set {VARIABLE}"
            )
        password = given.encode()
        how = _STRETCHED.match(content)
        if how:
            n, r, p = (int(number) for number in how.groups()[:3])
            if n.bit_count() != 1 or not 2 <= n <= 2**20 or not 1 <= r <= 16 or p < 1:
                raise InvalidInput(f"{path} is damaged: its first line asks for scrypt with n={n}, r={r}, p={p}")
            password = _stretched(given, bytes.fromhex(how[4].decode()), n, r, p)
            content = content[how.end() :]
    try:
        return Identity.from_pem(content, certificate.pem, password)
    except InvalidInput as problem:
        if password is not None and problem.__cause__ is not None:  # it was decrypted to nonsense
            raise InvalidInput(f"the passphrase does not open {path}, or that file is damaged") from None
        raise InvalidInput(f"{path}: {problem}") from None


def _read_key(path: Path) -> bytes:
    """What is in a file that nobody but its owner may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777  # of the file that is read, whatever the name leads to now
            content = file.read(_MOST_BYTES)
    except OSError as problem:
        raise InvalidInput(f"cannot read {path}: {problem.strerror}") from None
    if mode & 0o077:
        raise InvalidInput(f"{path} may be read by others (mode {mode:03o}); make it 600 if nobody has read it")
    return content


# --- a new key in place of an old one ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rotation:
    """What came of a rotation: fingerprints before and after, and the file that peers follow."""

    old: Certificate
    new: Certificate
    succession: Path


def rotate(folder: Path, *, days: float = DAYS, passphrase: Passphrase = None) -> Rotation:
    """A new key and certificate, under the same passphrase; the old ones go to `old-keys/` and sign the new ones.

    The new pair is put together beside the old one and moved in at the end. If the machine stops on the way, the next
    `load` ends the move, or the old key is still in place.
    """
    given: list[str] = []

    def ask() -> str:
        found = passphrase() if callable(passphrase) else passphrase or os.environ.get(VARIABLE) or ""
        given.append(found)
        return found

    old = load(folder, ask)
    check_rotates(folder, old)
    kept = private_folder(folder / OLD_KEYS / old.fingerprint.removeprefix("sha256:"))
    for name in (KEY_FILE, CERTIFICATE_FILE):
        write_whole(kept / name, (folder / name).read_bytes())
    staged = folder / f"{_ROTATING}.{secrets.token_hex(4)}.partial"
    try:
        new = make(staged, old.certificate.names[0], days=days, passphrase=given[0] if given else None)
        write_succession(kept / SUCCESSION_FILE, old, new.certificate)
        staged.rename(folder / _ROTATING)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    _finish_rotation(folder)
    return Rotation(old.certificate, new.certificate, kept / SUCCESSION_FILE)


def check_rotates(folder: Path, old: Identity) -> None:
    """InvalidInput if this party cannot make the next certificate itself."""
    if old.certificate.x509.issuer != old.certificate.x509.subject or len(old.certificate.names) != 1:
        raise InvalidInput(f"the certificate in {folder} is an authority's work; have that authority make the new one")


def _finish_rotation(folder: Path) -> None:
    """Move in what a rotation put together. What is there under that name is whole: it was renamed in one step."""
    staged = folder / _ROTATING
    if not staged.is_dir():
        return
    for name in (KEY_FILE, CERTIFICATE_FILE):
        if (staged / name).exists():
            (staged / name).replace(folder / name)
    staged.rmdir()
