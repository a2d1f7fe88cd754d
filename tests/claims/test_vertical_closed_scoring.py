"""vertical.closed_scoring claims that nothing but scores is opened: what parties receive in real runs shows it.

All runs are over the same rows and model. The receiver draws the same random bytes in all of them, and the others new
ones: what it receives must be uniform given all that it knows itself. All random bytes come from fixed seeds, so the
tests end the same way every time; for other seeds false alarms have a probability below 1e-9.
"""

from __future__ import annotations

import hashlib
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

from hedgerow.crypto import choosing
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.shares import Masked
from hedgerow.protocols.services.score_closed.messages import (
    QuestionsInTrees,
    ReadyToScore,
    ScoreShare,
    ScoresWanted,
)
from hedgerow.protocols.services.score_closed.roles import FRACTION_BITS, ClosedScoringJob, encoded_leaves
from hedgerow.protocols.services.score_closed.spec import SPEC as PROTOCOL
from hedgerow.protocols.shares.messages import Dealt, MaskedWords
from hedgerow.runtime.party import Party
from hedgerow.testing.transcripts import identity_of
from hedgerow.transport.frames import decode, peek
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.mtls import TrustStore
from hedgerow.transport.transcripts import Recording
from twins.random_parts import RUN_ID, random_shared, random_vertical
from twins.uniformity import unlike_uniform

N_ROWS = 32
N_RUNS = 64
HOLDERS = ("bank", "shop", "clinic")
MODELS = {"ordinary": random_vertical, "shared": random_shared}
HEADING = 16  # bytes of what is dealt that name the step
KINDS = {kind.NAME: kind for kind in (ReadyToScore, ScoresWanted, QuestionsInTrees, ScoreShare, Dealt, MaskedWords)}


@cache
def make_case(kind):
    """A model of two trees with 8 leaves each, so that no message needs filling; and rows."""
    rng = np.random.default_rng(21)
    model = next(
        model
        for model in (MODELS[kind](rng, HOLDERS, n_trees=2, depth=3) for _ in range(100))
        if all(tree.n_leaves == 8 for tree in model.pooled.trees)
    )
    return model, model.rows(rng, N_ROWS)


def run(kind, numbers):
    """One run in memory; `numbers` says which coins each party has. The label holder's scores, and all records."""
    model, tables = make_case(kind)
    job = ClosedScoringJob(HOLDERS, "bank", "a scoring", RUN_ID, batch_rows=N_ROWS // 2)
    names, data = PROTOCOL.parties(job), model.data(tables)
    network = MemoryNetwork(names, one_core=True)
    records = {name: Recording(network.endpoint(name)) for name in names}
    parties = {name: Party(records[name], identity_of(name), TrustStore()) for name in names}
    for name, party in parties.items():
        party.rng = SecureRandom.from_seed(hashlib.sha256(f"{name} {numbers.get(name, 0)}".encode()).digest())
    outcomes = network.run({n: lambda n=n: PROTOCOL.play(parties[n], job, data.get(n)) for n in names})
    assert [outcome.error for outcome in outcomes.values() if outcome.error is not None] == []
    return outcomes["bank"].value.raw, records


def received(kind, receiver, n_runs=N_RUNS):
    """(sender, message, field or None) -> bytes [runs, bytes], of runs in which all others have new coins."""
    runs = []
    for number in range(1, n_runs + 1):
        _, records = run(kind, {name: number for name in HOLDERS if name != receiver})
        found = {}
        for passed in records[receiver].passed:
            if passed.direction == "received":
                message = decode(passed.frame, KINDS[peek(passed.frame)[0]])
                what = {Dealt: "corrections", MaskedWords: "words", ScoreShare: "words"}.get(type(message))
                piece = np.frombuffer(passed.frame, np.uint8) if what is None else getattr(message, what)
                if type(message) is Dealt:
                    found.setdefault((passed.peer, "heading"), []).append(piece[:HEADING])
                    piece = piece[HEADING:]
                found.setdefault((passed.peer, type(message)), []).append(piece)
        runs.append({key: np.concatenate(pieces) for key, pieces in found.items()})
    return {key: np.stack([each[key] for each in runs]) for key in runs[0]}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("receiver", ["bank", "shop"])
def test_all_that_a_party_receives_is_uniform_or_the_same_in_all_runs(kind, receiver):
    """Masked words, what is dealt, and each single share of the scores; all else does not depend on anybody's coins."""
    found = received(kind, receiver)
    uniform = {(other, MaskedWords) for other in HOLDERS if other != receiver} | {("dealer", Dealt)}
    if receiver == "bank":
        uniform |= {(other, ScoreShare) for other in HOLDERS[1:]}
    assert uniform <= set(found)
    for key, words in found.items():
        if key in uniform:
            assert words.shape[1] >= 8 * N_ROWS
            assert unlike_uniform(words) == [], key
        else:
            assert (words == words[0]).all(), key


@pytest.mark.parametrize("kind", MODELS)
def test_shares_make_the_scores_and_nothing_else(kind):
    """Whatever the coins, scores are the same, bit for bit: with all but one share uniform, the sum is all there is."""
    first, _ = run(kind, {})
    for number in range(1, 6):
        scores, _ = run(kind, dict.fromkeys(HOLDERS, number))
        assert np.array_equal(scores, first)


def test_a_missing_mask_is_found():
    """The control: where bits are opened without the mask, or with one that is half as long, the test fails."""

    def unmasked(name, x, a):
        return Masked(name, x.words if x.kind.is_xor else (x - a).words, x.kind)

    def half(name, x, a):
        words = (x - a).words
        return Masked(name, (x.words & np.uint8(15)) | (words & np.uint8(240)) if x.kind.is_xor else words, x.kind)

    for instead in (unmasked, half):
        with patch.object(choosing, "masked", instead):
            words = received("ordinary", "bank", 32)["shop", MaskedWords]
        assert unlike_uniform(words) != []


# --- and what is not claimed -----------------------------------------------------------------------------------------


def test_scores_of_few_trees_tell_the_leaves_to_who_knows_their_values():
    """A limit that the page states: one leaf of each tree fits the score, and the label holder can look for them."""
    model, tables = make_case("ordinary")
    scores, _ = run("ordinary", {})
    leaves = encoded_leaves("bank", model.parts["bank"].ensemble)
    first, second = (words.view(np.int64) for words in leaves)
    sums = np.add.outer(first, second)
    found = np.rint((scores[:, 0] - model.pooled.base_scores[0]) * 2.0**FRACTION_BITS)
    truth = model.pooled.apply(model.pooled_rows(tables))
    for score, nodes in zip(found, truth, strict=True):
        fits = np.argwhere(sums == score)
        assert len(fits) == 1
        chosen = [np.flatnonzero(t.is_leaf)[leaf] for t, leaf in zip(model.pooled.trees, fits[0], strict=True)]
        assert chosen == nodes.tolist()
