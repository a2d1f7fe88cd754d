"""Runs of vertical.homomorphic go on after the last tree that all have kept, with keys and points that are all new."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from hedgerow.crypto import elgamal
from hedgerow.crypto.edwards25519 import AFFINE
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.noisy_sums import HolderState, LevelNoise
from hedgerow.protocols.vertical.homomorphic.spec import SPEC
from hedgerow.runtime.checkpoint import CheckpointFiles, Checkpoints
from hedgerow.schema import Schema
from twins.resuming import Broken, frames_of, resumed, some_breaks
from twins.vertical import make_data, make_job

DATA = make_data(3, n_rows=120, n_columns=6, missing=0.1)
N_TREES = 3
OF_ROWS = (messages.RowPoints, messages.EncryptedRows, messages.NodeTotals, messages.EncryptedSums)


def small(**options):
    """A job of a few trees."""
    return make_job(HomomorphicJob, DATA, n_iterations=N_TREES, max_depth=2, max_bins=6, **options)


def parts(end):
    """What everybody has in the end, but for what tells of attempts."""
    found = {name: part.to_dict() for name, part in end.results.items()}
    for part in found.values():
        part.get("meta", part.get("model", {}).get("meta", {})).pop("attempts", None)
    return found


def points_of(played, party):
    """All points that a party sent or received in an attempt, keys included."""
    recording, found = played.recording(party), set()
    for direction in ("sent", "received"):
        for kind in (*OF_ROWS, messages.TreeKeys):
            for message in recording.messages(kind, direction):
                found |= {point.tobytes() for point in message.words.reshape(-1, AFFINE)}
    return found


@pytest.mark.parametrize("options", [{}, {"fresh_randomness": True, "compressed": True}, {"scheme": "ou"}])
def test_a_run_ends_as_if_it_had_never_been_broken_off(options):
    """The same parts, bit for bit, wherever it was broken off, and however often."""
    job = small(**options)
    calm = resumed(SPEC, job, DATA, [])
    for seed in range(5):
        breaks = some_breaks(SPEC, job, calm, seed, n=1 + seed % 3)
        assert parts(resumed(SPEC, job, DATA, breaks)) == parts(calm), breaks


def several():
    """Three classes, and weights; two iterations of three trees each."""
    anna = DATA["anna"]
    labels = (anna.labels + (anna.table.columns[0].values > 0.5)).astype(np.float64)
    weight = np.arange(len(labels)) % 4 * 0.5
    data = {**DATA, "anna": replace(anna, labels=labels, classes=("a", "b", "c"), weight=weight)}
    return make_job(HomomorphicJob, data, n_iterations=2, max_depth=2, max_bins=6), data


def test_a_run_goes_on_in_the_middle_of_an_iteration():
    """After any of its trees, with the gradients that the iteration began with: no more than one tree is lost."""
    job, data = several()
    calm = resumed(SPEC, job, data, [])
    assert calm.numbers[0]["anna"] == [1, 2, 3, 4, 5, 6]
    for kept in range(1, 6):
        for done in (True, False):
            end = resumed(SPEC, job, data, [Broken("anna", keeping=kept, done=done)])
            assert parts(end) == parts(calm), (kept, done)
            assert end.numbers[1]["anna"][0] == kept + done
    for seed in range(4):
        breaks = some_breaks(SPEC, job, calm, seed, n=1 + seed % 3)
        assert parts(resumed(SPEC, job, data, breaks)) == parts(calm), breaks


def test_no_point_is_sent_in_two_attempts():
    """A tree that is grown again has keys, points of rows, totals and sums of its own: nothing to compare."""
    job = small()
    breaks = [Broken("ben", passing=12), Broken("anna", keeping=2, done=False), Broken("carla", passing=9)]
    end = resumed(SPEC, job, DATA, breaks)
    assert len(end.attempts) == 4
    seen = [points_of(attempt, "ben") for attempt in end.attempts]
    assert all(len(points) > len(DATA["ben"].table.columns) * 100 for points in seen)
    for one, other in combinations(seen, 2):
        assert not one & other


def test_other_schemes_have_a_new_key_in_every_attempt():
    """One each, whose first sender it is; and no ciphertext is sent in two of them."""
    end = resumed(SPEC, small(scheme="ou"), DATA, [Broken("ben", passing=12), Broken("anna", keeping=2, done=False)])
    assert len(end.attempts) == 3
    seen = []
    for attempt in end.attempts:
        received = attempt.recording("ben")
        (key,) = received.messages(messages.PublicKey, "received")
        rows = [m for kind in OF_ROWS for m in received.messages(kind, "received")]
        seen.append({key.words.tobytes(), *(words.tobytes() for m in rows for words in m.words)})
    assert all(len(words) > 120 for words in seen)
    for one, other in combinations(seen, 2):
        assert not one & other


def test_keys_are_new_for_every_tree_of_every_attempt():
    """As many as were sent, two each; and the points of rows are sent once per attempt."""
    end = resumed(SPEC, small(), DATA, [Broken("anna", keeping=2), Broken("ben", passing=8)])
    keys = [message.words.tobytes() for message in end.messages("ben", messages.TreeKeys, "received")]
    assert len(set(keys)) == len(keys) >= N_TREES
    singles = {
        key.tobytes() for m in end.messages("ben", messages.TreeKeys, "received") for key in m.words.reshape(-1, AFFINE)
    }
    assert len(singles) == 2 * len(keys)
    begun = [m for m in end.messages("ben", messages.RowPoints, "received") if m.first_row == 0]
    assert len(begun) <= len(end.attempts)


def test_what_is_kept_holds_no_key_and_no_randomness(monkeypatch, tmp_path):
    """Neither r of a row nor x of a tree, in any file that a party keeps."""
    secrets = set()

    class Key(elgamal.TreeKey):
        """A key whose secrets are noted."""

        def __init__(self, *given):
            super().__init__(*given)
            secrets.update(factor.tobytes() for factor in self._factors.reshape(-1, 4)[:, :2])

    class Randomness(elgamal.RowRandomness):
        """The same of rows."""

        def __init__(self, rng, n_rows):
            super().__init__(rng, n_rows)
            secrets.update(scalar.tobytes() for scalar in self._scalars[:, :2])

    monkeypatch.setattr(elgamal, "TreeKey", Key)
    monkeypatch.setattr(elgamal, "RowRandomness", Randomness)
    checkpoints = {name: CheckpointFiles(tmp_path / name, SPEC, small(), name) for name in DATA}
    resumed(SPEC, small(), DATA, [Broken("anna", keeping=2)], checkpoints)
    assert len(secrets) > 120
    files = [path.read_bytes() for path in tmp_path.rglob("*.kept")]
    assert len(files) >= len(DATA)
    assert not any(secret in content for content in files for secret in secrets)


# --- dp --------------------------------------------------------------------------------------------------------------

SCHEMA = Schema.from_public(bounds={f"x{k}": (-4.0, 4.0) for k in range(6)}, may_be_missing=True)


def opened_noise(monkeypatch):
    """Per feature holder, tree and level: all noise that was added, over all attempts."""
    found = {}
    for_level = LevelNoise.for_level

    def noting(noise, nodes, n_sums):
        drawn = for_level(noise, nodes, n_sums)
        found.setdefault((noise._me.name, noise._n_trees, noise._level), []).append(drawn.copy())
        return drawn

    monkeypatch.setattr(LevelNoise, "for_level", noting)
    return found


def test_noise_that_was_sent_is_sent_again_as_it_was(monkeypatch):
    """Wherever a run is broken off: no level of a tree has two noises, and no more are counted than were planned."""
    job = small(dp=(2.0, 1e-6), schema=SCHEMA)
    calm = resumed(SPEC, job, DATA, [])
    repeated = 0
    for seed in range(6):
        found = opened_noise(monkeypatch)
        breaks = some_breaks(SPEC, job, calm, seed, n=1 + seed % 3)
        begun = [each for each in breaks if each.done or each.keeping > 1]  # who has kept nothing cannot go on
        end = resumed(SPEC, job, DATA, begun)
        for drawn in found.values():
            repeated += len(drawn) - 1
            assert all(np.array_equal(drawn[0], other) for other in drawn[1:])
        for name in ("ben", "carla"):
            levels = [key for key in found if key[0] == name]
            last = end.checkpoints[name].load(N_TREES, HolderState)
            assert last.released == {LevelNoise.LEVELS: len(levels)}
            assert len(levels) <= 2 * N_TREES
    assert repeated > 5


def test_who_has_lost_its_noise_does_not_draw_another():
    """Checkpoints that are gone, or older than what others have kept: the run cannot go on."""
    job = small(dp=(2.0, 1e-6), schema=SCHEMA)
    broken = resumed(SPEC, job, DATA, [Broken("anna", keeping=3, done=False)], only=1)
    with pytest.raises(InvalidParameter, match=r"carla: a later attempt needs the checkpoints of the earlier ones"):
        resumed(SPEC, job, DATA, [], dict(broken.checkpoints) | {"carla": Checkpoints()}, attempts_from=2)
    old = Checkpoints()
    old.keep(0, HolderState())
    with pytest.raises(InvalidInput, match=r"a party has kept 0 trees of [23]; .* new noise"):
        resumed(SPEC, job, DATA, [], dict(broken.checkpoints) | {"carla": old}, attempts_from=2)
    with pytest.raises(InvalidParameter, match="was begun before"):
        resumed(SPEC, job, DATA, [], dict(broken.checkpoints))


def test_noise_does_not_serve_for_other_nodes():
    """What was kept for one set of nodes is refused for another."""
    job = small(dp=(2.0, 1e-6), schema=SCHEMA)
    broken = resumed(SPEC, job, DATA, [Broken("ben", keeping=2)], only=1)
    kept = broken.checkpoints["ben"].load(0, HolderState)
    broken.checkpoints["ben"].keep(0, replace(kept, nodes=("0" * 64,)))
    with pytest.raises(InvalidInput, match="must not serve twice"):
        resumed(SPEC, job, DATA, [], broken.checkpoints, attempts_from=2)


def test_every_message_can_be_the_last():
    """The label holder is lost before each frame it sends, and after each it gets."""
    job = make_job(HomomorphicJob, DATA, n_iterations=2, max_depth=2, max_bins=4)
    calm = resumed(SPEC, job, DATA, [])
    for k in range(1, frames_of(calm.attempts[0], "anna") + 1):
        assert parts(resumed(SPEC, job, DATA, [Broken("anna", passing=k)])) == parts(calm)
