"""The version, in a module that imports nothing, so that every part may ask for it and the build can read it."""

from __future__ import annotations

__version__ = "0.1.0"
