"""The steps of a comparison: each does the same to both stores, compares the answers, and looks at everything."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.breaker import Attempt, Breaker, Phase, refusal
from mainspring.core.command import CancelJob, Command, MoveJob
from mainspring.core.job import FINISHED, WAITING, Claim, Job, JobId, NodeId, Retention, State
from mainspring.core.limits import Gate
from mainspring.core.machine import Change
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Lost, Outcome, Raised, Snoozed, Succeeded
from mainspring.duration import duration
from mainspring.errors import IllegalTransition, MainspringError
from mainspring.stores.records import (
    BreakerView,
    Delivery,
    JobFilter,
    JobView,
    LogLine,
    NewJob,
    NodeRecord,
    Note,
    Place,
    Process,
    Progress,
    Settlement,
    Verdict,
)
from tests.stores import asked
from tests.stores.asked import ALL, chosen
from tests.stores.drawn import QUEUES, SCOPES, TASKS, Spec, Wish
from tests.stores.ledger import Ledger
from tests.stores.pair import Pair, Side

MOST_NODES = 4


class Story:
    """What happens to both stores; each step is a method. One for which there is nothing to do does nothing."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.ledger = Ledger()
        self.made = 0
        self.records: dict[NodeId, NodeRecord] = {}
        self.alive: set[NodeId] = set()
        self.paused: set[str] = set()
        self.claims: list[Claim] = []
        self.terms: dict[tuple[JobId, int], int | None] = {}
        """In which terms of their breakers attempts were let through."""
        self.breakers: dict[Name, BreakerView] = {}
        self.views: dict[JobId, JobView] = {}
        self.older: list[Job] = []
        """Jobs as they were, for commands that come too late."""
        self.touched: set[JobId] = set()

    @property
    def now(self) -> datetime:
        return self.pair.clock.now()

    @property
    def nodes(self) -> list[NodeId]:
        return list(self.records)

    @property
    def running(self) -> list[Claim]:
        """What runs, as it is now."""
        views = [view for view in self.views.values() if view.job.state is State.RUNNING]
        return [Claim(job=view.job, node=view.node) for view in views if view.node]

    def close(self) -> None:
        self.pair.close()

    def look(self) -> None:
        """Compare everything that can be seen, and hold it against the ledger."""
        page, _, _ = self.pair.both(asked.everything)
        assert page.after is None
        self.older = [*self.older[-20:], *(view.job for view in [*self.views.values()][:3])]
        self.views = {view.job.id: view for view in page.jobs}
        for job in self.touched:
            self.pair.both(partial(asked.histories, job=job))
        self.touched.clear()
        self.ledger.check(page.jobs)
        views, _ = self.pair.both(asked.breakers)
        self.breakers = {view.task: view for view in views}
        running = {Attempt(claim.job.id, claim.job.lease) for claim in self.running}
        for view in views:
            probe = view.circuit.probe
            assert probe is None or (probe in running and view.circuit.phase is Phase.HALF_OPEN)

    # Enqueuing.

    def begin(self, some: list[Spec], gates: list[Gate]) -> None:
        for known in (TASKS, TASKS, TASKS[:1]):
            self.join(frozenset(known))
        for gate in gates:
            self.declare(gate)
        self.enqueue(some)

    def enqueue(self, some: list[Spec]) -> None:
        new = [self.new(spec) for spec in some]
        answers = self.pair.ask(lambda side: side.store.enqueue(new))
        if not isinstance(answers, MainspringError):
            self.ledger.enqueued(answers)
        self.look()

    def new(self, spec: Spec) -> NewJob:
        self.made += 1
        # Ids do not grow with time: the order by id must not be that of arrival by accident.
        id_ = JobId(UUID(int=spec.number << 64 | self.made))
        if spec.again and self.views:
            id_ = chosen(list(self.views), spec.number)
        queue, priority = spec.lane
        return NewJob(
            id=id_,
            task=spec.task,
            payload=str(self.made).encode(),
            backoff=Backoff.linear("1s", "3s"),
            max_attempts=spec.max_attempts,
            run_at=spec.delay,
            expires=spec.expires,
            queue=queue,
            priority=priority,
            loss_limit=spec.loss_limit,
            # One shorter and one longer than the longest period of a unique key.
            retention=Retention(succeeded=timedelta(minutes=5), failed=timedelta(hours=1)),
            key=spec.key,
            unique=spec.unique,
        )

    # Claiming.

    def claim(self, pick: int, wish: Wish) -> None:
        node = chosen(self.nodes, pick)
        deliveries = self.claim_of(node, wish)
        self.look()
        if node in self.alive:
            self.check_next_due(wish, deliveries)

    def claim_plainly(self, pick: int) -> None:
        self.claim(pick, Wish(room=3))

    def work(self, pick: int, room: int, ends: list[tuple[Outcome, bool]]) -> None:
        """Claim, and settle most of it, as a node does all day long."""
        deliveries = self.claim_of(chosen(self.nodes, pick), Wish(room=room))
        self.write(
            [
                self.end_of(delivery.claim, outcome, keeps_place=keeps_place)
                for delivery, (outcome, keeps_place) in zip(deliveries, ends, strict=False)
            ]
        )

    def claim_of(self, node: NodeId, wish: Wish) -> tuple[Delivery, ...]:
        deliveries = self.pair.ask(partial(asked.claim, node=node, wish=wish))
        assert isinstance(deliveries, MainspringError) == (node not in self.alive)
        if isinstance(deliveries, MainspringError):
            return ()
        self.ledger.claimed(deliveries, node, self.now)
        self.check_breakers(deliveries)
        self.terms |= {(one.claim.job.id, one.claim.job.lease): one.term for one in deliveries}
        self.claims += [delivery.claim for delivery in deliveries]
        return deliveries

    def check_breakers(self, deliveries: Sequence[Delivery]) -> None:
        """Hold what was given out against the breakers as they stood before."""
        given = Counter(delivery.claim.job.task for delivery in deliveries)
        for view in self.breakers.values():
            if view.circuit.phase is not Phase.CLOSED:
                assert given[view.task] <= (refusal(view.rule, view.circuit, self.now) is None)
        for delivery in deliveries:
            there = self.breakers.get(delivery.claim.job.task)
            enters = there is not None and there.circuit.phase is Phase.OPEN
            assert delivery.term == (None if there is None else there.circuit.term + enters)

    def check_next_due(self, wish: Wish, taken: Sequence[Delivery]) -> None:
        """What time alone decides must not be forgotten. A store may send a node too early, but not too late."""
        if not wish.room + wish.ahead or wish.behind:
            return
        request = wish.of(NodeId(""), 0, self.now)
        from_queues = Counter(delivery.claim.job.queue for delivery in taken)
        for view in self.views.values():
            job = view.job
            breaker = self.breakers.get(job.task)
            refused = refusal(breaker.rule, breaker.circuit, self.now) if breaker else None
            may_have_it = (
                job.state in WAITING
                and (refused is None or refused.until is not None)
                and job.task in wish.tasks
                and job.queue not in self.paused
                and request.room_in(job.queue) > from_queues[job.queue]
                and (not job.is_suspect or min(wish.suspects, wish.room) > len(taken))
                and not self.ledger.is_full(view)
            )
            if may_have_it:
                opens = [refused.until] if refused and refused.until else []
                could_get = max(job.run_at, self.now, *self.ledger.opens_at(view), *opens)
                for told in self.pair.next_due:
                    assert told is not None
                    assert told <= could_get

    # Settling.

    def settle(self, ends: list[tuple[int, Outcome, bool]]) -> None:
        """Settle what runs, as it is now, by its holder."""
        if not self.running:
            return
        self.write(
            [
                self.end_of(claim, outcome, keeps_place=keeps_place)
                for pick, outcome, keeps_place in ends
                for claim in [chosen(self.running, pick)]
            ]
        )

    def settle_wrongly(self, pick: int, outcome: Outcome, whose: int | None, lease: int) -> None:
        """Settle what was claimed at any time: too late, in another's name, or under a lease that is not held."""
        if not self.claims:
            return
        claim = chosen(self.claims[-8:], pick)
        node = claim.node if whose is None else chosen(self.nodes, whose)
        wrong = Claim(job=replace(claim.job, lease=claim.job.lease + lease), node=node)
        self.write([self.end_of(wrong, outcome)])

    def settle_for_another(self, pick: int, outcome: Outcome, whose: int) -> None:
        if self.running:
            self.write([self.end_of(chosen(self.running, pick), outcome, by=chosen(self.nodes, whose))])

    def be_overtaken(self, pick: int, outcome: Outcome, by: str) -> None:
        """Settle and note what was true a moment ago: since then the job was cancelled, or given back and claimed."""
        claims = [claim for claim in self.running if claim.node in self.alive]
        if not claims:
            return
        claim = chosen(claims, pick)
        if by == "cancel":
            self.write([Settlement(change=machine.command(claim.job, CancelJob(), self.now))])
        else:
            self.write([self.end_of(claim, Snoozed(delay=timedelta(0)))])
            self.claim_of(chosen([claim.node, *sorted(self.alive)], pick), Wish(room=9))
        late = Note(job=claim.job.id, lease=claim.job.lease, node=claim.node, saved=b"late")
        self.pair.both(lambda side: side.store.note([late]))
        self.write([self.end_of(claim, outcome)])

    def reap(self, pick: int, keeps_place: bool) -> None:
        """Settle what dead nodes have left, as a reaper does."""
        orphans = self.pair.both(asked.sorted_orphans)
        assert {claim.job.id for claim in orphans} == {
            claim.job.id for claim in self.running if claim.node not in self.alive
        }
        if orphans and self.alive:
            reaper = chosen(sorted(self.alive), pick)
            verdicts = self.write([self.end_of(one, Lost(), keeps_place=keeps_place, by=reaper) for one in orphans])
            assert set(verdicts) == {Verdict.ACCEPTED}

    def command(self, pick: int, command: Command, late: bool) -> None:
        jobs = self.older if late else [view.job for view in self.views.values()]
        changes = [change for job in jobs if (change := self.obeyed(job, command))]
        if changes:
            self.write([Settlement(change=chosen(changes, pick))])

    def obeyed(self, job: Job, command: Command) -> Change | None:
        try:
            return machine.command(job, command, self.now)
        except IllegalTransition:
            return None

    def move_in_time(self, pick: int, minutes: int) -> None:
        self.command(pick, MoveJob(run_at=self.now + timedelta(minutes=minutes)), late=False)

    def end_of(
        self, claim: Claim, outcome: Outcome, *, keeps_place: bool = False, by: NodeId | None = None
    ) -> Settlement:
        change = machine.decide(claim, outcome, self.now, roll=0.5)
        # Only the holder knows the term. One that has forgotten it is fine too, unless the attempt has succeeded.
        is_known = by is None and (claim.job.id.int % 16 or isinstance(outcome, Succeeded))
        term = self.terms.get((claim.job.id, claim.job.lease)) if is_known else None
        return Settlement(change=change, by=by or claim.node, seconds=1.5, keeps_place=keeps_place, term=term)

    def write(self, settlements: Sequence[Settlement]) -> list[Verdict]:
        answers = self.pair.both(lambda side: side.store.settle(settlements))
        for settlement, answer in zip(settlements, answers, strict=True):
            change = settlement.change
            self.touched.add(change.before.id)
            if answer.verdict is not Verdict.ACCEPTED:
                continue
            if change.after is None:
                self.ledger.deleted(change.before.id)
            elif change.node is not None:
                self.ledger.ended(Claim(job=change.before, node=change.node), keeps_place=settlement.keeps_place)
        self.look()
        return [answer.verdict for answer in answers]

    def note(self, pick: int, whose: int | None, saved: bytes | None, lines: int) -> None:
        """Note what an attempt says that runs, or ran not long ago."""
        claims = [*self.running, *self.claims[-4:]]
        if not claims:
            return
        claim = chosen(claims, pick)
        note = Note(
            job=claim.job.id,
            lease=claim.job.lease,
            node=claim.node if whose is None else chosen(self.nodes, whose),
            saved=saved,
            progress=Progress(float(lines)) if lines else None,
            lines=tuple(LogLine(self.now, "INFO", str(number)) for number in range(lines)),
        )
        self.pair.both(lambda side: side.store.note([note]))
        self.touched.add(claim.job.id)
        self.look()

    # Gates.

    def declare(self, gate: Gate) -> None:
        self.pair.both(lambda side: side.store.declare([gate]))
        self.ledger.declared(gate)
        self.look()

    def declare_the_same(self, pick: int) -> None:
        """Declare a gate again, with its rate as it was: as every node does that joins."""
        gates = [gate for gate in self.ledger.gates if gate.rate] or self.ledger.gates
        if gates:
            gate = chosen(gates, pick)
            self.declare(replace(gate, concurrency=chosen([gate.concurrency, 2, 3], pick)))

    def release(self, pick: int, whose: int | None) -> None:
        if self.ledger.places:
            node, place = chosen(self.ledger.places, pick)
            places = [place, Place(place.job, place.lease + 1)]
            releaser = node if whose is None else chosen(self.nodes, whose)
            self.pair.both(lambda side: side.store.release(releaser, places))
            self.ledger.released(releaser, places)
            self.look()

    # Breakers.

    def rule(self, task: Name, rule: Breaker | None) -> None:
        self.pair.both(lambda side: side.store.declare_breakers({task: rule}))
        self.look()

    def fail(self, pick: int, room: int, fatal: bool) -> None:
        """Claim, and have all of it fail, as a task does that is broken."""
        failed = Raised(error=AttemptError(type="ValueError", message="no"), retryable=not fatal)
        deliveries = self.claim_of(chosen(self.nodes, pick), Wish(room=room))
        self.write([self.end_of(delivery.claim, failed) for delivery in deliveries])

    def probe(self, pick: int, rule: Breaker, outcome: Outcome, how: str) -> None:
        """Have a task fail until its breaker opens, wait, and end the probe in some way or other."""
        task, node = TASKS[0], chosen(sorted(self.alive), pick)
        self.rule(task, rule)
        for _ in range(rule.threshold):
            self.fail(self.nodes.index(node), room=2, fatal=False)
        self.claim(pick, Wish(room=3))  # with what is left, and whatever the breaker says to it
        self.time_passes(duration(rule.cooldown).total_seconds())
        self.claim_of(node, Wish(room=2))
        self.look()
        there = self.breakers[task].circuit.probe
        claims = [claim for claim in self.running if there == Attempt(claim.job.id, claim.job.lease)]
        if not claims:
            return
        (claim,) = claims
        if how == "by a reaper" and len(self.alive) > 1:
            self.pair.both(partial(asked.declare_dead, node=claim.node))
            self.alive.discard(claim.node)
            self.reap(pick, keeps_place=False)
        else:
            if how == "cancelled":
                self.write([Settlement(change=machine.command(claim.job, CancelJob(), self.now))])
                claim = Claim(job=self.views[claim.job.id].job, node=claim.node)
            ended = self.end_of(claim, outcome)
            forgets = how == "without a term" and not isinstance(outcome, Succeeded)
            self.write([replace(ended, term=None) if forgets else ended])
        self.claim(pick, Wish(room=3))

    def operate(self, task: Name, phase: Phase | None, behind: int | None) -> None:
        there = self.breakers.get(task)
        term = None if behind is None or there is None else there.circuit.term - behind

        async def operate(side: Side) -> object:
            if phase is None:
                return await side.store.reset_breaker(task, term=term, by="me")
            return await side.store.force_breaker(task, phase, term=term, by="me", reason="because")

        changed = self.pair.both(operate)
        is_so_already = there is not None and there.circuit.forced and there.circuit.phase is phase
        assert (changed is not None) == (there is not None and behind != 1 and not is_so_already)
        self.look()

    # Nodes.

    def join(self, known: frozenset[Name]) -> None:
        number = len(self.records)
        if len(self.alive) >= MOST_NODES:
            return
        process = Process(host="here", pid=number, started="")
        record = NodeRecord(id=NodeId(f"node-{number}"), process=process, tasks=known)

        async def join(side: Side) -> None:
            side.terms[record.id] = await side.store.join(record)

        self.pair.both(join)
        self.records[record.id] = record
        self.alive.add(record.id)
        self.look()

    def renew(self, pick: int) -> None:
        node = chosen(self.nodes, pick)
        answer = self.pair.ask(partial(asked.plain_pulse, node=node))
        assert isinstance(answer, MainspringError) == (node not in self.alive)
        self.look()

    def declare_dead(self, pick: int, behind: int | None) -> None:
        node = chosen(self.nodes, pick)
        if len(self.alive) == 1:
            return

        async def declare_dead(side: Side) -> bool:
            counters = {view.node.id: view.counter for view in await side.store.nodes()}
            counter = None if behind is None or node not in counters else counters[node] - behind
            return await side.store.declare_dead(node, side.terms[node], counter)

        died = self.pair.both(declare_dead)
        assert died == (node in self.alive and behind != 1)
        if died:
            self.alive.discard(node)
        self.look()

    # Time.

    def time_passes(self, seconds: float) -> None:
        self.pair.clock.advance(seconds)
        self.look()

    def the_clock_is_set_back(self, seconds: int) -> None:
        # Accounts of rates that were written more than a minute ahead are corrected at once in memory, and when a claim
        # reads them by the others: a claim in between differs. Tests of their own are about that.
        has_rates = any(gate.rate for gate in self.ledger.gates)
        self.pair.clock.jump(timedelta(seconds=-min(seconds, 3) if has_rates else -seconds))
        self.look()

    # What is rare.

    def pause_or_resume(self, queue: str, pause: bool) -> None:
        if pause:
            assert self.pair.both(lambda side: side.store.pause(queue, by="me")) == (queue not in self.paused)
            self.paused.add(queue)
        else:
            assert self.pair.both(lambda side: side.store.resume(queue)) == (queue in self.paused)
            self.paused.discard(queue)
        self.look()

    def something_rare(self, what: str, pick: int) -> None:
        match what:
            case "update":
                self.update(chosen(self.nodes, pick), frozenset(TASKS[: 1 + pick % 3]))
            case "prune":
                self.prune()
            case "mend":
                assert self.pair.both(lambda side: side.store.mend(ALL)) == self.ledger.mended(self.alive)
            case "order":
                self.pair.ask(partial(asked.give_order, node=chosen(self.nodes, pick), places=pick % 3))
            case "answer":
                self.pair.ask(partial(asked.answer_order, pick=pick))
            case _:
                self.pair.both(partial(asked.unknown_tasks, grace=timedelta(seconds=1 + pick % 5000)))
        self.look()
        for node in self.nodes:
            self.pair.both(partial(asked.plain_orders, node=node))

    def update(self, node: NodeId, known: frozenset[Name]) -> None:
        record = replace(self.records[node], tasks=known)
        answer = self.pair.ask(lambda side: side.store.update(node, side.terms[node], record))
        assert isinstance(answer, MainspringError) == (node not in self.alive)
        if node in self.alive:
            self.records[node] = record

    def prune(self) -> None:
        async def prune(side: Side) -> None:
            while await side.store.prune(ALL):
                pass

        before = self.views
        self.pair.both(prune)
        page = self.pair.both(lambda side: side.store.list_jobs(JobFilter(), limit=ALL))
        self.ledger.pruned(before, {view.job.id: view for view in page.jobs}, self.now)

    def lock(self, name: str, holder: str, does: str, pick: int) -> None:
        self.pair.both(partial(asked.use_lock, name=name, holder=holder, does=does, pick=pick))

    # The end.

    def drain(self) -> None:
        """Take away all that could hold a job back: then every active job is given out, and none was lost."""
        self.pair.clock.advance("7d")
        for queue in [*QUEUES, "empty"]:
            self.pair.both(partial(asked.resume, queue=queue))
        open_gates = [Gate(scope=scope, name=name) for scope, name in SCOPES]
        self.pair.both(lambda side: side.store.declare(open_gates))
        for gate in open_gates:
            self.ledger.declared(gate)
        self.pair.both(lambda side: side.store.declare_breakers(dict.fromkeys(TASKS)))
        self.breakers = {}
        for node in sorted(self.alive):
            self.pair.both(partial(asked.declare_dead, node=node))
        self.alive.clear()
        self.join(frozenset(TASKS))
        (survivor,) = self.alive
        self.reap(0, keeps_place=False)
        active = {job for job, view in self.views.items() if view.job.state not in FINISHED}
        given = set()
        while claimed := self.claim_of(survivor, Wish(room=3)):
            given |= {delivery.claim.job.id for delivery in claimed}
        assert given == active
        self.touched |= self.views.keys()
        self.look()
