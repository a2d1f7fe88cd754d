"""A protocol as it is declared: its job with its options, its roles, messages and statement. And where each one is.

    epsilon: float | None = option(None, "of one element; math.inf is without noise", above=0, or_inf=True)
    buckets: int = option(16, "of one column, that of missing values included", at_least=2, at_most=256)

    SPEC = Protocol(Job, roles={LABEL_HOLDER: label_holder, FEATURE_HOLDER: feature_holder}, messages=(...),
                    statement=statement, warmup=warmup)

An option is declared once: its type, its range and its meaning. Checks, the sentences of errors and the tables of the
reference follow from the declaration. The annotation says the type, and whether None is accepted. A job is a frozen
dataclass of such fields and of those that are settled by whoever runs it (parties, run_id); rules across fields are in
its `check`.

`play` is one party's role, wherever it plays: as a thread, as a process, on another organisation's machine. A spec is
in `spec.py` of the protocol's folder, so that importing its messages loads no kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypedDict

import numpy as np
import numpy.typing as npt

from hedgerow.codec import AsJson
from hedgerow.engine.blocks import Blocks
from hedgerow.engine.dtypes import Bools, Floats, Scores
from hedgerow.engine.ensemble import Ensemble
from hedgerow.engine.losses import BoostingParams
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.engine.table import Level, Table
from hedgerow.errors import InvalidParameter
from hedgerow.privacy.events import Event, NonPrivate
from hedgerow.transport.endpoint import Agreed
from hedgerow.transport.frames import FORMAT_VERSION, Message, cached
from hedgerow.transport.grpc_envelope import WIRE_VERSION

if TYPE_CHECKING:
    from hedgerow.runtime.party import Party
    from hedgerow.statement import Statement

LABEL_HOLDER, FEATURE_HOLDER, DEALER = "label holder", "feature holder", "dealer"
COORDINATOR, OWNER = "coordinator", "owner"
ROWS: Literal["rows"] = "rows"
COLUMNS: Literal["columns"] = "columns"

_NOUNS: dict[Any, str] = {float: "a number", int: "a whole number", bool: "True or False", str: "text"}
_LARGEST = math.ldexp(1.0, 1023)  # whole numbers beyond it are no floats


# --- options ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is accepted, and what it is for. `words` completes "... must be", where the range does not say it well."""

    help: str
    above: float = -math.inf
    at_least: float = -math.inf
    below: float = math.inf
    at_most: float = math.inf
    or_inf: bool = False
    one_of: tuple[Any, ...] = ()
    words: str = ""
    needed: str = ""  # why there is no default; completes "... needs"
    parse: Callable[[str, Any], Any] | None = None  # (protocol, value) -> value, for what is not a number or a text
    settled: bool = False  # by whoever runs the job, so it is checked here, but is not an option of the protocol's own
    name: str = ""  # this and the rest follow from where it is declared
    kind: Any = Any
    or_none: bool = False
    default: Any = None

    def accepts(self) -> str:
        """What it must be, in words."""
        if self.words:
            return self.words
        if self.one_of:
            return f"one of {', '.join(map(str, self.one_of))}"
        noun = _NOUNS.get(self.kind) or f"a {getattr(self.kind, '__name__', 'value')}"
        low, high = self.at_least, self.at_most
        if math.isfinite(low) and math.isfinite(high):
            return f"{noun} between {low:g} and {high:g}"
        ends = {"above": self.above, "of at least": low, "below": self.below, "at most": high}
        told = " and ".join(f"{word} {limit:g}" for word, limit in ends.items() if math.isfinite(limit))
        return f"{noun} {told}".strip() + ", or math.inf" * self.or_inf

    def checked(self, protocol: str, value: Any) -> Any:
        """The value as a plain Python one; InvalidParameter, naming protocol, option and value, if it is refused.

        `protocol` is "" for parameters that belong to none.
        """
        if value is None and self.needed:
            raise InvalidParameter(f"{protocol} needs {self.needed}")
        if value is None and self.or_none:
            return None
        plain = value.item() if isinstance(value, np.generic) else value
        if self.parse is not None:
            return self.parse(protocol, plain)
        if self.kind is float and type(plain) is int and abs(plain) < _LARGEST:
            plain = float(plain)
        if not self._admits(plain):
            where = f"{protocol}: " if protocol else ""
            raise InvalidParameter(f"{where}{self.name} must be {self.accepts()}, got {value!r}")
        return plain

    def _admits(self, value: Any) -> bool:
        if self.one_of:
            return any(type(value) is type(known) and value == known for known in self.one_of)
        if self.kind in (int, float):
            if type(value) is not self.kind or (value == math.inf and not self.or_inf):
                return False
            if type(value) is int and abs(value) >= _LARGEST:
                return False
            return bool(
                value == math.inf or (self.above < value < self.below and self.at_least <= value <= self.at_most)
            )
        return self.kind is Any or isinstance(value, self.kind)


