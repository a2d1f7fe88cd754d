"""What a feature holder of vertical.noised_gradients knows beside the noise: from its transcript and its columns."""

from __future__ import annotations

import numpy as np

from hedgerow.engine.dtypes import Ints
from hedgerow.protocols.vertical.noised_gradients.feature_holder import feature_holder
from hedgerow.protocols.vertical.noised_gradients.job import NoisedGradientsJob
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData
from hedgerow.transport.mtls import Identity, TrustStore
from hedgerow.transport.transcripts import Replaying, Transcript


def gradients_of_scores(transcript: Transcript, data: PartyData, job: NoisedGradientsJob) -> Ints:
    """[trees, rows] what the scores before each tree add to gradients, in units, by the feature holder's own account.

    Its role is played again on what it received, so all of this follows from released numbers.
    """
    seen: list[Ints] = []
    again = Party(Replaying(transcript), Identity.create(transcript.party, days=1), TrustStore())
    feature_holder(again, job, data, lambda gradients: seen.append(gradients.copy()))
    return np.array(seen)
