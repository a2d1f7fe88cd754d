"""The invitation file: a party's certificate and address, to be mailed to a partner.

It holds no secret. Its signature shows that whoever made it has the certificate's key, and that nothing in it was
changed afterwards. It does not show *who* made it: that is what the fingerprint is for, which two people compare over
the telephone before the certificate is pinned. An invitation works in one direction, so each side sends one.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from hedgerow.errors import InvalidInput, InvalidParameter, PeerRefused
from hedgerow.node import documents
from hedgerow.node.addresses import check_address
from hedgerow.node.keys import ungrouped
from hedgerow.node.peers import Peer, Peers, check_certificate, check_other_name
from hedgerow.transport.mtls import Certificate, Identity, now

FORMAT = "hedgerow invitation"
DAYS = 7.0
MOST_DAYS = 90.0
_CLOCK_DIFFERENCE = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Invitation:
    """What an invitation file says, after all that can be checked without people was checked."""

    name: str
    address: str | None
    certificate: Certificate
    made: dt.datetime
    expires: dt.datetime


def write_invitation(
    path: Path, name: str, identity: Identity, address: str | None, *, days: float = DAYS
) -> Invitation:
    """An invitation by this party, valid for some days."""
    if not 0 < days <= MOST_DAYS:
        raise InvalidParameter(f"an invitation is valid for more than 0 and at most {MOST_DAYS:g} days, got {days}")
    if address is not None:
        check_address(address)
    check_certificate(name, identity.certificate)
    made = now()
    expires = made + dt.timedelta(days=days)
    document = {
        "format": FORMAT,
        "version": documents.VERSION,
        "name": name,
        "address": address,
        "certificate": identity.certificate.pem.decode(),
        "made": documents.stamp(made),
        "expires": documents.stamp(expires),
    }
    documents.write(path, documents.sign(document, identity), mode=0o644)
    return Invitation(name, address, identity.certificate, made, expires)


def read_invitation(path: Path) -> Invitation:
    """An invitation that is whole, signed by its own key, and valid today."""
    fields: dict[str, type | tuple[type, ...]] = dict.fromkeys(
        ("name", "certificate", "made", "expires", "signature"), str
    )
    document = documents.read(path, FORMAT, {**fields, "address": (str, type(None))})
    made, expires = (documents.moment(document[key], f"{path}, {key}") for key in ("made", "expires"))
    try:
        certificate = Certificate.from_pem(document["certificate"].encode())
        documents.verify(document, certificate)
        check_certificate(document["name"], certificate)
        if document["address"] is not None:
            check_address(document["address"])
    except (PeerRefused, InvalidParameter) as problem:
        raise PeerRefused(f"{path} is damaged, or was changed after it was made: {problem}") from None
    if expires <= now():
        raise PeerRefused(f"{path} expired on {expires:%Y-%m-%d %H:%M} UTC; ask {document['name']} for a new one")
    if made > now() + _CLOCK_DIFFERENCE:
        raise PeerRefused(f"{path} was made on {made:%Y-%m-%d %H:%M} UTC, which is yet to come; compare your clocks")
    if expires - made > dt.timedelta(days=MOST_DAYS, hours=1):
        raise InvalidInput(f"{path} is valid for more than {MOST_DAYS:g} days, which none of our programs writes")
    return Invitation(document["name"], document["address"], certificate, made, expires)


def accept_invitation(peers: Peers, own: str, invitation: Invitation, fingerprint: str) -> Peer:
    """Pin what an invitation says, if its fingerprint is the one that people agreed on."""
    check_other_name(own, invitation.name)
    agreed = ungrouped(fingerprint)
    if agreed != invitation.certificate.fingerprint:
        raise PeerRefused(
            f"the invitation has the fingerprint {invitation.certificate.fingerprint}, not {agreed} as was agreed; "
            "somebody may have changed it on its way. Nothing was pinned"
        )
    return peers.add(invitation.name, invitation.certificate, invitation.address, how="invitation")
