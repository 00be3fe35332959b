"""The role `Locks`: named leases."""

from datetime import timedelta

from msgspec.structs import replace

from mainspring.core.limits import CLOCK_STEP
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.memory.tables import Grant
from mainspring.stores.records import Lock


class LocksRole(Guarded):
    """Named leases."""

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        with self._locked() as now:
            there = self._tables.locks.get(name)
            if there is None:
                lock = Lock(name=name, holder=holder, term=next(self._tables.lock_terms), expires_at=now + ttl)
            elif there.lock.holder == holder:
                is_ahead = there.at > now + CLOCK_STEP
                lock = replace(there.lock, expires_at=now + ttl if is_ahead else max(there.lock.expires_at, now + ttl))
            elif there.at > now + CLOCK_STEP:
                # Granted while the clock was ahead: its holder, if it is alive, has one ttl to extend it.
                shortened = replace(there.lock, expires_at=now + (there.lock.expires_at - there.at))
                self._tables.locks[name] = Grant(shortened, now)
                return None
            elif there.lock.expires_at > now:
                return None
            else:
                lock = replace(there.lock, holder=holder, term=next(self._tables.lock_terms), expires_at=now + ttl)
            self._tables.locks[name] = Grant(lock, now)
        self._ring()
        return lock

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        with self._locked() as now:
            if not self._is_held(lock):
                return None
            extended = replace(lock, expires_at=now + ttl)
            self._tables.locks[lock.name] = Grant(extended, now)
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
        return there is not None and (there.lock.holder, there.lock.term) == (lock.holder, lock.term)
