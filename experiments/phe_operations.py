"""What one operation of the package phe takes here: Paillier in Python, with gmpy2 if that is installed.

Whole trees with it take minutes to hours, so experiments and benchmarks count operations instead.
"""

from __future__ import annotations

import time
from importlib.util import find_spec

import numpy as np

SAMPLE = {"encrypt": 100, "add": 10_000, "decrypt": 100}
"""How many of each are timed, one after the other."""


def phe_is_there() -> bool:
    """It is needed by nothing else."""
    return find_spec("phe") is not None


def operations(bits: int) -> dict[str, float]:
    """Processor seconds of one of each, with a key of so many bits, on whole numbers as large as our gradients."""
    from phe import generate_paillier_keypair

    public, private = generate_paillier_keypair(n_length=bits)
    numbers = np.random.default_rng(0).integers(-(2**30), 2**30, SAMPLE["encrypt"]).tolist()
    start = time.process_time()
    encrypted = [public.encrypt(number) for number in numbers]
    ends = [time.process_time()]
    total = encrypted[0]
    for k in range(SAMPLE["add"]):
        total = total + encrypted[k % len(encrypted)]
    ends.append(time.process_time())
    for k in range(SAMPLE["decrypt"]):
        private.decrypt(encrypted[k % len(encrypted)])
    ends.append(time.process_time())
    taken = np.diff([start, *ends])
    return {what: float(seconds) / n for (what, n), seconds in zip(SAMPLE.items(), taken, strict=True)}
