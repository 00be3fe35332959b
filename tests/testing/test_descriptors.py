"""Whose descriptors are whose: the decision alone, without a loop."""

import os
import socket

import pytest

from mainspring.testing.descriptors import Address, End, elsewhere, identify, look

SERVER, CLIENT = ("127.0.0.1", 80), ("127.0.0.1", 50_000)
NAMED, NAMELESS = "/run/socket", ""


def stream(local: Address, peer: Address | None = None, *, listens: bool = False) -> End:
    return End(kind=socket.SOCK_STREAM, local=local, peer=peer, listens=listens)


def datagram(local: Address, peer: Address | None = None) -> End:
    return End(kind=socket.SOCK_DGRAM, local=local, peer=peer)


LISTENER = stream(SERVER, listens=True)
ASKING, ANSWERING = stream(CLIENT, SERVER), stream(SERVER, CLIENT)
UNIX_ASKING, UNIX_ANSWERING = stream(NAMELESS, NAMED), stream(NAMED, NAMELESS)
PAIR = stream(NAMELESS, NAMELESS)


@pytest.mark.parametrize(
    ("ends", "found"),
    [
        pytest.param([LISTENER], [], id="a listener waits for nobody"),
        pytest.param([ASKING], [0], id="a client of another process"),
        pytest.param([LISTENER, ANSWERING], [1], id="a server of another process's client"),
        pytest.param([LISTENER, ASKING, ANSWERING], [], id="both ends are here"),
        pytest.param([LISTENER, ASKING], [1], id="our listener, but someone else took the connection"),
        pytest.param([stream(CLIENT)], [0], id="connecting"),
        pytest.param([None], [0], id="no socket"),
        pytest.param([UNIX_ASKING], [0], id="a client of a UNIX socket elsewhere"),
        pytest.param([UNIX_ASKING, UNIX_ANSWERING], [], id="both ends of a UNIX connection are here"),
        pytest.param([UNIX_ASKING, UNIX_ANSWERING, UNIX_ANSWERING], [1, 2], id="one of two clients is elsewhere"),
        pytest.param([UNIX_ASKING, UNIX_ASKING, UNIX_ANSWERING], [0, 1], id="one of two servers is elsewhere"),
        pytest.param([PAIR, PAIR], [0, 1], id="a socketpair cannot be recognised"),
        pytest.param([datagram(SERVER)], [], id="a mailbox waits for nobody"),
        pytest.param([datagram(CLIENT, SERVER)], [0], id="a mailbox elsewhere is written to"),
        pytest.param([datagram(CLIENT, SERVER), datagram(SERVER)], [], id="a mailbox here is written to"),
        pytest.param([ASKING, datagram(SERVER)], [0], id="a mailbox has the address of a server elsewhere"),
        pytest.param([UNIX_ANSWERING, datagram(NAMELESS)], [0], id="a mailbox without a name"),
    ],
)
def test_an_end_leads_elsewhere_unless_the_other_one_is_here(ends: list[End | None], found: list[int]) -> None:
    served = dict(enumerate(ends))
    assert elsewhere(served, served) == found


def test_an_end_is_served_although_nobody_waits_for_it_now() -> None:
    assert elsewhere({0: ASKING, 1: ANSWERING}, registered=[0]) == []


def test_looking_at_a_socket_tells_its_state_and_leaves_it_open() -> None:
    with socket.socket() as fresh, socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        assert look(fresh.fileno()) == stream(("0.0.0.0", 0))  # noqa: S104 -- what an unbound socket says
        assert look(listener.fileno()) == stream(address, listens=True)
        with socket.create_connection(address) as client:
            assert look(client.fileno()) == stream(client.getsockname(), address)
        listener.getsockname()
    with socket.socket(type=socket.SOCK_DGRAM) as mailbox:
        mailbox.bind(("127.0.0.1", 0))
        assert look(mailbox.fileno()) == datagram(mailbox.getsockname())


def test_addresses_of_a_dual_stack_server_are_those_its_clients_know() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        address = ("127.0.0.1", listener.getsockname()[1])
        with socket.create_connection(address) as client, listener.accept()[0] as accepted:
            assert look(accepted.fileno()) == stream(address, client.getsockname())


def test_what_is_no_socket_is_named_by_its_kind() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end), os.fdopen(write_end):
        assert look(read_end) is None
        assert str(identify(read_end)).startswith("pipe:")


def test_connections_are_named_by_their_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        number, port = client.fileno(), listener.getsockname()[1]
        with client:
            assert f"to 127.0.0.1:{port} (descriptor {number})" in str(identify(number))
    assert identify(number) is None
