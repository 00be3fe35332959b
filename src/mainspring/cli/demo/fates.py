"""The tasks whose story is told, and what becomes of each. Everything else in the store is scenery."""

from collections.abc import Mapping
from typing import Final

FATES: Final[Mapping[str, str]] = {
    "quick": "done in no time",
    "film": "slow, says how far it is",
    "flaky": "fails twice, then succeeds",
    "primes": "heavy, in its own process",
    "later": "scheduled for later",
    "parcel": "snoozes until it can go on",
    "march": "cancelled while it runs",
    "poison": "kills its worker each time",
}
