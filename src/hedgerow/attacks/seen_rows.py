"""What every party of a vertical training knows from its first messages."""

from __future__ import annotations

from hedgerow.errors import InvalidInput
from hedgerow.protocols.vertical.common.agreement import GoAhead
from hedgerow.transport.transcripts import RECEIVED, SENT, Transcript


def n_rows_of(transcript: Transcript) -> int:
    """How many rows there were."""
    for direction in (SENT, RECEIVED):
        for message in transcript.messages(GoAhead, direction):
            return message.n_rows
    raise InvalidInput(f"the transcript of {transcript.party} does not have the beginning of a training")
