"""What tests of privacy share: the reference that mechanisms and accountants are compared with."""

from __future__ import annotations

import signal
import warnings

import pytest


@pytest.fixture(scope="module")
def opendp():
    """The prelude of opendp, with everything switched on that we compare with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whatever other projects' dependencies warn of
        prelude = pytest.importorskip("opendp.prelude")
    prelude.enable_features("contrib")
    yield prelude
    # Its compiled part takes Ctrl-C over from Python when it is first used; later tests want it back.
    signal.signal(signal.SIGINT, signal.default_int_handler)
