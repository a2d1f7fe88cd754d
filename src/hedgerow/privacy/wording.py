"""Privacy numbers in words: what (epsilon, delta) proves, for somebody who signs without knowing the mathematics.

All numbers are rounded against us: an epsilon, a delta or a chance up, a measured lower bound down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from hedgerow.privacy.events import Event, NonPrivate, Parallel, PoissonSampled, Repeated, walk


def up(value: float, digits: int = 5) -> str:
    """Rounded up to this many digits; "infinite" where there is no limit."""
    return _rounded(value, Context(digits, ROUND_CEILING))


def down(value: float) -> str:
    """Rounded down to four digits."""
    return _rounded(value, Context(4, ROUND_FLOOR))


def _rounded(value: float, context: Context) -> str:
    """From the shortest decimal that means the float, so that 0.1 is 0.1 and not a little more."""
    # 1.0000000000000002 is 1: what a computer's own rounding adds, and a search to 13 digits, is no news.
    exact = float(value)
    if math.isinf(exact):
        return "infinite"
    number = context.create_decimal(
        repr(float(f"{exact:.12g}") if context.rounding == ROUND_CEILING else exact)
    ).normalize()
    return f"{number:e}" if number and not Decimal("1e-4") <= abs(number) < 10**6 else f"{number:f}"


def amount(epsilon: float, delta: float) -> str:
    """(epsilon, delta) as it may be printed."""
    return f"epsilon = {up(epsilon)} and delta = {up(delta)}" if delta else f"epsilon = {up(epsilon)} (and delta = 0)"


def factor(epsilon: float) -> str:
    """e^epsilon."""
    return up(math.exp(epsilon), 3) if epsilon < 20.0 else f"e^{up(epsilon)}"


def best_chance(epsilon: float, delta: float) -> float:
    """The chance of the best guess to be right, since missed + false alarms >= 2 (1 - delta) / (1 + e^epsilon).

    Kairouz, Oh and Viswanath 2015, theorem 2.1: missed + e^epsilon false >= 1 - delta, and the same with the two
    exchanged; the sum of both, halved.
    """
    return 1.0 - (1.0 - delta) / (1.0 + math.exp(min(epsilon, 600.0)))


def best_guess(epsilon: float, delta: float) -> str:
    """How often in 100 the best guess is right."""
    return up(100.0 * best_chance(epsilon, delta), 4)


def chance_beyond(epsilon: float, delta_at: Callable[[float], float]) -> float:
    """An upper bound of the chance of results that are more than e^epsilon times as likely with the row as without.

    `delta_at` is the privacy curve. With L the logarithm of that ratio, delta(t) = E[max(0, 1 - e^(t - L))], which is
    at least (1 - e^(t - epsilon)) P(L > epsilon) for every t < epsilon. So delta(t) / (1 - e^(t - epsilon)) is a bound
    for every t, and the smallest of a few is printed. (For Gaussian noise of mu the chance itself is
    Phi(mu/2 - epsilon/mu); the bound is above it, and holds for every mechanism with that curve.)
    """
    tried = [epsilon * (1.0 - 2.0 ** (-k / 4.0)) for k in range(1, 60)] + [0.0]
    bounds = [delta_at(t) / -math.expm1(t - epsilon) for t in tried if t < epsilon]
    return min(1.0, *bounds) if bounds else 1.0


ADDED = ("with the row as without it", "whether the row was there")
REPLACED = ("with one row as with another in its place", "which of the two rows was there")
"""What two neighbours are, in words: how the two worlds are compared, and what somebody would guess."""


def what_is_proved(
    epsilon: float,
    delta: float,
    *,
    beyond: float | None = None,
    neighbours: tuple[str, str] = ADDED,
) -> list[str]:
    """What holds for every question, how rare exceptions are, how well one guesses: for both of two neighbours.

    `beyond` is `chance_beyond`; without a curve at hand it is left out, and the sentence says that it may exceed delta.
    `neighbours` says how two worlds are compared and what somebody would guess: a row, or something else, was there.
    """
    compared, guessed = neighbours
    times, plus = factor(epsilon), "" if delta == 0.0 else f", plus {up(delta)}"
    proved = (
        f"Whatever anybody asks of what was released, the chance of a yes is at most {times} times as large {compared}"
        f"{plus}; and the other way round."
    )
    rare = "may be above delta" if beyond is None else f"is at most {up(beyond, 3)}"
    exceptions = (
        f"The chance that a single result comes out which is by itself more than {times} times as likely {compared} "
        f"{rare}: delta is not that chance."
    )
    guessing = (
        f"Somebody who knows everything else, and has to guess from what was released {guessed}, is "
        f"right in at most {best_guess(epsilon, delta)} of 100 cases; blind guessing reaches 50."
    )
    return [proved, exceptions, guessing] if delta else [proved, guessing]


# --- what an event says ----------------------------------------------------------------------------------------------


def without_guarantee(event: Event) -> list[str]:
    """The reasons of all releases without one, each once."""
    return list(dict.fromkeys(part.reason for part in walk(event) if isinstance(part, NonPrivate)))


def sampling(event: Event) -> str:
    """Where the accounting counts on a row not having been in everything: in samples, or in parts that are disjoint."""
    sentences = []
    rates = sorted({part.rate for part in walk(event) if isinstance(part, PoissonSampled)})
    if rates:
        told = ", ".join(up(rate, 4) for rate in rates)
        sentences.append(
            f"It counts on sampling: each row took part with a chance of {told}, drawn independently and kept "
            "secret. If anybody learns which rows took part, the guarantee is weaker."
        )
    n_groups, n_parts = _disjoint(event)
    if n_groups == 1:
        sentences.append(f"It counts on disjoint rows: of {n_parts} parts of the training a row was in one at most.")
    elif n_groups:
        sentences.append(
            f"It counts on disjoint rows within each of {n_groups:,} groups of parts of the training: of the "
            f"parts of one group a row was in one at most, so of all of them in up to {n_groups:,}."
        )
    return " ".join(sentences) or "No sampling of rows is counted on."


def _disjoint(event: Event) -> tuple[int, int]:
    """How many groups of parts on disjoint rows there are, and the parts of all kinds of them; a part alone is none."""
    n_groups, n_parts = 0, 0
    waiting = [(event, 1)]
    while waiting:
        event, times = waiting.pop()
        if isinstance(event, Parallel) and len(event.events) > 1:
            n_groups, n_parts = n_groups + times, n_parts + len(event.events)
        inside = times * event.times if isinstance(event, Repeated) else times
        waiting += [(part, inside) for part in event.parts()]
    return n_groups, n_parts
