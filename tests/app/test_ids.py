"""Ids grow, whatever the clock does, in any number of threads, and differ between a process and its forks."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

from hypothesis import given
from hypothesis import strategies as st

from mainspring.ids import Ids, new_id

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds, and adds the zone


def milliseconds(number: int) -> int:
    return number >> 80


def test_an_id_is_a_uuid_of_version_7_that_tells_its_time() -> None:
    made = Ids().next(NOON)

    assert (made.version, made.variant) == (7, RFC_4122)
    assert milliseconds(made.int) == NOON.timestamp() * 1000


@given(st.lists(MOMENTS, min_size=2))
def test_ids_grow_whatever_the_clock_does(moments: list[datetime]) -> None:
    ids = Ids()
    made = [ids.next(moment) for moment in moments]

    assert made == sorted(set(made))
    assert {one.version for one in made} == {7}


def test_ids_catch_up_with_the_clock() -> None:
    ids = Ids()
    ids.next(NOON)

    later = ids.next(NOON + timedelta(hours=1))

    assert milliseconds(later.int) == (NOON + timedelta(hours=1)).timestamp() * 1000


def test_a_count_that_is_used_up_borrows_from_the_next_millisecond() -> None:
    ids = Ids()
    before = ids.next(NOON)
    ids._count = (1 << 42) - 1

    after = ids.next(NOON)

    assert after > before
    assert milliseconds(after.int) == milliseconds(before.int) + 1
    assert after.version == 7


def test_every_id_ends_in_chance_of_its_own() -> None:
    ids = Ids()
    made = [ids.next(NOON) for _ in range(1000)]

    assert len({one.int & (1 << 32) - 1 for one in made}) > 990


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: [new_id(NOON) for _ in range(500)], range(8)))

    assert len({one for some in made for one in some}) == 4000
    for some in made:
        assert some == sorted(some)


def test_a_forked_child_begins_a_line_of_its_own() -> None:
    program = """
import os, sys
from datetime import UTC, datetime
from mainspring.ids import new_id
noon = datetime(2030, 1, 1, tzinfo=UTC)
new_id(noon)
read, write = os.pipe()
if not (child := os.fork()):
    os.write(write, str(new_id(noon)).encode())
    os._exit(0)
os.waitpid(child, 0)
print(new_id(noon), os.read(read, 100).decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    parent, child = done.stdout.split()

    # All but the last 32 bits, which are chance: side by side, the two would have counted alike.
    assert parent[:27] != child[:27]


def test_a_forked_child_numbers_its_claims_from_a_start_of_its_own() -> None:
    program = """
import os
from mainspring.ids import new_claim_number
new_claim_number()
read, write = os.pipe()
if not (child := os.fork()):
    os.write(write, str(new_claim_number()).encode())
    os._exit(0)
os.waitpid(child, 0)
print(new_claim_number(), os.read(read, 100).decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    parent, child = done.stdout.split()

    assert parent != child
