"""Wrong passwords, counted by where they come from: whoever guesses has to wait, and nobody elsewhere.

A password is short enough to be guessed by who may try without end. Past some wrong ones in a minute, what comes from
there is refused unseen: were it looked at, the right one would still be found. The same wrong one counts once, so that
a browser or a script that does not know of a new password takes up no more than a single guess.
"""

import logging
import time
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address
from math import ceil
from typing import Final

from starlette.requests import HTTPConnection

from mainspring.web.problems import Problem

log = logging.getLogger("mainspring.web")

MOST: Final = 10
WITHIN: Final = 60.0
"""Seconds."""
PLACES: Final = 10_000
"""That are kept in mind; the one that was quiet for longest is forgotten first."""


class Guesses:
    """Wrong passwords of the last minute."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now: Final = now
        self._wrong: Final[dict[str, dict[bytes, float]]] = {}

    def __len__(self) -> int:
        return len(self._wrong)

    def check(self, connection: HTTPConnection, given: bytes) -> None:
        """Raise `Problem` where somebody has to wait, and `given`, a digest, is something new."""
        place = place_of(connection)
        wrong = self._recent(place)
        if len(wrong) >= MOST and given not in wrong:
            wait = ceil(min(wrong.values()) + WITHIN - self._now())
            hint = f"it goes on in {wait} s"
            headers = {"retry-after": str(wait)}
            raise Problem(
                429, "too_many", "too many wrong passwords or tokens from this address", hint, headers=headers
            )

    def was_wrong(self, connection: HTTPConnection, given: bytes) -> None:
        """Keep in mind that this was none."""
        place = place_of(connection)
        wrong = self._recent(place)
        if given in wrong:
            return
        wrong[given] = self._now()
        self._wrong.pop(place, None)
        self._wrong[place] = wrong  # now the last
        if len(self._wrong) > PLACES:
            del self._wrong[next(iter(self._wrong))]
        if len(wrong) == MOST:
            log.warning(
                "%d wrong passwords or tokens from %s; requests from that address are refused for a minute", MOST, place
            )

    def _recent(self, place: str) -> dict[bytes, float]:
        since = self._now() - WITHIN
        return {given: at for given, at in self._wrong.get(place, {}).items() if at > since}


def place_of(connection: HTTPConnection) -> str:
    """Name where somebody asks from. Who has an address of IPv6 has a whole network of them."""
    host = connection.client.host if connection.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return repr(host)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(IPv6Network((int(address), 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)
