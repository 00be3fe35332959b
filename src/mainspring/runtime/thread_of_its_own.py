"""Runs a service in a thread of its own, on an event loop of its own, so that nothing else in the program delays it."""

import asyncio
import threading

from mainspring.clock import on_virtual_time
from mainspring.supervise import Service, Stop


async def in_a_thread_of_its_own(service: Service, stop: Stop) -> None:
    """Run a service until it is stopped. On virtual time it runs on the loop itself: a thread would miss that time."""
    if on_virtual_time():
        await service.run(stop)
        return
    ended = asyncio.get_running_loop().create_future()
    thread = _Thread(service, ended)
    thread.start()
    try:
        await _either(stop, ended)
    finally:
        thread.stop()
        await asyncio.shield(ended)  # however often we are cancelled, it ends with its present step
    ended.result()


async def _either(stop: Stop, ended: "asyncio.Future[None]") -> None:
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()


class _Thread(threading.Thread):
    def __init__(self, service: Service, ended: "asyncio.Future[None]") -> None:
        # A daemon: a program that leaves without a word is not held back, its leases run out.
        super().__init__(name=f"mainspring {service.name}", daemon=True)
        self._service = service
        self._ended = ended
        self._home = ended.get_loop()
        self._loop = asyncio.new_event_loop()
        self._end = Stop()  # not "_stop": that is a method of Thread, which every forked child calls

    def run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._service.run(self._end))
        except BaseException as raised:  # noqa: BLE001 - carried over to whoever awaits the thread
            error = raised
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(self._tell, error)

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)

    def _tell(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)
