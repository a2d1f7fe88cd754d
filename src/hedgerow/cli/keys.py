"""`hedgerow keys`: show, encrypt and rotate this party's key; follow a partner to its new one, or revoke it."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import EXIT_CODES_HELP, Outcome, not_done, print_lines, verb
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, agreed, asked, passphrase, unlocked, write_paired
from hedgerow.errors import InvalidParameter

if TYPE_CHECKING:
    from hedgerow.transport.mtls import Certificate

app = typer.Typer(
    name="keys",
    help="The key of this party and the certificates of its partners.\n\nExample: hedgerow keys show",
    epilog=EXIT_CODES_HELP,
    no_args_is_help=True,
)


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def show(*, home: HomeOption = None) -> Outcome:
    """Show this party's certificate, its partners' and what was revoked. No passphrase is needed.

    Example: hedgerow keys show
    """
    from hedgerow.node.home import Home
    from hedgerow.node.keys import expiry_warning, grouped, is_encrypted

    place = Home.find(home)
    peers = {name: place.peers.get(name) for name in place.peers.names()}
    revoked = place.peers.revoked()
    result = {
        "command": "keys show",
        "name": place.name,
        "home": place.path,
        "encrypted": is_encrypted(place.path),
        **_about(place.certificate),
        "peers": [
            {"name": name, "address": peer.address, "how": peer.how, "at": peer.at, **_about(peer.certificate)}
            for name, peer in peers.items()
        ],
        "revoked": revoked,
    }
    lines = [
        f"{place.name}: {_until(place.certificate)}, key {'encrypted' if result['encrypted'] else 'not encrypted'}",
        *(f"  {line}" for line in grouped(place.certificate.fingerprint)),
    ]
    for name, peer in peers.items():
        lines += ["", f"paired with {name} at {peer.address or 'no address'}: {_until(peer.certificate)}, {peer.how}"]
        lines += [f"  {line}" for line in grouped(peer.certificate.fingerprint)]
    lines += [f"revoked: {entry['fingerprint']} of {entry['name']}" for entry in revoked]
    for name, certificate in {place.name: place.certificate, **{n: p.certificate for n, p in peers.items()}}.items():
        warning = expiry_warning(certificate, name)
        if warning:
            say(f"hedgerow: warning: {warning}")
    return Outcome(result, lambda: print_lines(lines))


def _about(certificate: Certificate) -> dict[str, Any]:
    from hedgerow.node.keys import days_left

    return {
        "fingerprint": certificate.fingerprint,
        "valid_until": certificate.x509.not_valid_after_utc.isoformat(),
        "days_left": int(days_left(certificate)),
    }


def _until(certificate: Certificate) -> str:
    return f"valid until {certificate.x509.not_valid_after_utc:%Y-%m-%d}"


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def encrypt(
    *,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
    new_passphrase_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the new passphrase, where the key has one already."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check both passphrases; change nothing.")] = False,
) -> Outcome:
    """Encrypt the key with a passphrase, or change the passphrase that it has.

    Example: hedgerow keys encrypt
    """
    from hedgerow.node import keys
    from hedgerow.node.home import Home

    place = Home.find(home)
    was_encrypted = keys.is_encrypted(place.path)
    old = passphrase(passphrase_file, "The old passphrase") if was_encrypted else None
    source = new_passphrase_file
    if source is None and not was_encrypted:
        source = passphrase_file
    # The environment has the old passphrase, if any: a new one must be given in a file or typed.
    new = _typed_or_from(source) if was_encrypted else passphrase(source, "A new passphrase for the key", twice=True)
    keys.check_passphrase(new)
    result = {"command": "keys encrypt", "name": place.name, "key": place.key, "changed": was_encrypted}
    if dry_run:
        keys.load(place.path, old)
        return not_done(result, f"{place.key} can be encrypted; it was not changed (--dry-run).")
    keys.encrypt(place.path, new, old)
    done = "has another passphrase now" if was_encrypted else "is encrypted now"
    lines = [f"{place.key} {done}. Without the passphrase nobody can open it, and nobody can restore it."]
    return Outcome(result, lambda: print_lines(lines))


def _typed_or_from(file: Path | None) -> str:
    if file is not None:
        return passphrase(file, "")
    if not sys.stdin.isatty():
        raise InvalidParameter("the new passphrase is needed: give --new-passphrase-file FILE")
    return asked("The new passphrase", hidden=True, twice=True)


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def rotate(
    *,
    days: Annotated[float, typer.Option(help="How long the new certificate is valid.")] = 825.0,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check that the key can be rotated; make none.")] = False,
) -> Outcome:
    """Make a new key and certificate, and a file by which partners can follow. The old ones go to old-keys/.

    Example: hedgerow keys rotate
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.home import Home
    from hedgerow.node.keys import check_rotates, grouped
    from hedgerow.node.keys import rotate as rotate_key

    place = Home.find(home)
    secret = functools.cache(lambda: passphrase(passphrase_file, f"Passphrase of {place.key}"))
    before = place.identity(secret)
    result: dict[str, Any] = {"command": "keys rotate", "name": place.name, "old": before.fingerprint}
    if dry_run:
        check_rotates(place.path, before)
        return not_done(result, f"The key of {place.name} can be rotated; it was not (--dry-run).")
    done = rotate_key(place.path, days=days, passphrase=secret)
    Trail(place.audit, before).append("rotated", certificate=done.new.pem.decode())  # the old key vouches for the new
    result |= {"succession": done.succession, **_about(done.new)}
    lines = [
        f"{place.name} has a new key; {_until(done.new)}. Its fingerprint:",
        *(f"  {line}" for line in grouped(done.new.fingerprint)),
        "Until partners follow they refuse the new certificate. Send each of them this file, which is no secret:",
        f"  {done.succession}",
        f"There they say: hedgerow keys follow {done.succession.name}",
    ]
    return Outcome(result, lambda: print_lines(lines))


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def follow(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What the partner's hedgerow keys rotate wrote.")],
    *,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and its signature; pin nothing.")] = False,
) -> Outcome:
    """Pin a partner's new certificate, if the one that is pinned now signed for it.

    Example: hedgerow keys follow succession.json
    """
    from hedgerow.node.home import Home
    from hedgerow.node.keys import grouped
    from hedgerow.node.succession import follow as follow_succession
    from hedgerow.node.succession import successor

    place = Home.find(home)
    if dry_run:
        known, new = successor(place.peers, file)
        result = {"command": "keys follow", "peer": known.name, **_about(new)}
        return not_done(result, f"{known.name} can be followed to {new.fingerprint}; nothing was pinned (--dry-run).")
    identity = unlocked(place, passphrase_file)
    peer = follow_succession(place.peers, file)
    write_paired(place, identity, peer)
    result = {"command": "keys follow", "peer": peer.name, **_about(peer.certificate)}
    lines = [
        f"{peer.name} has a new certificate here, signed for by its old one; {_until(peer.certificate)}:",
        *(f"  {line}" for line in grouped(peer.certificate.fingerprint)),
    ]
    return Outcome(result, lambda: print_lines(lines))


