from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from hedgerow.crypto.csprng import SecureRandom, Unshared
from hedgerow.errors import ProtocolError

FORK = """
import os
import numpy as np
from hedgerow.crypto.csprng import SecureRandom
from hedgerow.crypto.masking import KeyPair, PairwiseMasks, Position
from hedgerow.errors import ProtocolError

rng, keys, masks = SecureRandom(), KeyPair.generate(), PairwiseMasks("anna", {"ben": os.urandom(32)})
uses = [
    lambda: rng.bytes(1),
    lambda: keys.exchange(KeyPair.generate().public),
    lambda: masks.hide(np.zeros(1, np.uint64), Position(0)),
]
child = os.fork()
if not child:
    refused = 0
    for use in uses:
        try:
            use()
        except ProtocolError:
            refused += 1
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for use in uses:
    use()
"""


def test_a_fork_cannot_use_what_it_inherited():
    """In a forked process generator, keys and masks all refuse; in the parent they go on working."""
    done = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "3"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [Unshared, SecureRandom])
def test_no_copies(make, copied):
    """No way of copying or storing works."""
    with pytest.raises(ProtocolError, match=f"{make.__name__} cannot be copied"):
        copied(make())
