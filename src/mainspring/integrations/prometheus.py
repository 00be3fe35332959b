"""Counters and histograms of this process for prometheus-client: `instrument(app)`. Needs the extra `prometheus`.

What is counted is what this program's nodes do, from when they began. `/metrics` of the dashboard and the JSON API need
none of this: they tell of the store as a whole.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mainspring.integrations.prometheus needs prometheus-client: install Mainspring with the extra 'prometheus'",
        name=error.name,
    ) from error

from mainspring.app import Mainspring
from mainspring.clock import Clock, SystemClock
from mainspring.core.job import Job, State
from mainspring.core.machine import Event
from mainspring.runtime.events import BreakerChange, StateChange

WAITS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
RUNS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
MOST: Final = 500
"""Pairs of queue and task that are told apart, as each has seventeen series in a histogram; the rest are `others`."""
OTHERS: Final = "others"

Pair: TypeAlias = tuple[str, str]
_THE_REST: Final = (OTHERS, OTHERS)

K = TypeVar("K")
V = TypeVar("V")


def instrument(app: Mainspring, registry: CollectorRegistry = REGISTRY) -> "Prometheus":
    """Have what the nodes of an app do counted, and what their breakers do."""
    metrics = Prometheus(registry, clock=app.clock)
    app.listener(metrics)
    app.breakers.listener(metrics.of_breaker)
    return metrics


class Prometheus:
    """A listener that counts: `app.listener(Prometheus(registry))`."""

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        clock: Clock | None = None,
        waits: Sequence[float] = WAITS,
        runs: Sequence[float] = RUNS,
        most: int = MOST,
    ) -> None:
        self._registry: Final = registry
        self._clock: Final = clock or SystemClock()
        self._most: Final = most
        self._pairs: set[tuple[str, str]] = set()
        pair = ["queue", "task"]
        attempts = Counter(
            "mainspring_attempts", "Attempts that ended on nodes of this process.", [*pair, "event"], registry=registry
        )
        wait = Histogram(
            "mainspring_wait_seconds",
            "From when jobs were due until they started.",
            pair,
            buckets=waits,
            registry=registry,
        )
        run = Histogram("mainspring_run_seconds", "How long attempts took.", pair, buckets=runs, registry=registry)
        breakers = Counter(
            "mainspring_breaker_changes", "Breakers that entered a phase.", ["task", "phase"], registry=registry
        )
        # `labels` takes 1 µs for each, the second time too; a dict of what it returned takes a tenth.
        self._attempts: Kept[tuple[Pair, str], Counter] = Kept(lambda key: attempts.labels(*key[0], key[1]))
        self._waits: Kept[Pair, Histogram] = Kept(lambda key: wait.labels(*key))
        self._runs: Kept[Pair, Histogram] = Kept(lambda key: run.labels(*key))
        self._breakers: Kept[Pair, Counter] = Kept(lambda key: breakers.labels(*key))

    def __call__(self, change: StateChange) -> None:
        """Count a change of a job's state."""
        job = change.job
        if change.event is Event.CLAIMED:
            waited = (self._clock.now() - job.run_at).total_seconds()
            self._waits.of(self._pair(job)).observe(max(waited, 0.0))
        elif change.source is State.RUNNING and change.target is not State.RUNNING:
            pair = self._pair(job)
            self._attempts.of((pair, change.event.value)).inc()
            if change.seconds is not None:
                self._runs.of(pair).observe(change.seconds)

    def of_breaker(self, change: BreakerChange) -> None:
        """Count a change of a breaker's phase."""
        self._breakers.of((str(change.change.task), str(change.change.target))).inc()

    def exposition(self) -> str:
        """Say all of the registry as Prometheus reads it; `mainspring worker --health` answers with it, too."""
        return generate_latest(self._registry).decode()

    def _pair(self, job: Job) -> "Pair":
        """Return the labels of a job: its own, while there are few enough."""
        pair = job.queue, str(job.task)
        if pair in self._pairs:
            return pair
        if len(self._pairs) >= self._most:
            return _THE_REST
        self._pairs.add(pair)
        return pair


class Kept(Generic[K, V]):
    """What was made once for a key."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make: Final = make
        self._made: Final[dict[K, V]] = {}

    def of(self, key: K) -> V:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._make(key)
        return found
