"""Whether a program can do its work: for load balancers, kubelets and whoever else decides what becomes of it.

That the process answers is known by asking it. Here is the other question: does the store answer, are its tables those
of this code, and do the nodes of this program take work?
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, Struct, UnsetType

from mainspring.client.connection import Connection
from mainspring.errors import StoreError
from mainspring.stores.port import Store

if TYPE_CHECKING:
    from mainspring.runtime.node import Node

log = logging.getLogger("mainspring.health")

PATIENCE: Final = 2.0
"""Seconds that a store may take to answer."""
FRESH: Final = 1.0
"""Seconds for which a look counts: anybody may ask, and as often as they like."""
STALE: Final = 5.0
"""Seconds for which it counts while somebody else looks."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    problem: str | UnsetType = UNSET
    """What is wrong; not for everyone."""


class Report(Struct, frozen=True, kw_only=True):
    """What was found."""

    status: str
    """`ok`, or `failing` if anything is wrong."""
    checks: tuple[Check, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def without_problems(self) -> "Report":
        """Leave out what only those on this machine are told."""
        return Report(status=self.status, checks=tuple(Check(name=one.name, ok=one.ok) for one in self.checks))


ALIVE: Final = Report(status="ok")
"""What a process answers that can answer at all."""


def report_of(checks: Iterable[Check]) -> Report:
    """Put checks together."""
    checks = tuple(checks)
    return Report(status="ok" if all(check.ok for check in checks) else "failing", checks=checks)


class Health:
    """What `app.health` is."""

    def __init__(self, connection: Connection, nodes: "Callable[[], Iterable[Node]]") -> None:
        self._connection: Final = connection
        self._nodes: Final = nodes
        self._known: weakref.ref[Store] | None = None
        """The store whose tables were found to be right, since it was opened."""
        self._last: tuple[float, Report] | None = None
        self._is_looking = False

    async def look(self) -> Report:
        """Say whether this program can work: its store answers within 2 s, and its nodes, if it has any, take work.

        What was found counts for a second, and while another look is under way for five.
        """
        now = self._connection.clock.monotonic()
        if self._last is not None and now - self._last[0] < (STALE if self._is_looking else FRESH):
            return self._last[1]
        self._is_looking = True
        try:
            report = report_of([await self._store(), *self._of_nodes()])
        finally:
            self._is_looking = False
        if not report.ok and (self._last is None or self._last[1].ok):
            problems = (f"{one.name}: {one.problem}" for one in report.checks if not one.ok)
            log.warning("not ready: %s", "; ".join(problems))
        self._last = self._connection.clock.monotonic(), report
        return report

    async def _store(self) -> Check:
        try:
            async with asyncio.timeout(PATIENCE):
                problem = await self._asked()
        except TimeoutError:
            problem = f"it has not answered for {PATIENCE:g} s"
        except StoreError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be used
            problem = f"{type(error).__name__}: {error}"
        return Check(name="store", ok=not problem, problem=problem or UNSET)

    async def _asked(self) -> str:
        """Say what is wrong with the store; nothing, if it is empty."""
        store = await self._connection.store()
        if self._known is None or self._known() is not store:
            version = await store.schema()
            if version.found < version.wanted:
                return f"its tables are of version {version.found}, and this is version {version.wanted}"
            self._known = weakref.ref(store)
        await store.list_breakers(limit=1)  # one row by an index: what tells that it answers
        return ""

    def _of_nodes(self) -> Iterator[Check]:
        """Look at the nodes that this program runs; those that have ended are none any more."""
        nodes = [node for node in self._nodes() if not node.has_ended]
        if nodes:
            problems = [problem for node in nodes if (problem := node.problem)]
            yield Check(name="node", ok=not problems, problem="; ".join(problems) or UNSET)
