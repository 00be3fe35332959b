"""The role `Locks`: named leases."""

from datetime import timedelta

from msgspec.structs import replace

from mainspring.stores.memory.guard import Guarded
from mainspring.stores.records import Lock


class LocksRole(Guarded):
    """Named leases."""

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        with self._locked() as now:
            there = self._tables.locks.get(name)
            if there and there.holder == holder:
                lock = replace(there, expires_at=max(there.expires_at, now + ttl))
            elif there and there.expires_at > now:
                return None
            else:
                lock = Lock(name=name, holder=holder, term=next(self._tables.lock_terms), expires_at=now + ttl)
            self._tables.locks[name] = lock
        self._ring()
        return lock

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        with self._locked() as now:
            if not self._is_held(lock):
                return None
            extended = self._tables.locks[lock.name] = replace(lock, expires_at=now + ttl)
        self._ring()
        return extended

    async def resign(self, lock: Lock) -> bool:
        with self._locked():
            if not self._is_held(lock):
                return False
            del self._tables.locks[lock.name]
        self._ring()
        return True

    def _is_held(self, lock: Lock) -> bool:
        """Say whether nobody else has it; that it has expired does not matter before somebody does."""
        there = self._tables.locks.get(lock.name)
        return there is not None and (there.holder, there.term) == (lock.holder, lock.term)
