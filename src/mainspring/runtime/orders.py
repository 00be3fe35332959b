"""Carries out what operators ask of a node; the orders come with the answers to its renewals."""

from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from mainspring.runtime.attempt import Attempt
from mainspring.runtime.events import log
from mainspring.runtime.keeper import Membership
from mainspring.runtime.stacks import stacks
from mainspring.stores.port import Nodes
from mainspring.stores.records import DumpStacks, NodeOrder, Order, Quiet, Resume, SetConcurrency, StopNode
from mainspring.supervise import Directive, Idle, Notifier


class Obeys(Protocol):
    """What can be asked of a node."""

    def quiet(self) -> None: ...

    def resume(self) -> None: ...

    def end(self) -> None: ...

    def set_concurrency(self, places: int) -> None: ...


class Orders:
    """The step of a service: orders are obeyed when they come, and answered as soon as the store takes the answer."""

    def __init__(
        self,
        store: Nodes,
        node: Obeys,
        *,
        me: Callable[[], Membership],
        running: Callable[[], Iterable[Attempt]],
    ) -> None:
        self.wake = Notifier()
        self._store = store
        self._node = node
        self._me = me
        self._running = running
        self._answers: dict[int, str] = {}

    def received(self, orders: tuple[Order, ...]) -> None:
        """Obey what is new; an order comes again and again until its answer is written."""
        self._answers = {order.id: self._answers.get(order.id) or self._obey(order.order) for order in orders}
        if self._answers:
            self.wake.notify_one()

    async def step(self) -> Directive:
        me = self._me()
        for order, answer in list(self._answers.items()):
            await self._store.answer(me.node, me.term, order, answer)
        return Idle()

    def _obey(self, order: NodeOrder) -> str:
        log.warning("obeying an operator's order: %s", order)
        match order:
            case Quiet():
                self._node.quiet()
            case Resume():
                self._node.resume()
            case StopNode():
                self._node.end()
            case SetConcurrency(places=places):
                self._node.set_concurrency(places)
            case DumpStacks():
                return stacks(self._running())
            case _:
                assert_never(order)
        return "done"
