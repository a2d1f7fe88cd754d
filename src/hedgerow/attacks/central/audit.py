"""How much a private training or mechanism really tells: lower bounds on its epsilon, measured by an adversary.

A guarantee says what no adversary can do. An adversary who does better than that refutes it; one who does not proves
nothing, because a better one may come. So a bound found here is held against the claim, never put in its place.

Two worlds (`audit`, `audit_mechanism`). Train many times with a canary record and many times without, and reduce each
outcome to one number. Under (epsilon, delta)-DP every event E has P(E) <= e^epsilon Q(E) + delta, whichever of the two
worlds is called P. So:

    1  half of the trials choose E: a threshold, a side of it, and which world it speaks for
    2  the other half, which had no say in that, counts how often E happens in each world
    3  p, below the true P(E), and q, above the true Q(E), by Clopper and Pearson, at half of the risk each
    4  epsilon >= log((p - delta) / q), with the confidence that was asked for, over the whole procedure

With 1000 trials that see the worlds perfectly apart, the bound is about 4.9; this few cannot show more.

One run (`audit_one_run`). Many canaries, each put in or left out by its own coin, one training, and a guess for those
canaries of which the adversary is most certain. Steinke, Nasr and Jagielski 2023, corollary 5.4, bound how many guesses
can be right. Weaker than two worlds, but it costs one training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtri

from hedgerow.attacks.results import at_least, at_most, checked_confidence
from hedgerow.engine.dtypes import Bools, Floats, Ints
from hedgerow.errors import InvalidInput, InvalidParameter
from hedgerow.privacy.curves import gaussian_delta, smallest
from hedgerow.privacy.discrete_gaussian import RandomBytes

Train = Callable[[bool, int], float]
"""(with the canary?, number of the trial) -> what the adversary computes from the outcome. Numbers never repeat."""

Family = Literal["any", "gaussian"]
"""What is taken for granted: nothing, or that the training is mu-GDP for some mu (Dong, Roth and Su 2022)."""

Side = Literal["at or above", "below"]
World = Literal["with", "without"]

_MOST_THRESHOLDS = 1000
"""To choose among; with more trials than that, quantiles of them."""


class Trials(NamedTuple):
    """What the adversary computed, trial by trial, in both worlds."""

    with_canary: Floats
    without_canary: Floats


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on epsilon."""

    epsilon_lower: float
    """The true epsilon, at this delta, is not below this, or the audit met with bad luck of probability 1 - confidence.
    """
    delta: float
    confidence: float

    METHOD: ClassVar[str]

    def refutes(self, epsilon: float) -> bool:
        """Whether a claim of this epsilon, at the delta of the audit, is refuted."""
        return self.epsilon_lower > epsilon

    def verdict(self, epsilon: float, proviso: str = "") -> str:
        """The outcome in words, for those who claim this epsilon."""
        bound = (
            f"With {self.confidence:.0%} confidence epsilon is at least {self.epsilon_lower:.3g}"
            f" at delta {self.delta:g}{proviso}"
        )
        if self.refutes(epsilon):
            return f"ALARM: {bound}, more than the {epsilon:g} that was claimed: the claim is false."
        return f"{bound}; this does not contradict the claim of {epsilon:g}, and does not prove it."

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, for a privacy statement: the fields by their names, None for what is infinite."""
        plain = {name: None if value in (math.inf, -math.inf) else value for name, value in asdict(self).items()}
        return {"method": self.METHOD, **plain}


@dataclass(frozen=True)
class AuditResult(LowerBound):
    """A lower bound on epsilon from two worlds, and what it was computed from."""

    METHOD = "two worlds"

    threshold: float
    side: Side
    """The event is a statistic on this side of the threshold..."""
    world: World
    """...and speaks for this world."""
    true_positives: int
    """How often the event happened in that world..."""
    true_trials: int
    """...of this many trials; only those that did not choose the event count here."""
    false_positives: int
    false_trials: int
    family: Family = "any"
    mu_lower: float | None = None
    """A lower bound on mu; for the Gaussian family only."""

    def verdict(self, epsilon: float, proviso: str = "") -> str:
        """The outcome in words, for those who claim this epsilon."""
        if self.family == "gaussian":
            proviso += " (if the training is Gaussian DP at all)"
        return super().verdict(epsilon, proviso) + (
            f" The adversary's event happened in {self.true_positives} of {self.true_trials} trials {self.world} the"
            f" canary and in {self.false_positives} of {self.false_trials} of the others."
        )


# --- two worlds ----------------------------------------------------------------------------------------------------


def audit(
    train: Train, *, delta: float, n_trials: int, confidence: float = 0.95, family: Family = "any"
) -> AuditResult:
    """Train `n_trials` times in each world and bound epsilon from below.

    Trials must be independent: fresh noise in each, and nothing handed on. The canary and what `train` computes may
    depend on everything else that is known, but not on the outcomes of these trials.
    """
    _check(delta, confidence, family)
    return lower_bound(run_trials(train, n_trials), delta=delta, confidence=confidence, family=family)


def run_trials(train: Train, n_trials: int) -> Trials:
    """Numbers 0 to n - 1 go to trainings with the canary, n to 2n - 1 to those without."""
    if n_trials < 4:
        raise InvalidParameter(f"n_trials must be at least 4, two to choose and two to count, got {n_trials}")
    return Trials(
        np.array([train(True, trial) for trial in range(n_trials)], np.float64),
        np.array([train(False, trial) for trial in range(n_trials, 2 * n_trials)], np.float64),
    )


def audit_mechanism(
    sample: Callable[[Any, int], npt.NDArray[Any]],
    value: Any,
    neighbour: Any,
    *,
    n_samples: int,
    delta: float = 0.0,
    statistic: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
    confidence: float = 0.95,
    family: Family = "any",
) -> AuditResult:
    """The same for one mechanism on two neighbouring inputs: `sample(input, n)` gives n independent outputs at once.

    `statistic` turns the outputs into one number each, the larger the more they look like those of `value`, or the
    smaller; without one they are taken as they are.
    """
    _check(delta, confidence, family)
    outputs = (sample(value, n_samples), sample(neighbour, n_samples))
    numbers = outputs if statistic is None else tuple(statistic(own) for own in outputs)
    for own in numbers:
        if np.shape(own) != (n_samples,):
            raise InvalidInput(f"the mechanism must give one number per sample, {n_samples} in all: {np.shape(own)}")
    trials = Trials(np.asarray(numbers[0], np.float64), np.asarray(numbers[1], np.float64))
    return lower_bound(trials, delta=delta, confidence=confidence, family=family)


def lower_bound(trials: Trials, *, delta: float, confidence: float = 0.95, family: Family = "any") -> AuditResult:
    """What the trials say about epsilon: their first half chooses the event, their second half counts it.

    `family="gaussian"` needs far fewer trials. It takes for granted that the training is mu-GDP for some mu, which is
    what Gaussian noise and its accountant claim: then P(E) <= Phi(Phi^-1(Q(E)) + mu), and epsilon at delta follows from
    the bound on mu. Of any other training it says nothing.
    """
    risk = _check(delta, confidence, family) / 2.0
    chosen_by, counted = _halves(trials)
    event = _best_event(chosen_by, delta, risk, family)
    hits = [event.count(world) for world in counted]
    sizes = [len(world) for world in counted]
    true, false = (0, 1) if event.world == "with" else (1, 0)
    measured = float(
        _bounds(np.array(hits[true]), sizes[true], np.array(hits[false]), sizes[false], delta, risk, family)
    )
    measured = max(measured, 0.0)
    return AuditResult(
        measured if family == "any" else _epsilon_of_mu(measured, delta),
        delta, confidence, event.threshold, event.side, event.world,
        hits[true], sizes[true], hits[false], sizes[false],
        family, measured if family == "gaussian" else None,
    )  # fmt: skip


class _Event(NamedTuple):
    threshold: float
    side: Side
    world: World

    def count(self, statistics: Floats) -> int:
        above = int(np.count_nonzero(statistics >= self.threshold))
        return above if self.side == "at or above" else len(statistics) - above


def _halves(trials: Trials) -> tuple[Trials, Trials]:
    for own in trials:
        if own.ndim != 1 or len(own) < 4:
            raise InvalidInput(f"an audit needs one number per trial and four trials of each kind, got {own.shape}")
        if np.isnan(own).any():
            raise InvalidInput("a trial gave NaN; a statistic must say something about every outcome")
    first, second = trials
    return (
        Trials(first[: len(first) // 2], second[: len(second) // 2]),
        Trials(first[len(first) // 2 :], second[len(second) // 2 :]),
    )


def _best_event(trials: Trials, delta: float, risk: float, family: Family) -> _Event:
    """The event with the best bound on the trials that choose.

    The best of many would be one with rare luck, which the trials that count do not share. So each candidate is judged
    at a risk divided by how many there are. That is about finding a good event; the bound is sound with any.
    """
    places = np.unique(np.concatenate(trials))[1:]  # at or above the lowest of all is every outcome
    if len(places) > _MOST_THRESHOLDS:
        places = places[np.linspace(0, len(places) - 1, _MOST_THRESHOLDS).round().astype(np.int64)]
    if not len(places):
        return _Event(math.inf, "at or above", "with")
    strict = risk / (4.0 * len(places))
    above = [len(own) - np.searchsorted(np.sort(own), places, side="left") for own in trials]
    best, best_event = -math.inf, _Event(float(places[0]), "at or above", "with")
    for world, (true, false) in (("with", (0, 1)), ("without", (1, 0))):
        n_true, n_false = len(trials[true]), len(trials[false])
        for side in get_args(Side):
            hits, wrong = above[true], above[false]
            if side == "below":
                hits, wrong = n_true - hits, n_false - wrong
            bounds = _bounds(hits, n_true, wrong, n_false, delta, strict, family)
            place = int(np.argmax(bounds))
            if bounds[place] > best:
                best = float(bounds[place])
                best_event = _Event(float(places[place]), side, "with" if world == "with" else "without")
    return best_event


def _bounds(hits: Ints, n_true: int, wrong: Ints, n_false: int, delta: float, risk: float, family: Family) -> Floats:
    """Lower bounds on epsilon, or on mu, each valid for an event that was fixed beforehand; minus infinity for none."""
    p, q = at_least(hits, n_true, risk), at_most(wrong, n_false, risk)
    if family == "gaussian":
        usable = (p > 0.0) & (q < 1.0)
        return np.where(usable, ndtri(np.where(usable, p, 0.5)) - ndtri(np.where(usable, q, 0.5)), -math.inf)
    gained = p - delta
    usable = gained > 0.0
    return np.where(usable, np.log(np.where(usable, gained, 1.0)) - np.log(q), -math.inf)


def _epsilon_of_mu(mu: float, delta: float) -> float:
    """The epsilon at delta of mu-GDP, a hair less."""
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return smallest(lambda epsilon: gaussian_delta(mu, epsilon) <= delta) * (1.0 - 1e-9)


# --- one run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneRunResult(LowerBound):
    """A lower bound on epsilon from one training, and what it was computed from."""

    METHOD = "one run"

    n_canaries: int
    guesses: int
    right: int

    def verdict(self, epsilon: float, proviso: str = "") -> str:
        """The outcome in words, for those who claim this epsilon."""
        found = f"Of {self.guesses} guesses about {self.n_canaries} canaries {self.right} were right."
        return f"{super().verdict(epsilon, proviso)} {found}"


def audit_one_run(
    train: Callable[[Bools], npt.ArrayLike],
    n_canaries: int,
    *,
    guesses: int,
    delta: float,
    random: RandomBytes,
    confidence: float = 0.95,
) -> OneRunResult:
    """One training with about half of the canaries.

    `train(included)` trains with the canaries of which `included` is true and returns a score for each canary, the
    higher the more it seems to have been there. Whoever computes the scores must not look at `included`. `guesses` is
    fixed beforehand; trying several and keeping the best would be peeking.
    """
    _check(delta, confidence, "any")
    _check_guesses(n_canaries, guesses)
    drawn = np.frombuffer(random.bytes((n_canaries + 7) // 8), np.uint8)
    included = np.unpackbits(drawn, count=n_canaries).astype(np.bool_)
    scores = np.asarray(train(included.copy()), np.float64)
    return lower_bound_one_run(scores, included, guesses=guesses, delta=delta, confidence=confidence)


def lower_bound_one_run(
    scores: Floats, included: Bools, *, guesses: int, delta: float, confidence: float = 0.95
) -> OneRunResult:
    """Guess that the canaries with the highest scores were in, and as many of the lowest out.

    `included` must have been drawn by independent fair coins. Of an odd number of guesses one more is "in".
    """
    risk = _check(delta, confidence, "any")
    _check_guesses(len(scores), guesses)
    if scores.shape != included.shape or scores.ndim != 1 or np.isnan(scores).any():
        raise InvalidInput(f"one score per canary is needed, and none may be NaN: {scores.shape}, {included.shape}")
    order = np.argsort(-scores, kind="stable")
    highest, lowest = order[: (guesses + 1) // 2], order[len(order) - guesses // 2 :]
    right = int(np.count_nonzero(included[highest]) + np.count_nonzero(~included[lowest]))
    return OneRunResult(
        _one_run_epsilon(len(scores), guesses, right, delta, risk), delta, confidence, len(scores), guesses, right
    )


def one_run_p_value(n_canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely `right` guesses or more are, at most, under (epsilon, delta)-DP.

    Steinke, Nasr and Jagielski 2023, corollary 5.4. With f(v) = P(Binomial(guesses, e^epsilon / (1 + e^epsilon)) >= v):

        f(right) + 2 n_canaries delta max over i = 1 .. right of (f(right - i) - f(right)) / i

    The first term is what randomised response reaches. The second is what delta can add: it may turn some i wrong
    guesses into right ones, the more seldom the larger i is.
    """
    q = 1.0 / (1.0 + math.exp(-epsilon))
    values = np.arange(right + 1, dtype=np.float64)
    reached = np.ones(right + 1)  # reached[v] = f(v); f(0) = 1
    reached[1:] = betainc(values[1:], guesses - values[1:] + 1.0, q)
    steps = np.arange(1, right + 1)
    extra = float(np.max((reached[right - steps] - reached[right]) / steps, initial=0.0))
    return min(float(reached[right]) + 2.0 * n_canaries * delta * extra, 1.0)


