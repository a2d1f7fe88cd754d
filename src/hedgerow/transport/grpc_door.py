"""Who may come in: decided for every call at a listening endpoint when it arrives, by the header that came with it.

TLS has let it through, so it shows some certificate that is trusted here. Before any message is read, that has to be
the one of a party that is expected, and the party has to say the same: its own name, ours, the run, the wire version,
the job. Nobody waits in between, so a stranger costs no more than its header, and there is nothing to be slow with.

Whoever is turned away is told one sentence about what it said itself. What is known here stays here, in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hedgerow.errors import FrameError, JobDiffers, PeerRefused, VersionMismatch, plain
from hedgerow.transport import grpc_envelope
from hedgerow.transport.grpc_channel import ANOTHER_JOB, ANOTHER_VERSION, PeerChannel, Terms, check_version
from hedgerow.transport.grpc_envelope import Hello
from hedgerow.transport.grpc_streams import ServerStream
from hedgerow.transport.mtls import Certificate, TrustStore

_log = logging.getLogger("hedgerow")

_REFUSALS_KEPT = 10  # and logged: a stranger that comes again and again must not fill the disk


class Doorkeeper:
    """Decides on the calls that come in at one endpoint."""

    def __init__(self, terms: Terms, trust: TrustStore, expected: Mapping[str, PeerChannel]) -> None:
        self._terms = terms
        self._trust = trust
        self._expected = expected
        self.refused: list[str] = []

    def receive(self, stream: ServerStream) -> bool:
        """Hand the stream to the channel of its party, or end it; whether it was let in."""
        try:
            channel = self._who(stream)
        except PeerRefused as error:
            self._turn_away(stream, "permission_denied", str(error), f"{self._terms.me} does not expect this party")
            return False
        refusal: tuple[str, str] | None
        try:
            refusal = channel.accept(stream, self._hello(stream, channel))
        except (VersionMismatch, JobDiffers) as error:
            kind, sentence = type(error), str(error)
            refusal = (ANOTHER_JOB if isinstance(error, JobDiffers) else ANOTHER_VERSION, sentence)
            channel.fail(lambda: kind(sentence))
        except FrameError as error:
            refusal = ("permission_denied", str(error))
        if refusal is None:
            return True
        self._turn_away(stream, *refusal, refusal[1])
        if not channel.talking:
            channel.trouble = f"it came, but was turned away: {refusal[1]}"
        return False

    def _who(self, stream: ServerStream) -> PeerChannel:
        if stream.peer_certificate is None:
            raise PeerRefused("a party without a certificate")
        certificate = Certificate.from_pem(stream.peer_certificate)
        for name in certificate.names:
            if name in self._expected:
                self._trust.check(name, certificate)
                return self._expected[name]
        named = plain(" or ".join(certificate.names)) or "a certificate without a name"
        raise PeerRefused(f"{named} is not expected by {self._terms.me}")

    def _hello(self, stream: ServerStream, channel: PeerChannel) -> Hello:
        me, peer = self._terms.me, channel.peer
        if not stream.hello:
            wanted = f"version {self._terms.wire_version} of the wire format asks for"
            raise FrameError(f"a call of {peer} without a HELLO in its header, which {wanted}")
        check_version(stream.hello, self._terms, peer)
        hello = grpc_envelope.decode_hello(stream.hello)
        if (hello.speaker, hello.listener) != (peer, me):
            said = plain(f"said it was {hello.speaker!r}, and looked for {hello.listener!r}")
            raise FrameError(f"a party with the certificate of {peer} {said}")
        if hello.run_id != self._terms.run_id:
            raise FrameError(f"{me} takes part in another run than {plain(repr(hello.run_id))}")
        self._terms.job.check(peer, hello.job, me)
        return hello

    def _turn_away(self, stream: ServerStream, code: str, known: str, told: str) -> None:
        stream.end(code, told)
        if len(self.refused) < _REFUSALS_KEPT:
            self.refused.append(known)
            last = "; further ones are not logged" if len(self.refused) == _REFUSALS_KEPT else ""
            _log.warning("%s: turned away a connection: %s%s", self._terms.me, known, last)
