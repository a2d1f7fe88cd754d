"""Attempts of one run on shares: processes that are killed, words that each attempt opened, and fixed random bytes."""

from __future__ import annotations

import functools
import hashlib
import os
import signal

import numpy as np
import pytest

from hedgerow.crypto.csprng import SecureRandom
from hedgerow.errors import HedgerowError
from hedgerow.runtime import processes as local_processes
from hedgerow.runtime.checkpoint import CheckpointFiles
from hedgerow.runtime.party import Party
from twins.openings import Opening


def files_in(folder, protocol, job):
    """Everybody's checkpoints as files."""
    return {name: CheckpointFiles(folder / name, protocol, job, name) for name in protocol.parties(job)}


def killed_and_resumed(protocol, job, data, folder, party, *, at):
    """SIGKILL to a party's process when the label holder reports step `at`; what the next attempt comes to.

    Returns its results and the numbers of states that everybody had when it began.
    """
    processes, files = {}, files_in(folder, protocol, job)
    run = functools.partial(local_processes.run_in_processes, protocol, job, data, None, 60.0, checkpoints=files)

    def kill(done, _total):
        if done == at:
            os.kill(processes[party].pid, signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_processes, "GRACE_SECONDS", 1.0)
        with pytest.raises(HedgerowError):
            run(kill, after_start=processes.update)
    kept = {name: each.trees for name, each in files.items()}
    results, *_ = run(None, attempt=2)
    return results, kept


def words_in_common(attempts, receiver, fields):
    """Of each attempt, what a party was sent in the messages that all attempts had: kind of message -> its field.

    For `openings.repeated_masks`: the attempts play the same tree over the same rows, and begin alike.
    """
    found = []
    for played in attempts:
        words = {
            f"{kind.NAME} {k}": getattr(message, field)
            for kind, field in fields.items()
            for k, message in enumerate(played.recording(receiver).messages(kind, "received"))
        }
        found.append({name: each[: len(each) // 4 * 4].copy().view(np.uint32) for name, each in words.items()})
    alike = [name for name in found[0] if len({each.get(name, np.empty(0)).shape for each in found}) == 1]
    return [[Opening(name, words[name]) for name in alike] for words in found]


def fix_coins(patch):
    """Every party draws the same random bytes in every attempt of every run; only tests may do that."""

    def rng(party):
        return SecureRandom.from_seed(hashlib.sha256(party.name.encode()).digest())

    fixed = functools.cached_property(rng)
    fixed.__set_name__(Party, "rng")
    patch.setattr(Party, "rng", fixed)
