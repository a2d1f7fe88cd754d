"""Statements as tests make them: from an accountant alone."""

from __future__ import annotations

import math
from typing import Any

from hedgerow.privacy.accountants import Accountant
from hedgerow.privacy.events import chance_beyond
from hedgerow.statement import PrivacyStatement


def statement_of(accountant: Accountant, delta: float, **more: Any) -> PrivacyStatement:
    """A statement whose epsilon, event, curve and adjacency are an accountant's own."""
    epsilon = accountant.epsilon(delta)
    beyond = None if math.isinf(epsilon) else chance_beyond(epsilon, accountant.delta)
    own = {"adjacency": accountant.adjacency, "event": accountant.event, "accountant": accountant.description}
    return PrivacyStatement(epsilon=epsilon, delta=delta, chance_beyond=beyond, **own, **more)
