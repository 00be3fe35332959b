"""The contract of stores, as tests: each checks a numbered sentence of `mainspring.stores.port`.

The author of a store inherits from `StoreContract` and says, in a fixture `harness`, how a handle is made; see
docs/how-to/write-a-store.md. A store that plays fewer roles inherits from the parts that it can fulfil.
"""

import pytest

# Before anything from there is imported: it lets a failing assert show its values, as in any test file.
_PARTS = ("verbs", "world", "plans", "outboxes", "overviews")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from mainspring.testing.contract.harness import (  # noqa: E402 -- see above
    Harness,
    LastingHarness,
    SettableClock,
    TransactionsHarness,
    UserTransaction,
)
from mainspring.testing.contract.obligation import Obligation, obligation, obligations  # noqa: E402 -- see above
from mainspring.testing.contract.suite import (  # noqa: E402 -- see above
    CostContract,
    LastingContract,
    OutboxesContract,
    OutboxesInTransactionsContract,
    OutboxesOfManyWritersContract,
    OverviewContract,
    OverviewCostContract,
    StoreContract,
    TransactionsContract,
    UpkeepContract,
)

__all__ = [
    "CostContract",
    "Harness",
    "LastingContract",
    "LastingHarness",
    "Obligation",
    "OutboxesContract",
    "OutboxesInTransactionsContract",
    "OutboxesOfManyWritersContract",
    "OverviewContract",
    "OverviewCostContract",
    "SettableClock",
    "StoreContract",
    "TransactionsContract",
    "TransactionsHarness",
    "UpkeepContract",
    "UserTransaction",
    "obligation",
    "obligations",
]
