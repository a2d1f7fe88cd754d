"""Parties for tests: identities that know each other, an authority of one's own, endpoints joined over loopback."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hedgerow.engine.losses import BoostingParams
from hedgerow.runtime.protocol import Protocol, Settled
from hedgerow.transport.grpc import GrpcEndpoint
from hedgerow.transport.mtls import Certificate, Identity, TrustStore, now

_HOUR = dt.timedelta(hours=1)


def make_identities(names: Iterable[str]) -> dict[str, Identity]:
    """A new identity for each name."""
    return {name: Identity.create(name) for name in names}


def trust_in(identities: Iterable[Identity]) -> TrustStore:
    """A store with each of these pinned under its own name."""
    trust = TrustStore()
    for identity in identities:
        trust.pin(identity.certificate.names[0], identity.certificate.pem)
    return trust


def connect_star(
    listener: str,
    dialers: Sequence[str],
    *,
    identities: Mapping[str, Identity] | None = None,
    address: str | None = None,
    **settings: Any,
) -> dict[str, GrpcEndpoint]:
    """Endpoints in this process: one listens, the others dial it (at `address` if given) and are connected."""
    identities = identities or make_identities([listener, *dialers])
    trust = trust_in(identities.values())
    settings = {"run_id": "test", "connect_timeout": 20.0, **settings}
    middle = GrpcEndpoint(listener, identities[listener], trust, peers=dialers, listen="127.0.0.1:0", **settings)
    endpoints = {listener: middle}
    for name in dialers:
        dial = {listener: address or f"127.0.0.1:{middle.port}"}
        endpoints[name] = GrpcEndpoint(name, identities[name], trust, peers=[listener], dial=dial, **settings)
    for endpoint in endpoints.values():
        endpoint.wait_connected()
    return endpoints


class Authority:
    """A certificate authority as an organisation may run one for its partners."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder(self._subject, self._subject, self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() - _HOUR)
            .not_valid_after(now() + 24 * _HOUR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        )
        self.certificate = Certificate(builder.sign(self._key, hashes.SHA256()))

    def issue(self, name: str, days: float = 1, *, valid_from: dt.datetime | None = None) -> Identity:
        """A key, and the certificate that the authority makes for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        start = valid_from or now() - _HOUR
        builder = (
            x509.CertificateBuilder(self._subject, x509.Name([]), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + dt.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        )
        return Identity(key, Certificate(builder.sign(self._key, hashes.SHA256())))


def asked(
    protocol: Protocol,
    parties: tuple[str, ...],
    run_id: str,
    task: str,
    boosting: BoostingParams | None,
    max_bins: int,
    options: Mapping[str, Any] | None = None,
    label_holder: str | None = None,
) -> Any:
    """The job that a protocol makes of what somebody asks for."""
    settled = Settled(parties, run_id, task, boosting or BoostingParams(), max_bins, label_holder)
    return protocol.job.from_user(options or {}, settled)
