"""What came out of an attack, as the tables and pages of experiments have it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class Found:
    """What came out of an attack."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the fields by their names, None for what is infinite."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def __str__(self) -> str:
        """The same for people: the fields by their names."""
        found = {field.name.replace("_", " "): getattr(self, field.name) for field in fields(self)}
        return ", ".join(f"{name} {_shown(value)}" for name, value in found.items() if value is not None)


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
