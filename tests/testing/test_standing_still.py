"""Time stands still while something outside of the loop is at work, and only then.

These tests wait for real, for as long as `WORK` says: the outside is real.
"""

import asyncio
import contextlib
import os
import socket
import sys
import threading
import time as real_time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import cast

import pytest

from mainspring.clock import outside
from mainspring.errors import Standstill
from mainspring.testing import VirtualTime

WORK = 0.2
HOUR = 3600.0


@pytest.fixture(autouse=True)
def pending_timer(virtual_time: VirtualTime) -> None:
    """A timer to jump to as soon as time may pass."""
    virtual_time.loop.call_later(HOUR, str)


@pytest.fixture
def may_end() -> Iterator[threading.Event]:
    """What a stuck thread waits for; it must not outlive the test, or Python would wait for it at its own end."""
    event = threading.Event()
    yield event
    event.set()


def work(answer: str = "done") -> str:
    real_time.sleep(WORK)
    return answer


# Threads.


async def test_a_thread_holds_time(virtual_time: VirtualTime) -> None:
    assert await asyncio.to_thread(work) == "done"
    assert virtual_time.elapsed == 0


EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "threads": ThreadPoolExecutor,
    "processes": partial(ProcessPoolExecutor, mp_context=get_context("spawn")),  # fork does not go with threads
}


@pytest.mark.parametrize("kind", EXECUTORS)
async def test_any_executor_holds_time(virtual_time: VirtualTime, kind: str) -> None:
    with EXECUTORS[kind](1) as executor:
        await asyncio.gather(*(virtual_time.loop.run_in_executor(executor, real_time.sleep, WORK) for _ in range(2)))
    assert virtual_time.elapsed == 0


async def test_time_passes_between_two_threads(virtual_time: VirtualTime) -> None:
    for hour in range(1, 4):
        await asyncio.to_thread(str)
        await asyncio.sleep(HOUR)
        assert virtual_time.elapsed == hour * HOUR


async def test_an_answer_is_there_before_time_passes_again(virtual_time: VirtualTime) -> None:
    # Where the hold ends a moment too early, the timer wins some of these races.
    for _ in range(2000):
        async with asyncio.timeout(HOUR):
            await asyncio.to_thread(str)
    assert virtual_time.elapsed == 0


async def test_who_stops_waiting_for_a_thread_does_not_set_time_free(virtual_time: VirtualTime) -> None:
    ended = threading.Event()

    def hard_work() -> None:
        work()
        ended.set()

    waiter = asyncio.create_task(asyncio.to_thread(hard_work))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait([waiter])
    assert not ended.is_set()
    await asyncio.sleep(1)
    assert ended.is_set()
    assert virtual_time.elapsed == 1


async def test_work_that_was_cancelled_before_it_began_holds_nothing(virtual_time: VirtualTime) -> None:
    with ThreadPoolExecutor(1) as executor:
        first = virtual_time.loop.run_in_executor(executor, work)
        second = virtual_time.loop.run_in_executor(executor, real_time.sleep, 1000)
        second.cancel()
        await first
        await asyncio.sleep(1)
    assert virtual_time.elapsed == 1


async def test_a_thread_that_fails_sets_time_free(virtual_time: VirtualTime) -> None:
    with pytest.raises(ValueError, match="xyz"):
        await asyncio.to_thread(int, "xyz")
    await asyncio.sleep(1)
    assert virtual_time.elapsed == 1


def test_a_thread_may_outlive_its_loop(may_end: threading.Event) -> None:
    with ThreadPoolExecutor(1) as executor:

        async def main() -> None:
            asyncio.get_running_loop().run_in_executor(executor, may_end.wait).cancel()

        with VirtualTime() as time:
            time.run(main())
        may_end.set()
    assert time.loop.is_closed()


