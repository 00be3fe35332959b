"""The hosts of a DSN, one by one.

asyncpg tries them in turn, but under one timeout for all: a first host that takes connections and does not answer, as
a frozen one does, would use up the time of the others. So each is tried alone, with a DSN of its own.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

_PLACES: Final = ("host", "port")
_PORT: Final = re.compile(r":([^:\]]*)$")


class Host(NamedTuple):
    """One of the hosts."""

    name: str
    """What messages call it."""
    dsn: str


def hosts(dsn: str) -> tuple[Host, ...]:
    """Take a DSN apart; raises `ValueError` if that cannot be."""
    parts = urlsplit(dsn)
    user, at, where = parts.netloc.rpartition("@")
    user = user.replace("@", "%40")  # of a password that nobody has quoted
    ports = (_PORT.search(one) for one in where.split(","))
    if parts.fragment or not all(port is None or port[1].isdecimal() for port in ports):
        raise ValueError("the host or the port may contain a part of the password")
    if where:
        return tuple(Host(unquote(one), parts._replace(netloc=f"{user}{at}{one}").geturl()) for one in where.split(","))
    return tuple(_in_query(parts)) or (Host("localhost", dsn),)


def options(dsn: str) -> dict[str, str]:
    """Read what stands behind the question mark."""
    return dict(parse_qsl(urlsplit(dsn).query, keep_blank_values=True))


def _in_query(parts: SplitResult) -> list[Host]:
    """Read `?host=a,b&port=1,2`, the way to name folders of Unix sockets."""
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    names = given["host"].split(",") if given.get("host") else []
    ports = given["port"].split(",") if given.get("port") else []
    if len(ports) == 1:
        ports *= len(names)
    if ports and len(ports) != len(names):
        raise ValueError(f"there are {len(names)} hosts and {len(ports)} ports")
    rest = [(key, value) for key, value in given.items() if key not in _PLACES]
    found = []
    for position, name in enumerate(names):
        place = [("host", name), *([("port", ports[position])] if ports else [])]
        query = urlencode([*place, *rest])
        found.append(Host(":".join(value for _, value in place), parts._replace(query=query).geturl()))
    return found
