"""Tier of a run: which tests run, how long chaos goes on, and the seed of every random choice.

| variable | meaning |
| --- | --- |
| `MAINSPRING_TESTS` | `full`: the tests of `make test-full`; else those of `make test` |
| `MAINSPRING_SEED` | seed of random choices; default: 1, or a random number with one of the other two variables |
| `MAINSPRING_ORDER` | `random`: modules, and the tests of each module, in random order by the seed; default: pytest's order |

The processes of pytest-xdist inherit the seed from the first one, which prints it.
"""

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

FULL: Final = os.environ.get("MAINSPRING_TESTS") == "full"
RANDOM_ORDER: Final = os.environ.get("MAINSPRING_ORDER") == "random"
DEFAULT_SEED: Final = 1


def _read_seed() -> int:
    chosen = os.environ.get("MAINSPRING_SEED")
    if chosen is None:
        chosen = str(random.SystemRandom().randrange(10**9) if FULL or RANDOM_ORDER else DEFAULT_SEED)
        os.environ["MAINSPRING_SEED"] = chosen
    # The order of sets of strings in all processes that are started from here on; this one has been started already.
    os.environ.setdefault("PYTHONHASHSEED", str(int(chosen) % 2**32))
    return int(chosen)


SEED: Final = _read_seed()


def seeded_random(name: str) -> random.Random:
    """Return random numbers of a test or a run: the same each time for the same seed."""
    return random.Random(f"{SEED} {name}")  # noqa: S311 -- not for secrets


def repeat_variables() -> str:
    """Return the variables of the environment that repeat the choices of this run."""
    variables = {"MAINSPRING_SEED": str(SEED)}
    if FULL:
        variables["MAINSPRING_TESTS"] = "full"
    if RANDOM_ORDER:
        variables["MAINSPRING_ORDER"] = "random"
    return " ".join(f"{name}={value}" for name, value in sorted(variables.items()))


class CollectedTest(Protocol):
    """A collected test."""

    @property
    def nodeid(self) -> str: ...


T = TypeVar("T", bound=CollectedTest)


def shuffled(items: Iterable[T]) -> list[T]:
    """Return tests in random order, module by module: fixtures of a module are made once."""
    modules: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        modules[item.nodeid.partition("::")[0]].append(item)
    order = seeded_random("order")
    names = list(modules)
    order.shuffle(names)
    found: list[T] = []
    for name in names:
        tests = modules[name]
        order.shuffle(tests)
        found += tests
    return found