def test_a_closed_loop_starts_no_thread(virtual_time: VirtualTime) -> None:
    virtual_time.close()
    with pytest.raises(RuntimeError, match="closed"):
        virtual_time.loop.run_in_executor(None, work)


def test_closing_waits_for_threads_in_real_time() -> None:
    ended = threading.Event()

    def hard_work() -> None:
        work()
        ended.set()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, hard_work)

    with VirtualTime() as time:
        time.run(main())
    assert ended.is_set()
    assert time.elapsed == 0


async def test_another_default_executor_is_used_and_shut_down(virtual_time: VirtualTime) -> None:
    virtual_time.loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="mine"))
    name = await asyncio.to_thread(lambda: threading.current_thread().name)
    assert name.startswith("mine")
    await virtual_time.loop.shutdown_default_executor()
    with pytest.raises(RuntimeError):
        await asyncio.to_thread(work)


async def test_what_the_loop_cannot_see_can_be_announced(virtual_time: VirtualTime) -> None:
    loop = virtual_time.loop
    answer = asyncio.Event()
    threading.Timer(WORK, loop.call_soon_threadsafe, [answer.set]).start()
    with outside("a thread of our own"):
        await answer.wait()
    assert virtual_time.elapsed == 0
    await asyncio.sleep(1)
    assert virtual_time.elapsed == 1


# Patience.


def test_an_outside_that_stays_silent_is_a_standstill(may_end: threading.Event) -> None:
    def stuck() -> None:
        may_end.wait()

    async def main() -> None:
        try:
            with outside("the oracle"):
                await asyncio.to_thread(stuck)
        finally:
            await asyncio.sleep(HOUR)

    with VirtualTime(patience=0.05) as time:
        with pytest.raises(Standstill) as standstill:
            time.run(main())
        assert "0.05 s of real time" in standstill.value.reason
        assert "the oracle" in standstill.value.reason
        assert "stuck" in standstill.value.reason
        assert any(" in main" in line for line in standstill.value.waiting)
        assert time.elapsed == 0
    assert time.elapsed == HOUR  # although the thread is stuck still
    assert time.loop.is_closed()


def test_what_was_given_up_does_not_hold_up_the_cleanup() -> None:
    mine, theirs = socket.socketpair()

    async def main() -> None:
        reader, writer = await asyncio.open_unix_connection(sock=mine)
        try:
            await reader.read()
        finally:
            await asyncio.sleep(HOUR)
            writer.close()
            await writer.wait_closed()

    with theirs, VirtualTime(patience="50ms") as time, pytest.raises(Standstill, match="connection"):
        time.run(main())
    assert time.elapsed == HOUR


def test_closing_loses_patience_too(may_end: threading.Event) -> None:
    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, may_end.wait)

    time = VirtualTime(patience="50ms")
    time.run(main())
    with pytest.raises(Standstill, match="shutdown"):
        time.close()
    assert time.loop.is_closed()


async def test_patience_can_be_changed_on_the_way(virtual_time: VirtualTime) -> None:
    virtual_time.loop.patience = 0.01
    await asyncio.sleep(HOUR)
    virtual_time.loop.patience = 30
    await asyncio.to_thread(work)


# Connections.


@contextlib.contextmanager
def answering(listener: socket.socket) -> Iterator[None]:
    """A server in another thread: it answers each line after some real work, and ends when its client does."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as lines:
            for line in lines:
                work()
                lines.write(line.upper())
                lines.flush()

    thread = threading.Thread(target=serve)
    with listener:
        thread.start()
        yield
        thread.join()


@contextlib.asynccontextmanager
async def connected(address: str | tuple[str, int]) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address[:2])  # IPv6 has four parts
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server in the same loop: it answers each line after an hour."""
    with contextlib.closing(writer):
        while line := await reader.readline():
            await asyncio.sleep(HOUR)
            writer.write(line.upper())


