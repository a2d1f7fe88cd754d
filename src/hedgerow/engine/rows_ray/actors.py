"""Blocks of rows in processes of Ray's, and many of them as one.

A `Holder` is an actor: it reads its own block, codes it, and applies numbered commands to a `Rows`, so a command that
comes twice is applied once. A `Crew` is all of them. What they sum is merged pairwise among themselves, in a tree:

    actor 0   sums ──add── add ──────> driver          1 -> 0 and 3 -> 2 at the same time, then 2 -> 0:
    actor 1   sums ─┘      │                           the driver receives one histogram, and all calls of a level are
    actor 2   sums ──add───┘                           on their way before the first has ended
    actor 3   sums ─┘

An actor that is lost (a process killed, a machine gone, no memory left) is replaced by one that reads the same block,
scores it with the trees there are and follows the commands since. Sums are sums of integers, so the result is the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from hedgerow.engine.binning import BinMapper, bin_counts
from hedgerow.engine.dtypes import Bytes, Floats, Ints, Scores
from hedgerow.engine.ensemble import Ensemble, Tree
from hedgerow.engine.histogram import Layout, pack
from hedgerow.engine.losses import Loss, Quantiser
from hedgerow.engine.rows import Rows
from hedgerow.engine.rows_ray.cluster import RayBackend
from hedgerow.errors import ClusterError, HedgerowError, InvalidInput, InvalidParameter, ProtocolError, plain

PLACE_SECONDS = 120.0
"""How long Ray may take to find room for an actor."""

PING_SECONDS = 15.0
"""How long an idle actor may take to say that it is there."""

Command = tuple[str, dict[str, Any]]
"""A verb of `Rows` and its arguments."""


class Own(NamedTuple):
    """An argument that is another one for every actor: each is sent its own."""

    values: Sequence[Any]


class CodedRows(NamedTuple):
    """A block as an actor holds it."""

    codes: Bytes  # [features, rows]
    labels: Floats
    weight: Floats | None
    pieces: Ints  # [pieces, 2] rows of each run of neighbours, and the number of the first in the whole table


class Named(Protocol):
    """What an actor is for; small, and told again to the one that takes its place when it is lost."""

    @property
    def name(self) -> str:
        """What errors call it."""
        ...


class Source(Named, Protocol):
    """Where an actor finds its block."""

    def read(self, mapper: BinMapper, n_threads: int) -> CodedRows:
        """The block, coded by `mapper`; the arrays belong to the caller."""
        ...


class Loader(Protocol):
    """What makes of a block what an actor works on."""

    def load(self, source: Any, state: Any) -> Any:
        """What commands are for, as it stands after what `Crew.settle` was told of; None for nothing yet."""
        ...


@dataclass(frozen=True)
class Setup:
    """Makes `Rows` of codes."""

    mapper: BinMapper
    loss: Loss
    base_scores: Floats
    quantiser: Quantiser
    n_threads: int

    def load(self, source: Source, ensemble: Ensemble | None) -> HeldRows:
        """Read the block; with a model, score it."""
        codes, labels, weight, pieces = source.read(self.mapper, self.n_threads)
        packed = pack(codes, *bin_counts(self.mapper.features), bundle=False, n_threads=self.n_threads)
        rules = (self.loss, self.base_scores, self.quantiser)
        rows = HeldRows(packed, labels, weight, *rules, n_threads=self.n_threads, pieces=pieces)
        rows.mapper, rows.first_row = self.mapper, int(pieces[0, 1])
        for number, tree in enumerate(() if ensemble is None else ensemble.trees):
            rows.add_tree(tree, number % self.loss.n_outputs)
        return rows


class HeldRows(Rows):
    """Rows that can be scored with a tree which they did not walk down, and know which part of a table they are."""

    mapper: BinMapper
    first_row: int  # its number in the whole table

    def descend(self, feature: Ints, goes_left: Bytes, *, last: bool = False) -> None:
        """As all rows do; `goes_left` comes with a bit for each code."""
        super().descend(feature, np.unpackbits(goes_left, axis=1), last=last)

    def set_scores(self, scores: Scores) -> None:
        """Stand as others have stood: scores [outputs, rows] of the whole table."""
        self.scores[:] = scores[:, self.first_row : self.first_row + self.n_rows]

    def add_tree(self, tree: Tree, output: int) -> None:
        """Score all rows; columns are features, because nothing is bundled."""
        model = Ensemble(self.mapper, "squared", np.zeros(1))
        model.add_binned(self.columns, tree, self.scores[output], n_threads=self.n_parts)


class Holder:
    """One block of rows, in a process of Ray's."""

    source: Any
    rows: Any  # what the loader has made

    def __init__(self) -> None:
        self._held: Any = None
        self._done = 0

    def ping(self) -> bool:
        """That it is there."""
        return True

    def assign(self, source: Named) -> None:
        """Say what it is for, such as the block that it is to hold. Nothing is read yet."""
        self.source = source

    def prepare(self, loader: Loader, state: Any, first: int) -> int:
        """Read the block. The next command is number `first`. Returns the number of rows."""
        self.rows = loader.load(self.source, state)
        self._done = first
        give_memory_back()
        return int(self.rows.n_rows)

    def follow(self, first: int, commands: Sequence[Command]) -> None:
        """Apply commands, of which the first has this number; those that were applied already are left out."""
        for number, (verb, arguments) in enumerate(commands, first):
            if number < self._done:
                continue
            # What comes from Ray is read-only, for which kernels would be compiled once more.
            own = {name: v.copy() if isinstance(v, np.ndarray) else v for name, v in arguments.items()}
            getattr(self.rows, verb)(**own)
            self._done = number + 1

    def sums(self, first: int, commands: Sequence[Command], nodes: Ints, *, sums: bool, counts: bool) -> list[Ints]:
        """Follow, then sum: rows of each active node; sums of `nodes`; counts of `nodes`, cells in use only."""
        self.follow(first, commands)
        rows, nodes = self.rows, nodes.copy()
        found, used = [rows.node_counts], used_cells(rows.layout)
        for wanted, of_counts in ((sums, False), (counts, True)):
            if wanted:
                cells = np.empty((len(nodes), rows.layout.n_cells), np.int64)
                rows.histograms(nodes, np.arange(len(nodes)), cells, counts=of_counts)
                found.append(cells[:, used])
        return found

    def run(self, task: Task, arguments: dict[str, Any], *, hold: bool) -> Any:
        """Do something with this block; keep the result if others are to be merged with it."""
        self._held = None
        return self._give(task(self, **arguments), hold=hold)

    def merge(self, how: Merge, other: Any, before: Any, *, hold: bool) -> Any:
        """Merge another actor's result with the one that is kept here.

        `before` is what this actor's last step gave: Ray does not take this one if that one failed.
        """
        if before is not None or self._held is None:
            raise ProtocolError("Ray: an actor was asked to merge sums, but holds none")
        return self._give(how(self._held, other), hold=hold)

    def _give(self, found: Any, *, hold: bool) -> Any:
        self._held = found if hold else None
        return None if hold else found


