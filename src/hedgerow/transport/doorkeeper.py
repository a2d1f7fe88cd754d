"""Who may come in: the first message of every stream that arrives at a listening endpoint.

TLS has let it through, so it shows some certificate that is trusted here. Before anything else is read, that has to be
the one of a party that is expected, and the party has to say the same: its own name, ours, the run, the wire version.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hedgerow.errors import FrameError, PeerRefused, VersionMismatch
from hedgerow.transport import envelope
from hedgerow.transport.mtls import Certificate, TrustStore
from hedgerow.transport.peer_channel import PeerChannel, Terms, check_version
from hedgerow.transport.streams import Stream

_log = logging.getLogger("hedgerow")

_REFUSALS_KEPT = 10


class Doorkeeper:
    """The owner of a stream that came in, until it has said who it is."""

    def __init__(
        self, terms: Terms, trust: TrustStore, expected: Mapping[str, PeerChannel], refused: list[str]
    ) -> None:
        self._terms = terms
        self._trust = trust
        self._expected = expected
        self._refused = refused
        self._farewell: tuple[str, str] | None = None

    def on_message(self, stream: Stream, message: bytes) -> bool:
        """Check HELLO against the certificate that TLS saw; hand the stream to the peer's channel, or end it."""
        refusal: tuple[str, str] | None
        channel: PeerChannel | None = None
        try:
            channel = self._who(stream)
            check_version(message, self._terms, channel.peer)
            hello = envelope.decode_hello(message)
            if (hello.speaker, hello.listener) == (channel.peer, self._terms.me):
                refusal = channel.accept(stream, hello)
            else:
                said = f"said it was {hello.speaker!r}, and looked for {hello.listener!r}"
                refusal = ("permission_denied", f"a party with the certificate of {channel.peer} {said}")
        except VersionMismatch as mismatch:
            assert channel is not None  # noqa: S101 - versions are compared with somebody
            self._part(stream, channel, str(mismatch))
            return False
        except (PeerRefused, FrameError) as error:
            refusal = ("permission_denied", str(error))
        if refusal is not None:
            self._turn_away(stream, *refusal)
            if channel is not None and not channel.talking:
                channel.trouble = f"it came, but was turned away: {refusal[1]}"
        return refusal is None

    def wants_more(self) -> bool:
        """Only one message is expected."""
        return False

    def on_written(self, stream: Stream) -> None:
        """Our HELLO to a peer of another version has left: now the stream can end."""
        if self._farewell is not None:
            stream.end(*self._farewell)

    def on_end(self, stream: Stream, code: str, details: str) -> None:
        """Nobody was let in, so there is nothing to do."""

    def _who(self, stream: Stream) -> PeerChannel:
        if stream.peer_certificate is None:
            raise PeerRefused("a party without a certificate")
        certificate = Certificate.from_pem(stream.peer_certificate)
        for name in certificate.names:
            if name in self._expected:
                self._trust.check(name, certificate)
                return self._expected[name]
        raise PeerRefused(f"{' or '.join(certificate.names)} is not expected by {self._terms.me}")

    def _part(self, stream: Stream, channel: PeerChannel, sentence: str) -> None:
        self._farewell = ("failed_precondition", sentence)
        channel.tell_version(stream)
        channel.fail(lambda: VersionMismatch(sentence))

    def _turn_away(self, stream: Stream, code: str, sentence: str) -> None:
        _log.warning("%s: turned away a connection: %s", self._terms.me, sentence)
        if len(self._refused) < _REFUSALS_KEPT:
            self._refused.append(sentence)
        stream.end(code, sentence)