@app.command(epilog=EXIT_CODES_HELP)
@verb("The same as JSON on stdout.")
def revoke(
    peer: Annotated[str, typer.Argument(metavar="PEER", help="The partner whose certificate must not be accepted.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be revoked; revoke nothing.")] = False,
) -> Outcome:
    """Forget a partner and never accept its certificate or key again. This cannot be undone.

    Example: hedgerow keys revoke shop
    """
    from hedgerow.node.audit import Trail
    from hedgerow.node.home import Home

    place = Home.find(home)
    peers = place.peers
    fingerprint = peers.get(peer).certificate.fingerprint
    result = {"command": "keys revoke", "peer": peer, "fingerprint": fingerprint}
    if dry_run:
        return not_done(result, f"{fingerprint} of {peer} would be revoked; it was not (--dry-run).")
    if not yes and not agreed(f"Revoke {fingerprint} of {peer} for ever?"):
        raise InvalidParameter("nothing was revoked")
    identity = unlocked(place, passphrase_file)
    peers.revoke(peer)
    Trail(place.audit, identity).append("revoked", fingerprint=fingerprint, peer=peer)
    lines = [f"{fingerprint} of {peer} is revoked. To work with {peer} again it needs a new key, and to pair again."]
    return Outcome(result, lambda: print_lines(lines))
