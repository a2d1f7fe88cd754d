"""Objects whose state must exist exactly once: generators, private keys, mask streams.

Two copies of such an object would hand out the same random words or the same masks, and a mask that was used twice
hides nothing. A copy comes about in three ways, and each is refused:

1. `copy`, `deepcopy` or pickling: there is no way to take the object apart.
2. A fork: the child holds all that the parent held. Using it there raises.
3. Two threads inside one object at the same time: they take turns.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import NoReturn, SupportsIndex

from hedgerow.errors import ProtocolError


class Unshared:
    """Base of what may be used in one process only and may not be copied; `with self._turn():` around each use."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()

    def _turn(self) -> Lock:
        """The lock to hold while using the object; raises in a process that only inherited it."""
        if os.getpid() != self._process:
            raise ProtocolError(
                f"{type(self).__name__} was made in process {self._process} and may not be used in process "
                f"{os.getpid()}, which was forked from it: both would draw the same words. Make a new one."
            )
        return self._lock

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise ProtocolError(f"{type(self).__name__} cannot be copied or stored: the copy would draw the same words")
