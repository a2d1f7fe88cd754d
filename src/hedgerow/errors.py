"""Every error that Hedgerow raises about what it was given, under one base class.

Each also derives from the built-in that Python and scikit-learn users expect to catch.
"""

from __future__ import annotations


class HedgerowError(Exception):
    """Base of all errors raised on purpose by Hedgerow."""


class InvalidInput(HedgerowError, ValueError):
    """Data that cannot be used as given: names the column or row and what is wrong."""


class InvalidType(HedgerowError, TypeError):
    """Data or an argument of a type that cannot be used."""


class InvalidParameter(HedgerowError, ValueError):
    """A parameter outside its range: names the parameter and the value."""


class ModelFileError(HedgerowError, ValueError):
    """A model file that is damaged, foreign or of an unknown version."""


class JobError(HedgerowError, ValueError):
    """A job file that cannot be run as written."""


class ExportRefused(HedgerowError, ValueError):
    """A model that cannot be expressed in the requested format without changing its predictions."""