def option(default: Any, meaning: str, **rules: Any) -> Any:
    """A field that users set, with the keywords of `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help=meaning, **rules)})


@cached
def options_of(job: Any) -> tuple[Option, ...]:
    """All options of a class of jobs, in the order of its fields."""
    hints = typing.get_type_hints(job)
    found = []
    for field in dataclasses.fields(job):
        if (made := field.metadata.get("option")) is not None:
            kind, or_none = _kind_of(hints[field.name])
            one_of = made.one_of or (typing.get_args(kind) if typing.get_origin(kind) is Literal else ())
            about = {"name": field.name, "kind": kind, "or_none": or_none, "default": field.default, "one_of": one_of}
            found.append(dataclasses.replace(made, **about))
    return tuple(found)


def _kind_of(hint: Any) -> tuple[Any, bool]:
    """The type without None, and whether None was there."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else Any, len(kinds) < len(typing.get_args(hint))


# --- jobs ------------------------------------------------------------------------------------------------------------


class Settled(NamedTuple):
    """What whoever runs a training decides; the rest of its job are options."""

    parties: tuple[str, ...]
    run_id: str
    task: str
    boosting: BoostingParams
    max_bins: int
    label_holder: str | None = None


class Job(AsJson):
    """Base of all jobs: public, JSON-able, checked when it is made. A job is the same for all parties."""

    NAME: ClassVar[str]
    run_id: str

    def __post_init__(self) -> None:
        for each in options_of(type(self)):
            object.__setattr__(self, each.name, each.checked(self.NAME, getattr(self, each.name)))
        self.check()

    def check(self) -> None:
        """Rules across fields."""

    @classmethod
    def from_user(cls, options: Mapping[str, Any], settled: Settled) -> Self:
        """The job that trains with these options, with everything checked that can be checked without data."""
        del options
        raise InvalidParameter(
            f"{cls.NAME} trains nothing; make a {cls.__name__} for a trained model, got {settled.run_id!r}"
        )

    @property
    def cast(self) -> Mapping[str, str]:
        """Who plays which role: everybody who takes part, in order. The first one's result is the run's."""
        raise NotImplementedError

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Who talks to whom, as (who listens, who dials): everybody with the first, unless a job needs more."""
        first, *others = self.cast
        return tuple((first, other) for other in others)


# --- protocols -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartyData:
    """What a party brings: columns, and labels as numbers where it has labels (of its own classes, if classes).

    `weight` [rows] comes with labels, where the protocol takes weights (`Protocol.takes_weights`); None: 1 each.
    To score rows with a vertical model it brings `part`, its part of the model; to align rows, their `ids`.

    Where the protocol has public rules for rows that do not fit (`Protocol.maps_rows`), these are left to it. A label
    that is not a listed class, or missing, is then of the class None, and NaN where labels are numbers. `misfits`
    [rows] says which rows had a cell that could not be read as what its column is, such as text for a number; the
    cell counts as missing. None where nobody has looked.

    `backend` is how the party works on its rows: None, on this machine; else on a Ray cluster, where its role can
    (`Protocol.on_ray`). It is never part of a job, and no peer hears of it.

    `blocks`, where the protocol can read them (`Protocol.reads_files`), are rows in Parquet files in place of a table
    in memory: `table` then has their columns and no rows.

    `validation` [rows] marks rows that are not learned from but watched, for early stopping: of the label holder, or
    of an owner of rows. They walk down the trees as all rows do, with weight 0.

    To go on from an earlier model a party brings its `part` of it (an owner of rows: the model), and the label holder
    `init_scores` [outputs, rows], what the trees of that model add up to for each row, without the base score.
    """

    table: Table
    labels: Floats | None = None
    classes: tuple[Level | None, ...] | None = None
    n_threads: int = 1
    part: Any = None
    ids: npt.NDArray[np.generic] | None = None
    misfits: Bools | None = None
    weight: Floats | None = None
    backend: RayBackend | None = None
    blocks: Blocks | None = None
    validation: Bools | None = None
    init_scores: Scores | None = None


class TrainingRecord(TypedDict, total=False):
    """What a model says about its training, by name and type: what roles write down, and statements read.

    It is kept as a dict because it is written into model files as it is (`meta`), where readers of other versions may
    find more than is listed here. Every entry is optional: each protocol writes those that it has. Where several
    parties have parts of a model, this is what the label holder's part says; the others' parts say less.
    """

    protocol: str
    estimator: str  # the scikit-learn face of the model
    has_feature_names: bool
    stamp: str | None  # what a user must not overlook, such as "NOT PRIVATE"
    date: str
    seed: int  # where something was drawn, to go on with the same draws
    prediction_bounds: list[float]  # of a private regression: where labels can lie
    rounds: Mapping[str, int]  # of messages: "setup", before the first tree, and "training", for the trees
    attempts: int  # of a run that was broken off and taken up again
    weighted: bool  # whether rows had weights; written where they had
    learning_curve: Mapping[str, list[float]]  # name of a metric -> its values for the rows that were watched
    best_iteration: int  # with early stopping: the last iteration that was kept
    continued: Mapping[str, Any]  # the model that it goes on from: its iterations, and its run_id
    ids: Mapping[str, Any]  # where rows were matched by ids: the column, and how ids were compared
    lost_owners: Mapping[str, int]  # whom the others went on without -> number of the tree in which that was noticed

    privacy: Mapping[str, Any] | None  # epsilon, delta and accountant of the whole model; None: no noise
    edges_privacy: Mapping[str, float] | None  # of the edges of bins alone
    n_misfits_estimate: int | None  # rows that did not fit the schema, with noise
    transfers: Mapping[str, Any]  # vertical.bucket_rr: by feature holder, what it sent and what that cost
    gradient_bits: int  # fixed point of gradients on shares
    trees_left_out: int  # vertical.private_histograms: those that did not fit any more, after attempts that broke off
    last_step_left_out: bool  # likewise, of smooth_then_trees: the step of the base score
    noise: Mapping[str, Any]  # vertical.masked_gradients: as it was drawn; vertical.homomorphic: by feature holder
    theorems_would_add_up_to: Mapping[str, Any] | None  # likewise: what the paper's theorems claim
    label_recovery: Mapping[str, Any] | None  # likewise: how many labels its own messages gave away


Role = Callable[["Party", Any, PartyData | None], Any]
Rehearsal = tuple[Any, Callable[[], Mapping[str, PartyData]]]
"""A small job that needs the same kernels, and what makes up rows for it."""


class Planned(NamedTuple):
    """What a run may cost the rows of one party at most: an event, and the delta at which it is to be counted."""

    event: Event
    delta: float = 0.0


def _releases_without_noise(job: Any, party: str, data: PartyData) -> Planned | None:  # noqa: ARG001 - as all of them
    return Planned(NonPrivate(f"{job.NAME} releases without noise"))


def as_planned(epsilon: float, delta: float) -> dict[str, Any] | None:
    """What the record of a training says of its privacy if it costs what was asked for; None without noise."""
    return None if math.isinf(epsilon) else {"epsilon": epsilon, "delta": delta, "accountant": "as planned"}


def not_yet(features: str) -> dict[str, str]:
    """For `Protocol.lacks`: features, by name with spaces between, that nothing but work stands against."""
    return dict.fromkeys(features.split(), "not yet: nothing but work stands against it")


def always(_options: Mapping[str, Any], _has_labels: bool) -> bool:
    """For `Protocol.maps_rows`: whatever the options are, and whoever it is."""
    return True


@dataclass(frozen=True, eq=False)
class Protocol:
    """One protocol, declared. What a role returns has a `to_dict`, and `result` reads it."""

    job: type[Job]
    roles: Mapping[str, Role]
    messages: tuple[type[Message], ...]
    statement: Callable[[Any, Mapping[str, Any]], Statement]
    """What a finished run guarantees and what it does not, from the job and what the model says about its training."""
    warmup: Callable[[Any], Rehearsal | None]
    """For a job, one of the same kernels on made-up rows; None where no kernel is compiled."""
    result: Callable[[Mapping[str, Any]], Any] = Ensemble.from_dict
    partition: Literal["rows", "columns"] = COLUMNS
    defaults: Mapping[str, Any] | None = None
    """Of trees, where they are not the estimators'."""
    maps_rows: Callable[[Mapping[str, Any], bool], bool] = lambda _options, _has_labels: False
    """Whether the role of a party, with labels or without, has public rules for rows that do not fit these options.

    Then whoever reads the party's table must not raise because of a row either, but leaves it to the role.
    """
    takes_weights: Callable[[Mapping[str, Any]], bool] = lambda _options: False
    """Whether a party that brings labels may bring weights of its rows too, with these options."""
    planned: Callable[[Any, str, PartyData], Planned | None] = _releases_without_noise
    """What the rows that a party brings can lose at most in a run of this job, whoever learns it.

    None where nothing depends on them; an event without guarantee where something does that has none.
    """
    expected: Callable[[Any], Mapping[str, Any]] = lambda _job: {}
    """What statements read off the record of a training, if it comes to its end as planned: to be told before."""
    stamp: Callable[[Any], str | None] | None = None
    """What must be written on a model of this job, if anything; None where that depends on the run too."""
    charges_itself: Callable[[Any, str], bool] = lambda _job, _party: False
    """Whether a role calls `Party.charge`, because only on the way it learns whether the run costs anything."""
    variant: Callable[[dict[str, Any]], str | None] = lambda _options: None
    """The protocol that these options stand for, if it is another one; takes out what has been decided by that."""
    of_variants: frozenset[str] = frozenset()
    """Options that are for its variants alone."""
    part: Callable[[Mapping[str, Any]], Any] | None = None
    """Reads the part of a model that a party brings, where it brings one."""
    later: tuple[type[Message], ...] = ()
    """Messages of later attempts alone, of a run that was broken off."""
    drawn: Callable[[Any], str | None] = lambda _job: "what it does not tell"
    """What is drawn at random and stays in a model; None: the same rows and job give the same one, bit for bit."""
    on_ray: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    """Role -> None if it can work on its rows on a Ray cluster (`PartyData.backend`), else the reason why it cannot,
    as errors say it: "it runs on one machine", which is that of roles not listed."""
    lacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Features of a boosting library (`runtime.features`) that it does not offer -> why not, in one sentence."""
    reads_files: bool = False
    """Whether parties may bring `PartyData.blocks`, Parquet files that are read some rows at a time."""

    def __post_init__(self) -> None:
        """What all protocols state alike is stated here."""
        object.__setattr__(self, "statement", functools.partial(_with_attempts, self.statement))

    @property
    def name(self) -> str:
        """As users write it."""
        return self.job.NAME

    @property
    def options(self) -> frozenset[str]:
        """Parameters of its own, beside those of trees."""
        return self.of_variants | {each.name for each in options_of(self.job) if not each.settled}

    def check_weights(self, options: Mapping[str, Any], where: str) -> None:
        """InvalidParameter, unless it takes weights of rows with these options; `where` brings them, and how."""
        if not self.takes_weights(options):
            others = [name for name in names() if find(name).takes_weights({})]
            raise InvalidParameter(
                f"{where}: {self.name} takes no weights of rows{' with these options' * (self.name in others)}; leave "
                f"them out. Protocols that take weights: {', '.join(others)}"
            )

    def parties(self, job: Job) -> tuple[str, ...]:
        """Everybody who takes part; the first one's result is the run's."""
        return tuple(job.cast)

    def play(self, me: Party, job: Job, data: PartyData | None) -> Any:
        """One party's role, from the first message to the end."""
        result = self.roles[job.cast[me.name]](me, job, data)
        if me.attempt > 1 and isinstance(record := getattr(result, "meta", None), dict):
            record["attempts"] = me.attempt
        return result


