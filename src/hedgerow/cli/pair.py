"""`hedgerow pair`: pin a partner's certificate, by a short code over the telephone or by an invitation file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow.cli.outcome import Outcome, print_lines, verb
from hedgerow.cli.telling import say
from hedgerow.cli.unlocking import HomeOption, PassphraseFileOption, agreed, asked, unlocked, write_paired
from hedgerow.errors import InvalidParameter, PeerRefused

if TYPE_CHECKING:
    from hedgerow.node.home import Home
    from hedgerow.node.peers import Peer


@verb("The same as JSON on stdout; code and questions stay on stderr.")
def pair(
    address: Annotated[
        str | None, typer.Argument(metavar="HOST:PORT", help="Dial a partner that listens there and type its code.")
    ] = None,
    *,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Listen there and show a code; otherwise on `bind` of party.toml."),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where the partner can dial this party; otherwise `advertise` of party.toml."
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(help="How long to listen.")] = 10.0,
    write_invitation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an invitation to be mailed to a partner.")
    ] = None,
    days: Annotated[float, typer.Option(help="How long the invitation is valid.")] = 7.0,
    accept_invitation: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Accept an invitation that a partner wrote.")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="DIGITS", help="The partner's fingerprint as told on the telephone; otherwise a question."
        ),
    ] = None,
    home: HomeOption = None,
    passphrase_file: PassphraseFileOption = None,
) -> Outcome:
    """Pair with a partner: both sides pin each other's certificate.

    One side listens and reads out the code that it shows; the other dials and types it.

    Or both write an invitation, mail it, and compare fingerprints on the telephone.

    Example: hedgerow pair bank.example.org:7341
    """
    from hedgerow.node.home import Home

    given = [
        way
        for way, value in (
            ("HOST:PORT", address),
            ("--listen", listen),
            ("--write-invitation", write_invitation),
            ("--accept-invitation", accept_invitation),
        )
        if value is not None
    ]
    if len(given) > 1:
        raise InvalidParameter(f"{' and '.join(given)} do not go together; choose one way to pair")
    if fingerprint is not None and accept_invitation is None:
        raise InvalidParameter("--fingerprint goes with --accept-invitation only")
    place = Home.find(home)
    identity = unlocked(place, passphrase_file)
    if accept_invitation is not None:
        return _paired(place, identity, _accepted(place, accept_invitation, fingerprint))
    shown = _advertised(place, advertise)
    if write_invitation is not None:
        return _invited(write_invitation, place.name, identity, shown, days)
    if address is not None:
        from hedgerow.node.pairing import dial

        found = dial(identity, place.name, place.peers, address, asked("Code"), advertise=shown)
        return _paired(place, identity, found)
    return _paired(place, identity, _listened(place, identity, listen, shown, minutes))


def _advertised(home: Home, given: str | None) -> str | None:
    """Where partners dial this party; None if they never do."""
    return given if given is not None else home.party_file.network.advertise


def _listened(home: Home, identity: Any, listen: str | None, advertise: str | None, minutes: float) -> Peer:
    from hedgerow.node.pairing import ATTEMPTS, Listener

    bind = listen or home.party_file.network.bind
    if bind is None:
        raise InvalidParameter(
            "say where to listen, --listen HOST:PORT or [network] bind in party.toml; or whom to dial: hedgerow pair "
            "HOST:PORT"
        )
    with Listener(
        identity, home.name, home.peers, bind, advertise=advertise, minutes=minutes, told=lambda line: say(f"  {line}")
    ) as listener:
        say(f"Listening on port {listener.port}. Read this code to your partner, and to nobody else:")
        say(f"  Code: {listener.code}")
        say(f"It is good for one partner, {minutes:g} minutes and {ATTEMPTS} attempts (26.6 bits, drawn at random).")
        return listener.wait()


def _accepted(home: Home, file: Path, fingerprint: str | None) -> Peer:
    from hedgerow.node.invitation import accept_invitation, read_invitation
    from hedgerow.node.keys import grouped

    invitation = read_invitation(file)
    if fingerprint is None:
        say(f"An invitation of {invitation.name}, at {invitation.address or 'no address'}. Its fingerprint:")
        for line in grouped(invitation.certificate.fingerprint):
            say(f"  {line}")
        if not agreed(f"Did {invitation.name} read you exactly this fingerprint, over the telephone?"):
            raise PeerRefused("the fingerprint was not confirmed; nothing was pinned")
        fingerprint = invitation.certificate.fingerprint
    return accept_invitation(home.peers, home.name, invitation, fingerprint)


def _invited(file: Path, name: str, identity: Any, address: str | None, days: float) -> Outcome:
    from hedgerow.node.invitation import write_invitation
    from hedgerow.node.keys import grouped

    made = write_invitation(file, name, identity, address, days=days)
    result = {
        "command": "pair",
        "way": "write invitation",
        "file": file,
        "name": name,
        "address": address,
        "fingerprint": identity.fingerprint,
        "expires": made.expires.isoformat(timespec="seconds"),
    }
    lines = [
        f"{file} is an invitation by {name}, good until {made.expires:%Y-%m-%d %H:%M} UTC.",
        f"Mail it to your partner, who says: hedgerow pair --accept-invitation {file.name}",
        "On the telephone, read out this fingerprint:",
        *(f"  {line}" for line in grouped(identity.fingerprint)),
        "It works in one direction: your partner mails you one as well.",
    ]
    return Outcome(result, lambda: print_lines(lines))


def _paired(home: Home, identity: Any, peer: Peer) -> Outcome:
    from hedgerow.node.keys import grouped

    write_paired(home, identity, peer)
    result = {
        "command": "pair",
        "way": peer.how,
        "peer": peer.name,
        "address": peer.address,
        "fingerprint": peer.certificate.fingerprint,
    }
    both = "both sides have" if peer.how == "code" else "this side has"
    lines = [f"Paired with {peer.name} ({peer.address or 'it dials, nobody dials it'}); {both} pinned the certificate:"]
    lines += [f"  {line}" for line in grouped(peer.certificate.fingerprint)]
    return Outcome(result, lambda: print_lines(lines))