Task = Callable[..., Any]
"""A function of a module: a `Holder`, then named arguments."""

Merge = Callable[[Any, Any], Any]


def own_of(arguments: dict[str, Any], number: int) -> dict[str, Any]:
    """The arguments as one actor gets them."""
    return {name: v.values[number] if isinstance(v, Own) else v for name, v in arguments.items()}


def add_arrays(mine: list[Ints], theirs: list[Ints]) -> list[Ints]:
    """Arrays of two actors, added one by one."""
    return [a + b for a, b in zip(mine, theirs, strict=True)]


def scores_of(holder: Holder, first: int, commands: Sequence[Command]) -> dict[int, Scores]:
    """The scores of an actor's rows after some commands, by the number of its first row in the whole table."""
    holder.follow(first, commands)
    return {holder.rows.first_row: holder.rows.scores}


def join_parts(mine: dict[int, Any], theirs: dict[int, Any]) -> dict[int, Any]:
    """Two actors' parts of a table."""
    return mine | theirs


def give_memory_back() -> None:
    """Return what reading has left unused to the system: arrow and the C library would keep it for later."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc only
    if trim is not None:
        trim(0)


def used_cells(layout: Layout) -> Ints:
    """The places of a histogram that mean something; what lies between them is whatever was in memory."""
    return np.concatenate(
        [np.arange(first, first + n) for first, n in zip(layout.first_cell, layout.n_codes, strict=True)]
    )


class Crew:
    """Actors that hold the blocks of one table after the other."""

    def __init__(self, ray: Any, backend: RayBackend, n_actors: int) -> None:
        self._ray, self._backend = ray, backend
        self._kind = ray.remote(Holder).options(num_cpus=backend.threads, max_restarts=0, max_task_retries=0)
        self._sources: list[Named] = []
        self._forget_rows()
        self.rebuilt = 0
        """Actors that were lost and replaced."""
        _check_room(ray, backend.threads, n_actors)
        self.actors = [self._kind.remote() for _ in range(n_actors)]
        try:
            self._wait_for_room(self.actors)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the cluster its processors and memory back."""
        for actor in self.actors:
            self._ray.kill(actor, no_restart=True)
        self.actors = []

    # --- what all do -------------------------------------------------------------------------------------------------

    def assign(self, sources: Sequence[Named]) -> None:
        """Give every actor its block, or whatever it is for."""
        self._forget_rows()
        self._sources = list(sources)
        self.answers(lambda: [self._assign(number) for number in range(len(self.actors))])

    def _assign(self, number: int) -> Any:
        return self.actors[number].assign.remote(self._sources[number])

    def _forget_rows(self) -> None:
        self._loader: Loader | None = None
        self._state: Any = None
        self._commands: list[Command] = []
        self._first = self._sent = self._settled = 0  # numbers of commands: the first kept, not yet sent, not in trees

    def prepare(self, loader: Loader, state: Any = None) -> list[int]:
        """Let every actor read its block, and score it if there are trees; the rows of each."""
        self._forget_rows()
        self._loader, self._state = loader, state
        return self.answers(lambda: [self._prepare(number) for number in range(len(self.actors))])

    def _prepare(self, number: int) -> Any:
        return self.actors[number].prepare.remote(self._loader, self._state, self._settled)

    def queue(self, verb: str, **arguments: Any) -> None:
        """A command that every actor follows before it answers the next question; arguments may be its `Own`."""
        self._commands.append((verb, arguments))

    def settle(self, ensemble: Ensemble) -> None:
        """What was queued so far led to this model: whoever is lost later is scored with it instead."""
        self.settle_as(ensemble.truncated(ensemble.n_iterations))

    def settle_as(self, state: Any) -> None:
        """The same for what a loader of another kind takes."""
        self._state = state
        self._settled = self._first + len(self._commands)
        self._drop_commands()

    def _drop_commands(self) -> None:
        needed = min(self._sent, self._settled)
        del self._commands[: needed - self._first]
        self._first = needed

    def sums(self, task: Task, **arguments: Any) -> list[Ints]:
        """What a task sums over each actor's rows, added up, after all commands that are queued."""
        found: list[Ints] = self.after_commands(task, add_arrays, **arguments)
        return found

    def after_commands(self, task: Task, how: Merge, **arguments: Any) -> Any:
        """What a task gives on each block after all commands that are queued, merged."""
        commands = Own(self._commands_of_each(self._sent))
        answer = self.merged(task, {"first": self._sent, "commands": commands, **arguments}, how)
        self._sent = self._first + len(self._commands)
        self._drop_commands()
        return answer

    def _commands_of_each(self, first: int) -> list[list[Command]]:
        """The commands from number `first` on, for every actor."""
        commands = self._commands[first - self._first :]
        return [[(verb, own_of(each, number)) for verb, each in commands] for number in range(len(self.actors))]

    def each(self, task: Task, **arguments: Any) -> list[Any]:
        """What a task gives on each block."""
        return self.answers(lambda: [actor.run.remote(task, arguments, hold=False) for actor in self.actors])

    def merged(self, task: Task, arguments: dict[str, Any], how: Merge) -> Any:
        """What a task gives on each block, merged pairwise among the actors."""
        n_actors = len(self.actors)

        def ask() -> list[Any]:
            refs: dict[int, Any] = {}
            for number in reversed(range(n_actors)):
                actor, others = self.actors[number], merged_by(number, n_actors)
                ref = actor.run.remote(task, own_of(arguments, number), hold=bool(others))
                for other in others:
                    ref = actor.merge.remote(how, refs[other], ref, hold=other != others[-1])
                refs[number] = ref
            return [refs[0]]

        return self.answers(ask)[0]

    # --- when something goes wrong -----------------------------------------------------------------------------------

    def answers(self, ask: Callable[[], list[Any]]) -> list[Any]:
        """What the actors say; `ask` is called again after those that were lost on the way have been replaced."""
        while True:
            try:
                answers: list[Any] = self._ray.get(ask(), timeout=self._backend.patience)
            except Exception as problem:  # noqa: BLE001 - Ray's errors are of many kinds; each ends in one of ours
                self._recover(problem)
            else:
                return answers

    def _recover(self, problem: Exception) -> None:
        """Replace the actors that are not there any more; raise if it is not that, or if it happens too often."""
        late = isinstance(problem, self._ray.exceptions.GetTimeoutError)
        lost = self._lost(PING_SECONDS if late else self._backend.patience)
        if not lost and late:
            raise ClusterError(
                f"Ray: no answer within patience={self._backend.patience:g} seconds, although all actors are there; "
                "raise patience, or use more actors"
            ) from None
        if not lost:
            raise in_our_words(problem) from problem
        self.rebuilt += len(lost)
        for number in lost:
            name = f"the actor of {self._sources[number].name}" if self._sources else "an actor"
            if self.rebuilt > self._backend.rebuilds:
                raise ClusterError(
                    f"Ray: {name} was lost, and rebuilds={self._backend.rebuilds} lost actors were replaced already. "
                    "If its machine ran out of memory, use more actors or more machines. "
                    f"Ray says: {_first_words(problem)}"
                ) from problem
            self._ray.kill(self.actors[number], no_restart=True)
            self.actors[number] = self._kind.remote()
        self._wait_for_room([self.actors[number] for number in lost])
        since = self._commands_of_each(self._settled)

        def ask() -> list[Any]:
            again = [self._assign(number) for number in lost if self._sources]
            if self._loader is not None:
                again += [self._prepare(number) for number in lost]
                again += [self.actors[number].follow.remote(self._settled, since[number]) for number in lost]
            return again

        self.answers(ask)

    def _lost(self, patience: float) -> list[int]:
        """The actors that do not say that they are there."""
        pings = [actor.ping.remote() for actor in self.actors]
        self._ray.wait(pings, num_returns=len(pings), timeout=patience)
        lost = []
        for number, ping in enumerate(pings):
            try:
                self._ray.get(ping, timeout=0.01)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
                lost.append(number)
        return lost

    def _wait_for_room(self, actors: Sequence[Any]) -> None:
        pings = [actor.ping.remote() for actor in actors]
        there, waiting = self._ray.wait(pings, num_returns=len(pings), timeout=PLACE_SECONDS)
        if waiting:
            raise ClusterError(
                f"Ray: {len(waiting)} of {len(pings)} actors of {self._backend.threads} processors found no room "
                f"within {PLACE_SECONDS:g} seconds; use fewer actors or threads, or wait until the cluster is less busy"
            )
        try:
            self._ray.get(there)
        except Exception as problem:
            raise ClusterError(
                "Ray: an actor could not be started; hedgerow must be installed, in the same version, wherever actors "
                f"run. Ray says: {_first_words(problem)}"
            ) from problem