def _with_attempts(
    statement: Callable[[Any, Mapping[str, Any]], Statement], job: Any, meta: Mapping[str, Any]
) -> Statement:
    """What a protocol states of a run, and how many attempts it took if there was more than one."""
    stated, attempts = statement(job, meta), meta.get("attempts", 1)
    if (earlier := meta.get("continued")) is not None:
        sentence = (
            f"The training went on from a model of {earlier['iterations']} iterations. What that one's training told "
            "and cost is in its own statement and adds to this one"
            + (
                "; its parties scored the rows of this training first, as for a prediction, and what that tells is in "
                "the threat model (vertical.scoring, vertical.closed_scoring)."
                if job.NAME.startswith("vertical")
                else "."
            )
        )
        stated = dataclasses.replace(
            stated,
            not_covered=(*stated.not_covered, sentence),
            facts={**stated.facts, "continued": dict(earlier)},
        )
    if attempts == 1:
        return stated
    sentence = (
        f"The run was broken off and taken up again: it took {attempts} attempts. Each had keys, masks and shares of "
        "its own. Noise that an earlier one may have sent was sent again as it was, or counted again."
    )
    return dataclasses.replace(
        stated, guarantee=(*stated.guarantee, sentence), facts={**stated.facts, "attempts": attempts}
    )


