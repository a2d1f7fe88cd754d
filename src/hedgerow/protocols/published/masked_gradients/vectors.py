"""Vectors over the rows of a level: noise from random words, gradients under it, sums over active sets.

The rows of a level stand node by node, within a node by number (`LevelRows`); a vector has one float32 for each.

Noise. On the active set A of a candidate in a node, n_A rows a(1) < a(2) < ..., the paper draws p_k ~ N(0, s1^2) and
r_k ~ N(0, s2^2) and takes b_k = p_k - p_(k-1) + r_k, indices modulo n_A. Here one e_k ~ N(0, 1) is drawn for each row,
and

    b_k = alpha e_k - beta e_(k-1),     alpha, beta = (sqrt(4 s1^2 + s2^2) +- s2) / 2.

The law is the same. Both are Gaussian with mean 0, and linear in independent variables on a cycle, so all that counts
is the covariance of b_j and b_k. With S the shift by one on the cycle, b = (I - S) p + r has covariance s1^2 (I - S)(I
- S') + s2^2 I = (2 s1^2 + s2^2) I - s1^2 (S + S'), and b = (alpha I - beta S) e has (alpha^2 + beta^2) I - alpha beta
(S + S'). These agree, for every n_A, because alpha^2 + beta^2 = 2 s1^2 + s2^2 and alpha beta = s1^2. With n_A = 2, S =
S'; with n_A = 1, S = I, so p_1 - p_1 = 0 and b = r ~ N(0, s2^2), here (alpha - beta) e = s2 e. Since the columns of S
sum to 1, the sum of b over the active set is (alpha - beta) times that of e: s2 sum(e), with variance n_A s2^2 and
nothing of s1 in it. With s2 = 0 it is 0 but for rounding to float32. Off the active set b = sqrt(2 s1^2 + s2^2) e. So
one draw per entry serves, where the paper takes two.

Normals. The next 32 bits of the party's cryptographic generator are a uniform number; the inverse of the normal
distribution function, by Giles' polynomials for single precision (2010), gives a float32 that is right to a few parts
in a million (beyond five standard deviations to .003) and at most 6.4 in size. That is good enough to look like the
paper's noise. It is no sampler for differential privacy, and need not be, since the mechanism protects nothing anyway.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hedgerow.compiling import kernel
from hedgerow.crypto.csprng import CHUNK_BYTES, SecureRandom
from hedgerow.engine.dtypes import Bytes, Floats, Int32s, Ints, RowIds, Scores
from hedgerow.engine.threads import Team
from hedgerow.protocols.vertical.common.joint_forest import JointRows

_CHUNK = 1024
_ENTRIES_WORTH_A_THREAD = 60_000
MOST_NORMAL = 6.5
"""No normal that is made of 32 bits is larger in size: 6.4, and room for rounding."""

Float32s = npt.NDArray[np.float32]


def random_words(random: SecureRandom, shape: tuple[int, ...]) -> Int32s:
    """Uniform 32-bit words, the next ones of the generator; in pieces that stay in the cache."""
    drawn = np.empty(math.prod(shape), np.int32)
    step = CHUNK_BYTES // 4
    for first in range(0, len(drawn), step):
        piece = drawn[first : first + step]
        piece[:] = np.frombuffer(random.bytes(4 * len(piece)), np.dtype("<i4"))
    return drawn.reshape(shape)


def on_spheres(random: SecureRandom, n: int, radius: Floats, n_vectors: int) -> Floats:
    """Points on spheres of these radii [nodes], uniformly: [n, nodes, vectors]; with one vector, plus or minus."""
    words = random_words(random, (n, len(radius), n_vectors))
    points = np.empty(words.shape, np.float32)
    standard_normals(words.reshape(-1), points.reshape(-1))
    points[points == 0.0] = 2.0**-20  # cannot be normalised; happens once in millions of draws, and only rounding does
    directions = points.astype(np.float64)
    directions *= (radius / np.sqrt((directions**2).sum(axis=2)))[..., None]
    return directions


class LevelRows(NamedTuple):
    """The rows of the nodes of a level, node by node, within each by number."""

    order: RowIds
    starts: Ints

    @classmethod
    def of(cls, rows: JointRows) -> LevelRows:
        """Those of the active nodes."""
        nodes = [np.sort(rows.of_node(node)) for node in range(len(rows.node_counts))]
        return cls(np.concatenate(nodes), np.cumsum([0, *map(len, nodes)]))

    @property
    def n_nodes(self) -> int:
        """Nodes of the level."""
        return len(self.starts) - 1

    @property
    def n_rows(self) -> int:
        """Rows in any of them."""
        return len(self.order)

    @property
    def counts(self) -> Ints:
        """Rows of each node."""
        return np.diff(self.starts)

    def sums(self, values: Ints) -> Ints:
        """Sums of whole numbers, one for each row of the table, over the rows of each node."""
        running = np.concatenate([[0], np.cumsum(values[self.order])])
        found: Ints = running[self.starts[1:]] - running[self.starts[:-1]]
        return found


def side_by_side(n_threads: int, work: Callable[..., None], n: int, entries: int, *arrays: Any) -> None:
    """work(start, stop, ...) for all of 0..n: in as many parts as there are threads, if that pays."""
    n_tasks = min(n_threads, n) if entries >= _ENTRIES_WORTH_A_THREAD else 1
    cuts = [n * part // max(n_tasks, 1) for part in range(n_tasks + 1)]
    Team(n_threads).run(work, [(a, b, *arrays) for a, b in itertools.pairwise(cuts)])


@kernel
def standard_normals(words: Int32s, out: Scores) -> None:
    """out[i] = the number that a standard normal exceeds with the chance that words[i] stands for.

    Loops over pieces of a chunk without branches or calls, so that each is vectorised.
    """
    scratch = np.empty(_CHUNK, np.float32)
    bits = scratch.view(np.int32)
    fraction = np.empty(_CHUNK, np.float32)
    fraction_bits = fraction.view(np.int32)
    exponent = np.empty(_CHUNK, np.float32)
    half, one = np.float32(0.5), np.float32(1.0)
    for first in range(0, words.shape[0], _CHUNK):
        n = min(_CHUNK, words.shape[0] - first)
        drawn, made = words[first : first + n], out[first : first + n]
        for i in range(n):
            word = drawn[i]
            p = (np.float32(word ^ (word >> np.int32(31))) + half) * np.float32(2.0**-32)  # smaller tail, in (0, 1/2)
            scratch[i] = np.float32(4.0) * p * (one - p)
            made[i] = one - np.float32(2.0) * p
        for i in range(n):
            fraction_bits[i] = (bits[i] & np.int32(0x7FFFFF)) | np.int32(0x3F800000)
            exponent[i] = np.float32((bits[i] >> np.int32(23)) - np.int32(127))
        for i in range(n):
            # -log(4 p (1 - p)), as in the Cephes library: fraction in [1/sqrt 2, sqrt 2), then a polynomial
            large = fraction[i] > np.float32(1.41421356)
            f = (fraction[i] * half if large else fraction[i]) - one
            e = exponent[i] + one if large else exponent[i]
            z = f * f
            y = np.float32(7.0376836292e-2) * f + np.float32(-1.1514610310e-1)
            y = y * f + np.float32(1.1676998740e-1)
            y = y * f + np.float32(-1.2420140846e-1)
            y = y * f + np.float32(1.4249322787e-1)
            y = y * f + np.float32(-1.6668057665e-1)
            y = y * f + np.float32(2.0000714765e-1)
            y = y * f + np.float32(-2.4999993993e-1)
            y = y * f + np.float32(3.3333331174e-1)
            scratch[i] = -(f + (y * f * z - half * z) + e * np.float32(0.69314718))
        for i in range(n):
            w = max(scratch[i], np.float32(0.0))
            c = w - np.float32(2.5)
            near = np.float32(2.81022636e-08) * c + np.float32(3.43273939e-07)
            near = near * c + np.float32(-3.5233877e-06)
            near = near * c + np.float32(-4.39150654e-06)
            near = near * c + np.float32(0.00021858087)
            near = near * c + np.float32(-0.00125372503)
            near = near * c + np.float32(-0.00417768164)
            near = near * c + np.float32(0.246640727)
            near = near * c + np.float32(1.50140941)
            t = np.sqrt(w) - np.float32(3.0)
            far = np.float32(-0.000200214257) * t + np.float32(0.000100950558)
            far = far * t + np.float32(0.00134934322)
            far = far * t + np.float32(-0.00367342844)
            far = far * t + np.float32(0.00573950773)
            far = far * t + np.float32(-0.0076224613)
            far = far * t + np.float32(0.00943887047)
            far = far * t + np.float32(1.00167406)
            far = far * t + np.float32(2.83297682)
            size = (near if w < np.float32(5.0) else far) * made[i] * np.float32(1.41421356)
            made[i] = -size if drawn[i] < 0 else size


@kernel
def fill_noise(
    start: int,
    stop: int,
    words: Int32s,  # in  [candidates, vectors, rows]
    active: Bytes,  # in  [candidates, 256] 1: a row with this code is in the active set
    column: Ints,  # in  [candidates]
    codes: Bytes,  # in  [columns, rows] of the level
    starts: Ints,  # in  [nodes + 1]
    alpha: np.float32,
    beta: np.float32,
    off: np.float32,
    out: Float32s,  # out [candidates, vectors, rows]
) -> None:
    """The noise vectors of candidates start..stop."""
    for candidate in range(start, stop):
        in_set = active[candidate]
        values = codes[column[candidate]]
        for vector in range(words.shape[1]):
            b = out[candidate, vector]
            standard_normals(words[candidate, vector], b)
            for node in range(starts.shape[0] - 1):
                here, codes_here = b[starts[node] : starts[node + 1]], values[starts[node] : starts[node + 1]]
                last = here.shape[0] - 1
                while last >= 0 and in_set[np.uint64(codes_here[last])] == 0:
                    last -= 1
                before = here[last] if last >= 0 else np.float32(0.0)  # the cycle: before the first comes the last
                for k in range(here.shape[0]):
                    e = here[k]
                    is_active = in_set[np.uint64(codes_here[k])] != 0
                    here[k] = alpha * e - beta * before if is_active else off * e
                    before = e if is_active else before


@kernel
def add_noise(
    start: int,
    stop: int,
    exact: Float32s,  # in  [rows] of the level
    noise: Float32s,  # in  [candidates, vectors, rows]
    factors: Float32s,  # in  [candidates, nodes, vectors]
    starts: Ints,  # in  [nodes + 1]
    fresh: bool,  # in  whether `out` is still empty
    out: Float32s,  # in/out [candidates, rows]
) -> None:
    """out = exact + sum of factors times noise vectors, for candidates start..stop, one vector after the other."""
    for candidate in range(start, stop):
        masked = out[candidate]
        for vector in range(noise.shape[1]):
            b = noise[candidate, vector]
            source = exact if fresh and vector == 0 else masked
            for node in range(starts.shape[0] - 1):
                factor = factors[candidate, node, vector]
                first, end = starts[node], starts[node + 1]
                before, noise_here, after = source[first:end], b[first:end], masked[first:end]
                for k in range(after.shape[0]):
                    after[k] = before[k] + factor * noise_here[k]


@kernel
def sum_active(
    start: int,
    stop: int,
    masked: Float32s,  # in  [candidates, rows]
    active: Bytes,  # in  [candidates, 256]
    column: Ints,  # in  [candidates]
    codes: Bytes,  # in  [columns, rows] of the level
    starts: Ints,  # in  [nodes + 1]
    sums: Floats,  # out [candidates, nodes]
) -> None:
    """Sums over the active rows of each node, for candidates start..stop. In doubles: exact for whole numbers."""
    for candidate in range(start, stop):
        in_set = active[candidate].astype(np.float64)
        values = codes[column[candidate]]
        row = masked[candidate]
        for node in range(starts.shape[0] - 1):
            here, codes_here = row[starts[node] : starts[node + 1]], values[starts[node] : starts[node + 1]]
            first_half, second_half = 0.0, 0.0
            half = here.shape[0] // 2
            for k in range(half):
                first_half += in_set[np.uint64(codes_here[k])] * np.float64(here[k])
                second_half += in_set[np.uint64(codes_here[half + k])] * np.float64(here[half + k])
            if here.shape[0] > 2 * half:
                first_half += in_set[np.uint64(codes_here[2 * half])] * np.float64(here[2 * half])
            sums[candidate, node] = first_half + second_half
