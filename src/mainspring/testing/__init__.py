"""Tools for testing what runs on Mainspring.

The names are fetched on first use: pytest imports this package in every run of everyone who has Mainspring installed,
and most of those runs never ask for virtual time. The loop with what it needs takes 6 ms to import, the plugin 1 ms.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring.testing.loop import VirtualLoop
    from mainspring.testing.virtual import VirtualClock, VirtualTime
else:
    _HOMES: Final = {"VirtualClock": "virtual", "VirtualLoop": "loop", "VirtualTime": "virtual"}

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 -- only for those who ask for a name

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = ["VirtualClock", "VirtualLoop", "VirtualTime"]