# --- what parties compare before their first message -----------------------------------------------------------------

OWN = frozenset({"cache"})
"""Fields of a job that say where a party keeps files of its own: folders need not have the same name everywhere."""


def agreed(protocol: Protocol, job: Any, attempt: int = 1) -> Agreed:
    """The digests of a job and of the versions of all that carries it: each party derives them from its own copy.

    A later attempt has more messages, and a number that keeps parties of an earlier one away.
    """
    more: tuple[type[Message], ...] = ()
    if attempt > 1:
        from hedgerow.runtime.checkpoint import MESSAGES

        more = (*MESSAGES, *protocol.later)
    return Agreed(
        lambda: {
            **{name: value for name, value in job.to_dict().items() if name not in OWN},
            "protocol": protocol.name,
            "wire version": WIRE_VERSION,
            "format version": FORMAT_VERSION,
            "messages": sorted((kind.NAME, kind.VERSION) for kind in (*protocol.messages, *more)),
            **({"attempt": attempt} if attempt > 1 else {}),
        }
    )


# --- where each protocol is ------------------------------------------------------------------------------------------

_TRAINING = {
    "horizontal.secure_sum": "horizontal.secure_sum",
    "vertical.bucket_rr": "vertical.bucket_rr",
    "vertical.noised_gradients": "vertical.noised_gradients",
    "vertical.homomorphic": "vertical.homomorphic",
    "vertical.masked_gradients": "published.masked_gradients",
    "vertical.private_histograms": "vertical.private_histograms",
    "vertical.secret_shared": "vertical.secret_shared",
    "vertical.mp_fedxgb": "published.mp_fedxgb",
}
_SERVICES = {
    "vertical.aligning": "services.align",
    "vertical.scoring": "services.score",
    "vertical.closed_scoring": "services.score_closed",
    "vertical.explaining": "services.explain",
}
"""Name of a protocol -> its folder in `protocols`, whose `spec` has a SPEC."""


def names() -> tuple[str, ...]:
    """All protocols that several parties can train a model with."""
    return tuple(_TRAINING)


def services() -> tuple[str, ...]:
    """What parties do together before and after training."""
    return tuple(_SERVICES)


def find(name: str) -> Protocol:
    """The protocol of this name; loaded when it is first asked for."""
    folder = _TRAINING.get(name) or _SERVICES.get(name)
    if folder is None:
        raise InvalidParameter(f"there is no protocol {name!r}; there are {', '.join(_TRAINING)}")
    found: Protocol = import_module(f"hedgerow.protocols.{folder}.spec").SPEC
    return found