def _one_run_epsilon(n_canaries: int, guesses: int, right: int, delta: float, risk: float) -> float:
    """The largest epsilon that is refuted, or 0.

    The p-value is not proved to grow with epsilon where delta plays a part. So the search goes up from 0 in small steps
    and stops at the first epsilon that is not refuted: all below, as far as the grid sees, are.
    """

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(n_canaries, guesses, right, epsilon, delta) < risk

    if not refuted(0.0):
        return 0.0
    low, step = 0.0, 0.25
    while step > 1e-6:
        if refuted(low + step):
            low += step
        else:
            step /= 2.0
    return low


# --- checks --------------------------------------------------------------------------------------------------------


def _check(delta: float, confidence: float, family: Family) -> float:
    """The risk that is left."""
    if not 0.0 <= delta < 1.0:
        raise InvalidParameter(f"delta must be at least 0 and below 1, got {delta!r}")
    if family not in get_args(Family):
        raise InvalidParameter(f"family must be one of {list(get_args(Family))}, got {family!r}")
    if family == "gaussian" and delta == 0.0:
        raise InvalidParameter("the Gaussian family has no finite epsilon at delta = 0; give the delta of the claim")
    return 1.0 - checked_confidence(confidence)


def _check_guesses(n_canaries: int, guesses: int) -> None:
    if not 1 <= guesses <= n_canaries:
        raise InvalidParameter(f"guesses must be between 1 and the number of canaries, {n_canaries}; got {guesses}")
