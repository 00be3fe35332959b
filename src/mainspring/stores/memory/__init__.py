"""A store in the memory of one process."""

from mainspring.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
