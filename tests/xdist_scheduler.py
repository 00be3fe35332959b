"""Scheduler for pytest-xdist: assigns whole modules to processes, so that fixtures of a module are set up once.

Tests of contracts and long tests without fixtures in common are assigned one at a time. Long tests mostly wait; they are
spread among the others, so that some processes compute while others wait. Contracts come last: they keep all processes
busy until the end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.tier import CollectedTest

CONTRACT = re.compile(r"tests/stores/test_(postgres_)?(contract|outbox_contract)\.py")
LONG = re.compile(r"tests/(chaos/|jobs/test_postgres_)")

T = TypeVar("T", bound=CollectedTest)


class ModuleScheduling(LoadScopeScheduling):  # type: ignore[misc]  # its class has no types
    """Assigns modules, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if CONTRACT.match(nodeid) or LONG.match(nodeid) else module_of(nodeid)


def module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def in_order_of_assignment(items: Iterable[T]) -> list[T]:
    """Return large modules first, long tests spread among them, and contracts last."""
    modules: defaultdict[str, list[T]] = defaultdict(list)
    long: list[T] = []
    contracts: list[T] = []
    for item in items:
        if CONTRACT.match(item.nodeid):
            contracts.append(item)
        elif LONG.match(item.nodeid):
            long.append(item)
        else:
            modules[module_of(item.nodeid)].append(item)
    places: list[tuple[float, list[T]]] = [(at / len(long), [item]) for at, item in enumerate(long)]
    large_first = sorted(modules.values(), key=len, reverse=True)
    places += [(at / len(large_first), tests) for at, tests in enumerate(large_first)]
    return [item for _, tests in sorted(places, key=lambda place: place[0]) for item in tests] + contracts
