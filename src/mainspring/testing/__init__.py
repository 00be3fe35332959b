"""Tools for testing what runs on Mainspring.

The names are fetched on first use: pytest imports this package in every run of everyone who has Mainspring installed,
and most of those runs never ask for virtual time. The loop with what it needs takes 6 ms to import, the plugin 1 ms.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.testing.faults import FaultyStore
    from mainspring.testing.jobs import (
        Performed,
        assert_enqueued,
        assert_not_enqueued,
        drain,
        enqueued,
        in_memory,
        perform,
    )
    from mainspring.testing.loop import VirtualLoop
    from mainspring.testing.virtual import VirtualClock, VirtualTime
else:
    _HOMES: Final = {
        "FaultyStore": "faults",
        "Performed": "jobs",
        "VirtualClock": "virtual",
        "VirtualLoop": "loop",
        "VirtualTime": "virtual",
        "assert_enqueued": "jobs",
        "assert_not_enqueued": "jobs",
        "drain": "jobs",
        "enqueued": "jobs",
        "in_memory": "jobs",
        "perform": "jobs",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 -- only for those who ask for a name

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)


__all__ = [
    "FaultyStore",
    "Performed",
    "VirtualClock",
    "VirtualLoop",
    "VirtualTime",
    "assert_enqueued",
    "assert_not_enqueued",
    "drain",
    "enqueued",
    "in_memory",
    "perform",
]
