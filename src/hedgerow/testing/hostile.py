"""A hostile peer: everybody plays by the rules, but one message of one party is not what it should be.

    for case in cases(protocol, job, data):
        ends = play_twisted(protocol, job, data, case)       in a process of its own
        assert ends.is_orderly, ends

`cases` plays the job once and looks at what everybody sends; for the first and the last message of each kind, and some
between them that are of other sizes (`per_kind`), it lists every way to twist a field: numbers out of range, arrays and
bytes too short, too long, empty, of other dimensions, with NaN and extreme values, texts too long or with control
characters. Every frame is well formed. The law is that each party ends in a HedgerowError or with a result: no crash,
no hang, no memory beyond the limit, no raw error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from hedgerow.crypto.csprng import KEY_BYTES, SecureRandom
from hedgerow.errors import HedgerowError
from hedgerow.runtime.party import Party
from hedgerow.runtime.protocol import PartyData, Protocol
from hedgerow.runtime.running import in_memory, role
from hedgerow.transport.endpoint import Endpoint
from hedgerow.transport.frames import Message, decode, encode, peek, registered
from hedgerow.transport.memory import MemoryNetwork
from hedgerow.transport.transcripts import SENT, Recording

SECONDS = 60
MEMORY = 1 << 30
"""What a twisted run may take: time until it counts as hanging (a busy machine is slow), bytes beyond the present."""


class Case(NamedTuple):
    """The `number`th frame that `sender` sends has another value in `field`."""

    sender: str
    number: int
    message: str
    field: str
    twist: str


class Ends(NamedTuple):
    """How each party ended: "finished", the name of a HedgerowError, or "raw: ..."; or how the whole process did."""

    parties: Mapping[str, str]
    process: str = "ended"
    twisted: bool = True  # False: the frame was never sent, or was of another kind

    @property
    def is_orderly(self) -> bool:
        """Whether the law holds."""
        return self.process == "ended" and not any(end.startswith("raw") for end in self.parties.values())


# --- twists ----------------------------------------------------------------------------------------------------------


def twists(value: Any) -> Iterator[tuple[str, Any]]:
    """Other values of the same type, each with a name."""
    if isinstance(value, bool):
        yield "the opposite", not value
    elif isinstance(value, int):
        yield from ((f"{other}", other) for other in (-1, 0, value + 1, -value - 2, 2**31, 2**40, 2**63 - 1, -(2**63)))
    elif isinstance(value, float):
        yield from ((f"{other}", other) for other in (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308))
    elif isinstance(value, bytes):
        yield from (
            ("empty", b""),
            ("too short", value[:-1]),
            ("too long", value + b"\0"),
            ("other", bytes(len(value))),
        )
    elif isinstance(value, str):
        yield from (("empty", ""), ("control characters", "\x1b[2J\x00" + value), ("very long", "x" * 100_000))
    elif isinstance(value, tuple):
        yield from (
            ("empty", ()),
            ("too short", value[:-1]),
            ("too long", (*value, "nobody")),
            ("others", ("?",) * len(value)),
        )
    elif isinstance(value, np.ndarray):
        yield from _array_twists(value)


def _array_twists(value: np.ndarray[Any, Any]) -> Iterator[tuple[str, Any]]:
    flat = value.reshape(-1)
    yield "empty", np.zeros((0,) * value.ndim, value.dtype)
    yield "another dimension", np.ascontiguousarray(value[None])
    if value.ndim:
        yield (
            "too long",
            np.concatenate([value, value[-1:] if len(value) else np.zeros((1, *value.shape[1:]), value.dtype)]),
        )
        yield "much too long", np.zeros((200_000, *(min(size, 8) for size in value.shape[1:])), value.dtype)
        if len(value):
            yield "too short", value[:-1].copy()
    for name, other in _extremes(value.dtype):
        yield f"all {name}", np.full(value.shape, other, value.dtype)
        if flat.size > 1:
            one = flat.copy()
            one[-1] = other
            yield f"last {name}", one.reshape(value.shape)
    if flat.size > 1:
        yield "reversed", flat[::-1].reshape(value.shape).copy()


def _extremes(dtype: np.dtype[Any]) -> list[tuple[str, Any]]:
    if dtype.kind == "f":
        largest = np.finfo(dtype).max
        return [("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("largest", largest), ("smallest", -largest)]
    if dtype.kind == "b":
        return [("true", True), ("false", False)]
    bounds = np.iinfo(dtype)
    return [("largest", bounds.max), ("smallest", bounds.min), ("zero", 0)]


# --- cases -----------------------------------------------------------------------------------------------------------


def cases(protocol: Protocol, job: Any, data: Mapping[str, PartyData], *, per_kind: int = 2) -> list[Case]:
    """All twists of this many messages of each kind that each party sends, from an honest run: the first and the last.

    Further ones are of other sizes than these: one kind of message may serve several steps.
    """
    names = protocol.parties(job)
    network = MemoryNetwork(names)
    recordings: dict[str, Recording] = {}

    def recorded(endpoint: Endpoint) -> Recording:
        recordings[endpoint.name] = Recording(endpoint)
        return recordings[endpoint.name]

    _play(protocol, job, data, network, recorded)
    found = []
    for name, recording in recordings.items():
        sent = [passed.frame for passed in recording.transcript("") if passed.direction == SENT]
        kinds = [peek(frame)[0] for frame in sent]
        for kind in dict.fromkeys(kinds):
            messages = {
                number: decode(sent[number], registered()[kind]) for number, other in enumerate(kinds) if other == kind
            }
            for number in _different(messages, per_kind):
                for field in _fields(messages[number]):
                    tried = twists(getattr(messages[number], field))
                    found += [Case(name, number, kind, field, twist) for twist, _ in tried]
    return found


def _different(messages: Mapping[int, Message], most: int) -> list[int]:
    """The first, the last, and some between them: evenly many of those whose sizes or texts are new."""
    first, last = min(messages), max(messages)
    by_sizes: dict[tuple[Any, ...], int] = {}
    for number, message in messages.items():
        values = [getattr(message, field) for field in _fields(message)]
        texts = tuple(value for value in values if isinstance(value, str))
        by_sizes.setdefault((texts, *(value.shape for value in values if isinstance(value, np.ndarray))), number)
    others = [number for number in by_sizes.values() if number not in (first, last)]
    some = [others[k * len(others) // (most - 2)] for k in range(most - 2)] if others else []
    return list(dict.fromkeys((first, *some, last)))


def part_of(found: list[Case], name: str, of: int) -> list[Case]:
    """One in `of` cases: others for each name, the same in every run. All of them with HEDGEROW_ALL_TWISTS=1."""
    return found if os.environ.get("HEDGEROW_ALL_TWISTS") else found[zlib.crc32(name.encode()) % of :: of]


def _fields(message: Message) -> list[str]:
    return [field.name for field in dataclasses.fields(message)]  # type: ignore[arg-type]  # every message is a dataclass


# --- playing ---------------------------------------------------------------------------------------------------------


class Twisting:
    """An endpoint that twists one of the frames that are sent; all else passes as it is."""

    def __init__(self, endpoint: Endpoint, case: Case) -> None:
        self._endpoint, self._case, self._sent = endpoint, case, 0
        self.has_twisted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    def send(self, to: str, frame: bytes) -> None:
        """Pass a frame on, or another one in its place."""
        case, number, self._sent = self._case, self._sent, self._sent + 1
        if number == case.number and peek(frame)[0] == case.message:
            message = decode(frame, registered()[case.message])
            value = dict(twists(getattr(message, case.field))).get(case.twist)
            if value is not None:  # the honest value differs a little from run to run
                frame = encode(_changed(message, case.field, value))
                self.has_twisted = True
        self._endpoint.send(to, frame)


def _changed(message: Message, field: str, value: Any) -> Message:
    """The same with another value, without the checks that its class makes of its own."""
    other = object.__new__(type(message))
    for name in _fields(message):
        object.__setattr__(other, name, value if name == field else getattr(message, name))
    return other


def play_twisted(protocol: Protocol, job: Any, data: Mapping[str, PartyData], case: Case) -> Ends:
    """Play the job with one twisted frame, in a forked process with limits of time and memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            virtual = _virtual_bytes()
            resource.setrlimit(resource.RLIMIT_AS, (virtual + max(MEMORY, used // 4), resource.RLIM_INFINITY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(SECONDS)
            ends = _twisted(protocol, job, data, case)
            os.write(writing, json.dumps(ends).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = signal.Signals(os.WTERMSIG(status))
        return Ends({}, "hung" if number == signal.SIGALRM else f"killed by {number.name}")
    if not said:
        return Ends({}, "ended without a word")
    parties, twisted = json.loads(said)
    return Ends(parties, twisted=twisted)


def _virtual_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a pseudo file
        return int(file.read().split()[0]) * resource.getpagesize()


def _twisted(protocol: Protocol, job: Any, data: Mapping[str, PartyData], case: Case) -> tuple[dict[str, str], bool]:
    network = MemoryNetwork(protocol.parties(job))
    hostile: list[Twisting] = []

    def twisting(endpoint: Endpoint) -> Endpoint:
        if endpoint.name != case.sender:
            return endpoint
        hostile.append(Twisting(endpoint, case))
        return hostile[0]

    outcomes = _play(protocol, job, data, network, twisting)
    return {name: _how(outcome.error) for name, outcome in outcomes.items()}, hostile[0].has_twisted


def _play(
    protocol: Protocol,
    job: Any,
    data: Mapping[str, PartyData],
    network: MemoryNetwork,
    around: Callable[[Endpoint], Endpoint],
) -> dict[str, Any]:
    names = protocol.parties(job)
    parties: dict[str, Party] = in_memory(network, names, around=around, deadline=20.0)
    for number, party in enumerate(parties.values()):
        party.rng = SecureRandom.from_seed(bytes([number]) * KEY_BYTES)  # the same frames in every run
    return network.run({name: role(protocol, parties[name], job, data.get(name)) for name in names})


def _how(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    if isinstance(error, HedgerowError):
        return type(error).__name__
    return f"raw: {type(error).__name__}: {error}"