def merged_by(number: int, n_actors: int) -> list[int]:
    """The actors whose sums this one adds to its own, in order: a binary tree with actor 0 at its root."""
    others, stride = [], 1
    while number % (2 * stride) == 0 and number + stride < n_actors:
        others.append(number + stride)
        stride *= 2
    return others


def in_our_words(problem: Exception) -> Exception:
    """What an actor raised, as the caller would have seen it on one machine."""
    cause = getattr(problem, "cause", None) or problem
    if isinstance(cause, HedgerowError):
        return cause
    if isinstance(cause, FileNotFoundError):
        return InvalidInput(f"{cause.filename or cause} is not there any more, or not on every machine of the cluster")
    if isinstance(cause, MemoryError):
        return ClusterError(f"Ray: an actor ran out of memory ({cause}); use more actors or more machines")
    return ClusterError(f"Ray: an actor failed: {type(cause).__name__}: {_first_words(cause)}")


def _first_words(problem: BaseException) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return plain(" ".join(lines))


def _check_room(ray: Any, threads: int, n_actors: int) -> None:
    has = int(ray.cluster_resources().get("CPU", 0))
    if n_actors * threads > has:
        raise InvalidParameter(
            f"backend: {n_actors} actors of {threads} threads need {n_actors * threads} processors, and the Ray "
            f"cluster has {has}; use fewer actors or threads"
        )
