"""The statement of a federated run: what is guaranteed, what that rests on, what is not covered.

It follows the pyramid of NIST SP 800-226: first who is protected and by how much, then what is assumed of the parties
and the implementation, then of the data. Words are for those who sign, `to_dict` is for machines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hedgerow._version import __version__
from hedgerow.aborts import DATA_DEPENDENT, stated

_WIDTH = 100


@dataclass(frozen=True)
class Registry:
    """The fields of the public registry of differential-privacy deployments, where a run has any such guarantee."""

    flavour: str  # "pure", "approximate", "none"
    loss: Mapping[str, Any]  # {"epsilon": 1.0, "delta": 1e-6}, and more of its own kind
    unit: str  # what is protected: "one row", "one value of one column", ...
    model: str  # "central", "local", "distributed": who adds the noise
    accounting: str
    implementation: str = f"Hedgerow {__version__}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "flavour": self.flavour, "loss": dict(self.loss), "unit": self.unit, "model": self.model,
            "accounting": self.accounting, "implementation": self.implementation,
        }  # fmt: skip


@dataclass(frozen=True)
class Statement:
    """What holds after a run, in short sentences and as facts for machines. `stamp` warns before everything else."""

    protocol: str
    guarantee: tuple[str, ...]  # unit and epsilon first, then who learned what
    assumed_of_parties: tuple[str, ...]  # and of the implementation
    assumed_of_data: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    registry: Registry | None = None
    stamp: str | None = None
    date: str | None = None  # when the run ended, ISO 8601 in UTC

    @property
    def gaps(self) -> tuple[str, ...]:
        """All that is not covered; what a party tells its peers when it stops early never is."""
        return (*self.not_covered, stated())

    @property
    def words(self) -> str:
        """The whole statement."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        when = "" if self.date is None else f", {self.date}"
        if self.stamp:
            yield f"{self.stamp}."
        yield f"Statement of a run of {self.protocol} (Hedgerow {__version__}{when})."
        for title, sentences in (
            ("What is guaranteed, and who learned what:", self.guarantee),
            ("What is assumed of the parties and the implementation:", self.assumed_of_parties),
            ("What is assumed of the data:", self.assumed_of_data),
            ("Not covered:", self.gaps),
        ):
            if sentences:
                yield ""
                yield title
                for sentence in sentences:
                    yield from textwrap.wrap(
                        f"- {sentence}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
                    )

    def __str__(self) -> str:
        return self.words

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "words": self.words,
            "protocol": self.protocol,
            "hedgerow": __version__,
            "date": self.date,
            "stamp": self.stamp,
            "guarantee": list(self.guarantee),
            "assumed_of_parties": list(self.assumed_of_parties),
            "assumed_of_data": list(self.assumed_of_data),
            "not_covered": list(self.gaps),
            "data_dependent_aborts": [reason.name.lower() for reason in sorted(DATA_DEPENDENT)],
            "registry": None if self.registry is None else self.registry.to_dict(),
            **self.facts,
        }
