"""Runs of vertical.homomorphic go on after the last tree that all have kept, with keys and points that are all new."""

from __future__ import annotations

from itertools import combinations

import pytest

from hedgerow.crypto import elgamal
from hedgerow.protocols.vertical.homomorphic import messages
from hedgerow.protocols.vertical.homomorphic.job import HomomorphicJob
from hedgerow.protocols.vertical.homomorphic.spec import SPEC
from hedgerow.runtime.checkpoint import CheckpointFiles
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
        for kind in OF_ROWS:
            for message in recording.messages(kind, direction):
                found |= {point.tobytes() for point in message.points.reshape(-1, message.points.shape[-1])}
        for message in recording.messages(messages.TreeKeys, direction):
            found |= {key.tobytes() for key in message.keys}
    return found


@pytest.mark.parametrize("options", [{}, {"fresh_randomness": True, "compressed": True}])
def test_a_run_ends_as_if_it_had_never_been_broken_off(options):
    """The same parts, bit for bit, wherever it was broken off, and however often."""
    job = small(**options)
    calm = resumed(SPEC, job, DATA, [])
    for seed in range(5):
        breaks = some_breaks(SPEC, job, calm, seed, n=1 + seed % 3)
        assert parts(resumed(SPEC, job, DATA, breaks)) == parts(calm), breaks


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


def test_keys_are_new_for_every_tree_of_every_attempt():
    """As many as were sent, two each; and the points of rows are sent once per attempt."""
    end = resumed(SPEC, small(), DATA, [Broken("anna", keeping=2), Broken("ben", passing=8)])
    keys = [message.keys.tobytes() for message in end.messages("ben", messages.TreeKeys, "received")]
    assert len(set(keys)) == len(keys) >= N_TREES
    singles = {key.tobytes() for m in end.messages("ben", messages.TreeKeys, "received") for key in m.keys}
    assert len(singles) == 2 * len(keys)
    begun = [m for m in end.messages("ben", messages.RowPoints, "received") if m.first_row == 0]
    assert len(begun) <= len(end.attempts)


def test_what_is_kept_holds_no_key_and_no_randomness(monkeypatch, tmp_path):
    """Neither r of a row nor x of a tree, in any file that a party keeps."""
    secrets = set()

    class Key(elgamal.TreeKey):
        """A key whose secrets are noted."""

        def __init__(self, rng, n_values):
            super().__init__(rng, n_values)
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


def test_every_message_can_be_the_last():
    """The label holder is lost before each frame it sends, and after each it gets."""
    job = make_job(HomomorphicJob, DATA, n_iterations=2, max_depth=2, max_bins=4)
    calm = resumed(SPEC, job, DATA, [])
    for k in range(1, frames_of(calm.attempts[0], "anna") + 1):
        assert parts(resumed(SPEC, job, DATA, [Broken("anna", passing=k)])) == parts(calm)