async def test_a_server_elsewhere_holds_time(virtual_time: VirtualTime) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with answering(listener):
        async with connected(listener.getsockname()) as (reader, writer):
            for _ in range(2):
                writer.write(b"hello\n")
                assert await reader.readline() == b"HELLO\n"
    assert virtual_time.elapsed == 0


async def test_a_server_elsewhere_on_a_unix_socket_holds_time(virtual_time: VirtualTime, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    with answering(listener):
        async with connected(str(tmp_path / "socket")) as (reader, writer):
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
    assert virtual_time.elapsed == 0


async def first_line(client: socket.socket) -> bytes:
    """Serve until a client elsewhere has sent a line, which it does after some real work."""
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            received.set_result(await reader.readline())

    async with await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        client.connect(server.sockets[0].getsockname())
        threading.Timer(WORK, client.sendall, [b"hello\n"]).start()
        return await received


async def test_a_client_elsewhere_holds_time(virtual_time: VirtualTime) -> None:
    with socket.socket() as client:
        assert await first_line(client) == b"hello\n"
    assert virtual_time.elapsed == 0


async def test_a_number_that_the_loop_once_served_may_lead_elsewhere_now(virtual_time: VirtualTime) -> None:
    with socket.socket() as client, socket.socket() as served:
        virtual_time.loop.add_reader(served, str)
        virtual_time.loop.remove_reader(served)
        os.dup2(client.fileno(), served.fileno())
        assert await first_line(client) == b"hello\n"
    assert virtual_time.elapsed == 0


async def test_a_connection_that_is_ignored_holds_nothing(virtual_time: VirtualTime) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with answering(listener):
        async with connected(listener.getsockname()) as (reader, writer):
            virtual_time.loop.ignore(writer.get_extra_info("socket"))
            await asyncio.sleep(HOUR)
            writer.write(b"hello\n")
            with outside("the server in another thread"):
                assert await reader.readline() == b"HELLO\n"
    assert virtual_time.elapsed == HOUR


async def test_another_connection_under_the_same_number_is_not_ignored(virtual_time: VirtualTime) -> None:
    first, second = socket.socketpair(), socket.socketpair()
    with first[0], first[1], second[0], second[1]:
        number = first[0].fileno()
        virtual_time.loop.ignore(first[0])
        os.dup2(second[0].fileno(), number)
        threading.Timer(WORK, second[1].sendall, [b"hello"]).start()
        first[0].setblocking(False)
        assert await virtual_time.loop.sock_recv(first[0], 100) == b"hello"
    assert virtual_time.elapsed == 0


async def test_a_connection_in_the_making_holds_time(virtual_time: VirtualTime) -> None:
    # A listener with a full backlog lets the next client wait.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()
        stack.enter_context(socket.create_connection(address))
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        virtual_time.loop.patience = 0.05
        attempt = asyncio.create_task(virtual_time.loop.sock_connect(client, address))
        await asyncio.sleep(0)
        assert "a socket that is connecting" in " ".join(virtual_time.loop._at_work())
        attempt.cancel()
        await asyncio.wait([attempt])


@pytest.mark.parametrize("family", ["ipv4", "ipv6", "dual", "unix"])
async def test_a_server_in_the_same_loop_does_not_hold_time(
    virtual_time: VirtualTime, family: str, tmp_path: Path
) -> None:
    address: str | tuple[str, int]
    if family == "unix":
        address = str(tmp_path / "socket")
        server = await asyncio.start_unix_server(shout, address)
    elif family == "dual":
        listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        address = ("127.0.0.1", listener.getsockname()[1])
        server = await asyncio.start_server(shout, sock=listener)
    else:
        server = await asyncio.start_server(shout, "::1" if family == "ipv6" else "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
    async with server, connected(address) as (reader, writer), connected(address):
        for round_trip in range(1, 4):
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
            assert virtual_time.elapsed == round_trip * HOUR


async def test_idle_connections_within_the_loop_do_not_hold_time(virtual_time: VirtualTime) -> None:
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    async with server, connected(address), connected(address):
        await asyncio.sleep(16 * HOUR)
    assert virtual_time.elapsed == 16 * HOUR


async def test_an_end_that_does_not_read_is_served_all_the_same(virtual_time: VirtualTime) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            while await reader.read(2**16):
                await asyncio.sleep(60)

    flood = bytes(2**24)  # more than the buffers on the way can take
    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    async with server, connected(server.sockets[0].getsockname()) as (_, writer):
        writer.write(flood)
        await writer.drain()
    assert virtual_time.elapsed > HOUR


async def test_bare_sockets_work_too(virtual_time: VirtualTime) -> None:
    loop = virtual_time.loop
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        listener.setblocking(False)
        client.setblocking(False)

        async def serve() -> None:
            connection, _ = await loop.sock_accept(listener)
            with connection:
                hello = await loop.sock_recv(connection, 100)
                await asyncio.sleep(HOUR)
                await loop.sock_sendall(connection, hello.upper())

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            await loop.sock_connect(client, listener.getsockname())
            await loop.sock_sendall(client, b"hello")
            assert await loop.sock_recv(client, 100) == b"HELLO"
    assert virtual_time.elapsed == HOUR


async def test_datagrams_within_the_loop_do_not_hold_time(virtual_time: VirtualTime) -> None:
    class Shout(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.DatagramTransport", transport)  # no subclass of it before 3.12

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            virtual_time.loop.call_later(HOUR, lambda: self.transport.sendto(data.upper(), addr))

    class Ask(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.answer: asyncio.Future[bytes] = virtual_time.loop.create_future()

        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002 -- asyncio's signature
            self.answer.set_result(data)

    server, _ = await virtual_time.loop.create_datagram_endpoint(Shout, local_addr=("127.0.0.1", 0))
    client, ask = await virtual_time.loop.create_datagram_endpoint(Ask, remote_addr=server.get_extra_info("sockname"))
    client.sendto(b"hello")
    assert await ask.answer == b"HELLO"
    assert virtual_time.elapsed == HOUR
    client.close()
    server.close()
    await asyncio.sleep(0)


def test_a_server_in_the_loop_that_never_answers_is_a_standstill() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read()

    async def main() -> None:
        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        async with server, connected(server.sockets[0].getsockname()) as (reader, _):
            await reader.readline()

    with VirtualTime() as time, pytest.raises(Standstill, match="in mute"):
        time.run(main())


# Child processes.

CHILD = f"import time; time.sleep({WORK}); print('done')"


async def test_a_child_process_holds_time(virtual_time: VirtualTime) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    assert output == b"done\n"
    assert virtual_time.elapsed == 0


async def test_a_child_process_without_pipes_holds_time(virtual_time: VirtualTime) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", f"import time; time.sleep({WORK})")
    assert await child.wait() == 0
    assert virtual_time.elapsed == 0
    await asyncio.sleep(1)
    assert virtual_time.elapsed == 1


async def test_a_child_process_of_the_shell_holds_time(virtual_time: VirtualTime) -> None:
    child = await asyncio.create_subprocess_shell(f"sleep {WORK}; exit 3")
    assert await child.wait() == 3
    assert virtual_time.elapsed == 0


async def test_a_child_process_that_is_killed_sets_time_free(virtual_time: VirtualTime) -> None:
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(1000)")
    child.kill()
    await child.wait()
    await asyncio.sleep(1)
    assert virtual_time.elapsed == 1


async def test_a_pipe_holds_time(virtual_time: VirtualTime) -> None:
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader()
    with os.fdopen(read_end, "rb") as pipe:
        transport, _ = await virtual_time.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        threading.Timer(WORK, os.close, [write_end]).start()
        assert await reader.read() == b""
        transport.close()
        await asyncio.sleep(0)
    assert virtual_time.elapsed == 0
