"""The rules by which the messages of an outbox are delivered."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.core.outbox import (
    LONGEST_NAME,
    LOST,
    Delivery,
    Ended,
    Next,
    Order,
    Stand,
    Trouble,
    Verdict,
    begin,
    begin_next,
    check_name,
    check_partitions,
    check_type,
    end,
    end_aside,
    lost,
    may_begin,
    partition_of,
    release,
    width_of,
)
from mainspring.errors import BadOutboxName, BadPayloadType, DeclarationError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NODE = NodeId("node")
BACKOFF = Backoff.exponential(1, cap=60, jitter=0.0)
BOOM = Trouble("boom")

rules_drawn = st.builds(
    Delivery,
    batch=st.integers(1, 20),
    max_attempts=st.integers(1, 6),
    degrade_after=st.integers(1, 4),
    backoff=st.just(BACKOFF),
    order=st.sampled_from(Order),
    by_message=st.booleans(),
)


def a_rule(
    *, batch: int = 10, by_message: bool = False, order: Order = Order.PARTITION, attempts: int = 10
) -> Delivery:
    return Delivery(
        batch=batch, max_attempts=attempts, degrade_after=2, backoff=BACKOFF, by_message=by_message, order=order
    )


class Line:
    """A partition that is delivered by the rules to a handler that cannot stand some of its messages."""

    def __init__(self, rules: Delivery, messages: int, *, poison: set[int], kills: bool) -> None:
        self.rules = rules
        self.messages = messages
        self.poison = poison
        self.kills = kills
        self.stand = Stand()
        self.now = NOW
        self.deliveries: Counter[int] = Counter()
        self.rounds = 0
        self.widths: list[int] = []
        self.done: list[int] = []
        self.dead: dict[int, int] = {}
        self.aside: dict[int, int] = {}

    def run(self, most: int) -> None:
        while self.stand.cursor < self.messages:
            self.rounds += 1
            assert self.rounds <= most, "it goes on for ever"
            self.step()
        while self.aside:
            self.rounds += 1
            assert self.rounds <= most, "it goes on for ever"
            self.step_aside(min(self.aside))

    def step(self) -> None:
        before = self.stand
        if before.retry_at:
            self.now = max(self.now, before.retry_at)
        assert may_begin(before, self.now, is_held=False)
        given = min(width_of(before, self.rules), self.messages - before.cursor)
        self.widths.append(given)
        begun = begin(before, NODE, given)
        assert begun.revision == before.revision + 1
        seqs = range(before.cursor + 1, before.cursor + given + 1)
        self.deliveries.update(seqs)
        bad = next((seq for seq in seqs if seq in self.poison), None)
        if bad is not None and self.kills:
            after = lost(begun, self.rules, self.now, 0.5)
            done = 0
        else:
            done = given if bad is None else bad - before.cursor - 1 if self.rules.by_message else 0
            after = end(begun, Ended(done, None if bad is None else BOOM), self.rules, self.now, 0.5)
        self.done += seqs[:done]
        self.take(before, after, before.cursor + done + 1)

    def take(self, before: Stand, after: Next, blamed: int) -> None:
        assert after.stand.revision == before.revision + 2
        assert after.stand.cursor >= before.cursor, "the cursor has gone back"
        assert after.stand.given == 0
        assert after.stand.holder is None
        assert after.attempts <= self.rules.max_attempts
        assert after.stand.attempts < self.rules.max_attempts
        match after.verdict:
            case Verdict.DEAD:
                self.dead[blamed] = after.attempts
                assert after.stand.retry_at is None
            case Verdict.ASIDE:
                self.aside[blamed] = after.attempts
                assert after.retry_at
                assert after.retry_at > self.now
            case Verdict.AGAIN:
                assert after.stand.retry_at == after.retry_at
                assert after.retry_at
                assert after.retry_at > self.now
            case Verdict.NONE:
                assert after.stand.retry_at is None
        self.stand = after.stand

    def step_aside(self, seq: int) -> None:
        self.deliveries[seq] += 1
        after = end_aside(self.aside[seq], BOOM, self.rules, self.now, 0.5)
        assert after.attempts <= self.rules.max_attempts
        if after.verdict is Verdict.DEAD:
            self.dead[seq] = after.attempts
            del self.aside[seq]
        else:
            self.aside[seq] = after.attempts


@given(rules=rules_drawn, messages=st.integers(1, 40), place=st.integers(0, 39), kills=st.booleans())
def test_one_poison_message_ends_as_the_only_dead_letter_and_all_others_are_done(
    rules: Delivery, messages: int, place: int, *, kills: bool
) -> None:
    poison = place % messages + 1
    line = Line(rules, messages, poison={poison}, kills=kills)

    line.run(most=messages + 4 * rules.max_attempts + 6 * rules.batch)

    assert set(line.dead) == {poison}
    assert sorted(line.done) == [seq for seq in range(1, messages + 1) if seq != poison]
    assert line.stand.cursor == messages


@given(
    rules=rules_drawn,
    messages=st.integers(1, 30),
    poison=st.sets(st.integers(1, 30), max_size=6),
    kills=st.booleans(),
)
def test_however_many_are_poison_exactly_those_die_and_none_has_more_attempts_than_it_may(
    rules: Delivery, messages: int, poison: set[int], *, kills: bool
) -> None:
    poison = {seq for seq in poison if seq <= messages}
    line = Line(rules, messages, poison=poison, kills=kills)

    line.run(most=2 * messages + (len(poison) + 1) * (4 * rules.max_attempts + 6 * rules.batch))

    assert set(line.dead) == poison
    assert all(attempts <= rules.max_attempts for attempts in line.dead.values())
    assert sorted(line.done) == sorted(set(range(1, messages + 1)) - poison)


@given(rules=rules_drawn, messages=st.integers(1, 30))
def test_where_nothing_fails_everything_is_delivered_once(rules: Delivery, messages: int) -> None:
    line = Line(rules, messages, poison=set(), kills=False)

    line.run(most=messages)

    assert set(line.deliveries.values()) == {1}


@given(rules=rules_drawn, place=st.integers(1, 12))
def test_a_message_that_is_known_to_fail_is_delivered_as_often_as_it_may_and_no_more(
    rules: Delivery, place: int
) -> None:
    assume(rules.by_message)
    line = Line(rules, 12, poison={place}, kills=False)

    line.run(most=200)

    # What is behind the one that failed was given with it, and not begun.
    assert line.dead == {place: rules.max_attempts}


def test_a_batch_that_fails_shrinks_to_one_and_grows_back_by_doubling() -> None:
    line = Line(a_rule(batch=16), 40, poison={1}, kills=False)

    line.run(most=100)

    # Twice as a whole, then the one to blame alone until its attempts are used up.
    assert line.widths == [16, 16, *[1] * 8, 1, 2, 4, 8, 16, 8]
    assert line.dead == {1: 10}


def test_a_batch_that_fails_while_it_grows_back_is_taken_apart_at_once() -> None:
    line = Line(a_rule(batch=16, attempts=3), 20, poison={4}, kills=False)

    line.run(most=100)

    # Failing in company counts: of its three attempts it has two alone.
    assert line.widths == [16, 16, 1, 2, 4, 1, 1, 1, 2, 4, 8, 1]
    assert line.dead == {4: 3}


def test_a_message_that_ends_its_node_is_counted_and_ends_as_a_dead_letter() -> None:
    line = Line(a_rule(by_message=True, attempts=3), 4, poison={2}, kills=True)

    line.run(most=20)

    assert line.dead == {2: 3}
    assert line.done == [1, 3, 4]


def test_a_lost_delivery_is_counted_for_its_first_message_and_waits() -> None:
    begun = begin(Stand(cursor=7, attempts=2), NODE, 5)

    after = lost(begun, a_rule(by_message=True), NOW, 0.5)

    assert after.verdict is Verdict.AGAIN
    assert after.stand.attempts == 3
    assert after.stand.width == 1
    assert after.stand.cursor == 7
    assert after.stand.retry_at == NOW + timedelta(seconds=4)
    assert after.stand.error == LOST


def test_a_new_message_never_shortens_a_wait() -> None:
    waiting = Stand(retry_at=NOW + timedelta(seconds=5))

    assert not may_begin(waiting, NOW, is_held=False)
    assert may_begin(waiting, NOW + timedelta(seconds=5), is_held=False)
    assert not may_begin(waiting, NOW + timedelta(seconds=5), is_held=True)
    assert may_begin(Stand(), NOW, is_held=False)


@given(wait=st.integers(0, 100), attempts=st.integers(0, 5))
def test_neither_giving_a_partition_up_nor_what_was_set_aside_shortens_a_wait(wait: int, attempts: int) -> None:
    stand = Stand(attempts=attempts, cursor=3, retry_at=NOW + timedelta(seconds=wait))

    held = begin_next(release(stand), NODE, 0)

    assert (held.holder, held.given, held.retry_at) == (NODE, 0, stand.retry_at)
    left = release(held)
    assert left == Stand(revision=2, attempts=attempts, cursor=3, retry_at=stand.retry_at)
    assert begin_next(left, NODE, 1).retry_at is None


def test_a_delivery_that_is_given_up_counts_for_nothing() -> None:
    stand = Stand(cursor=3, attempts=1, width=2)

    assert release(begin(stand, NODE, 2)) == Stand(revision=2, cursor=3, attempts=1, width=2)


def test_the_end_of_one_delivery_and_the_beginning_of_the_next_are_one_step() -> None:
    after = end(begin(Stand(), NODE, 3), Ended(3), a_rule(), NOW, 0.5)

    begun = begin_next(after.stand, NODE, 2)

    assert begun == Stand(revision=2, cursor=3, holder=NODE, given=2)


def test_what_was_acknowledged_stays_so_when_the_rest_fails() -> None:
    after = end(begin(Stand(attempts=4), NODE, 5), Ended(2, BOOM), a_rule(), NOW, 0.5)

    assert (after.stand.cursor, after.stand.attempts, after.attempts) == (2, 1, 1)


def test_a_handler_may_say_how_long_to_wait() -> None:
    after = end(begin(Stand(), NODE, 1), Ended(0, Trouble("later", after=timedelta(hours=1))), a_rule(), NOW, 0.5)

    assert after.retry_at == NOW + timedelta(hours=1)
    assert after.attempts == 1


@pytest.mark.parametrize("given", [1, 5])
def test_a_message_that_is_put_off_has_its_attempt_back(given: int) -> None:
    stand = begin(Stand(attempts=1, width=given), NODE, given)
    put_off = Trouble("not now", after=timedelta(minutes=1), counts=False)

    after = end(stand, Ended(0, put_off), a_rule(), NOW, 0.5)

    assert after.verdict is Verdict.AGAIN
    assert (after.stand.attempts, after.stand.width) == (1, given)
    assert after.retry_at == NOW + timedelta(minutes=1)


def test_one_that_was_set_aside_and_is_put_off_has_its_attempt_back() -> None:
    put_off = Trouble("not now", counts=False)

    after = end_aside(0, put_off, a_rule(), NOW, 0.5)

    assert (after.verdict, after.attempts) == (Verdict.ASIDE, 0)
    assert after.retry_at == NOW + timedelta(seconds=1)


def test_what_no_further_attempt_can_help_dies_at_once() -> None:
    final = Trouble("never", final=True)

    after = end(begin(Stand(), NODE, 3), Ended(1, final), a_rule(by_message=True), NOW, 0.5)
    aside = end_aside(1, final, a_rule(), NOW, 0.5)

    assert (after.verdict, after.attempts, after.stand.cursor) == (Verdict.DEAD, 1, 2)
    assert (aside.verdict, aside.attempts) == (Verdict.DEAD, 2)


def test_a_batch_that_is_rejected_as_a_whole_is_taken_apart_at_once() -> None:
    after = end(begin(Stand(), NODE, 3), Ended(0, Trouble("never", final=True)), a_rule(), NOW, 0.5)

    assert (after.verdict, after.stand.width, after.stand.cursor) == (Verdict.AGAIN, 1, 0)


def test_where_only_its_key_waits_a_failing_message_is_set_aside_and_the_partition_goes_on() -> None:
    after = end(begin(Stand(), NODE, 3), Ended(1, BOOM), a_rule(by_message=True, order=Order.KEY), NOW, 0.5)

    assert (after.verdict, after.attempts, after.retry_at) == (Verdict.ASIDE, 1, NOW + timedelta(seconds=1))
    assert (after.stand.cursor, after.stand.attempts, after.stand.retry_at) == (2, 0, None)


@given(key=st.text(), partitions=st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_a_key_always_belongs_to_the_same_partition(key: str, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
    assert partition_of(key, partitions) == partition_of(key, partitions)


def test_where_keys_belong_is_the_same_in_every_program_for_ever() -> None:
    assert [partition_of(key, 8) for key in ("", "a", "b", "customer-17", "ü", "\ud800")] == PINNED


PINNED = [4, 7, 5, 1, 7, 0]


def test_keys_spread_over_all_partitions() -> None:
    counts = Counter(partition_of(f"customer-{number}", 8) for number in range(8000))

    assert set(counts) == set(range(8))
    assert all(800 < count < 1200 for count in counts.values())


@pytest.mark.parametrize("name", ["a", "Orders", "orders.v1", "a-b_c.d", "0", "a" * LONGEST_NAME])
def test_names_that_an_outbox_may_have(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".a", "a.", "-", "a b", "ä", "a\n", "a" * (LONGEST_NAME + 1), None, 7])
def test_names_that_it_may_not(name: object) -> None:
    with pytest.raises(BadOutboxName):
        check_name(name)


@pytest.mark.parametrize("name", ["Order", "a b", "application/json; v=1", "~" * LONGEST_NAME])
def test_names_that_a_type_may_have(name: str) -> None:
    assert check_type(name) == name


@pytest.mark.parametrize("name", ["", "ä", "a\tb", "a" * (LONGEST_NAME + 1), None])
def test_type_names_that_it_may_not(name: object) -> None:
    with pytest.raises(BadPayloadType):
        check_type(name)


@pytest.mark.parametrize("partitions", [1, 2, 4, 8, 16, 32, 64])
def test_partitions_are_a_power_of_two(partitions: int) -> None:
    assert check_partitions("orders", partitions) == partitions


@pytest.mark.parametrize("partitions", [0, 3, 65, 128, -1, True, "8", 8.0, None])
def test_other_numbers_of_partitions_are_refused(partitions: object) -> None:
    with pytest.raises(DeclarationError, match="power of two"):
        check_partitions("orders", partitions)
