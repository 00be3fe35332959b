"""Every error that Mainspring raises, in one tree.

MainspringError
├── DeclarationError        something was declared wrongly; raised where it is declared (also a ValueError)
│   ├── BadName             a name that could not be kept or printed without loss
│   ├── BadDuration         a length of time that cannot be read
│   ├── ScheduleError       a rule that cannot be read or can never fire, or a schedule that cannot do what was asked
│   ├── ControlError        the control object was asked for what makes no sense, or has nobody to ask
│   ├── BadOutboxName       a name that no outbox can have
│   ├── BadPayloadType      the name of a payload's type that cannot be kept with a message
│   ├── PartitionOutOfRange  a partition that the outbox does not have
│   └── PartitionCountMismatch  an outbox that is there already with another number of partitions
├── PayloadError            a value does not fit the types it was declared with (also a ValueError)
│   ├── BadResult           a function returned a value that cannot be kept; its job has failed
│   └── PayloadTooLarge     a message is larger than an outbox takes
├── IllegalTransition       the life of a job has no such step
├── UnknownTask             no task is registered under that name
├── UnknownSchedule         no schedule is kept under that name
├── UnknownBreaker          the task of that name has no breaker
├── UnknownOutbox           no outbox is kept under that name
├── UnknownQueue            no job, task or node has to do with a queue of that name
├── UnknownNode             no node is known under that id
├── NoAnswer                a node has not carried out an order in the time that was waited for (also a TimeoutError)
├── NoOverview              the store does not keep what is asked for as a whole
├── Conflict                a unique key is taken by another job
├── LeaseLost               the attempt no longer holds its job; nothing it writes counts
├── JobGone                 a job is not there: never was, was deleted, or is past its retention
├── JobUnfinished           a job had not finished in the time that its result was waited for (also a TimeoutError)
├── JobFailed               the result was asked for, and the job had failed
├── JobCancelled            the result was asked for, and the job had been cancelled
├── SlotDied                the process that ran a job's function died
├── SlotStartTimeout        a process took too long to import the module of a task (also a TimeoutError)
├── Escaped                 a function raised what would have ended more than its own job, such as SystemExit
├── LockTaken               a lock was held by others for all the time that it was waited for (also a TimeoutError)
├── TransactionTooLong      a handler's transaction held the store's write lock for longer than it may
├── StoreError              the store cannot do what was asked
│   ├── StoreUnavailable    it cannot now; the same may work later
│   ├── StoreClosed         it has been closed, or was not opened
│   ├── SchemaError         what is there is no store of ours, or a newer one than this code knows
│   ├── FlushFailed         what is committed could not be brought to where it stays
│   └── NodeGone            the node is not alive under that term: it was declared dead, or has left
├── NameTaken               there is something under that name already: a task of an app, a service of a task set
├── PluginError             a plugin cannot be installed, or is not
│   └── CapabilityError     a plugin asked for what it was not granted, or nobody can be (also a PermissionError)
├── HostError               what the embedding program offers to jobs could not be used
│   ├── HostMissing         it offers no such service: not yet, no longer, or never
│   ├── CompactionFailed    it raised while it compacted its storage
│   ├── WriteFailed         it raised while it wrote
│   └── ReadFailed          it raised while it read
├── ReportedFailure         a job returned Failed: it says so itself
├── ShuttingDown            a task set that is closing takes nothing new
└── Standstill              virtual time cannot go on: nothing will ever happen (see mainspring.testing)

Each carries its data as attributes of the same names as its arguments, survives pickling, and says in its message
what to do where that can be known. Those of plugins and hosts have a number as well, their `code`. What a handler
raises to steer its own job (`RetryIn`, `Snooze`, `Fail`) is no error and lives in `core/outcome.py`.
"""

import signal
from collections.abc import Iterable, Sequence


class MainspringError(Exception):
    """The root: `except MainspringError` catches whatever the package raises on purpose."""


class DeclarationError(MainspringError, ValueError):
    """Something was declared in a way that could only fail later, so it fails now."""

    def __init__(self, subject: str, problem: str) -> None:
        super().__init__(subject, problem)
        self.subject = subject
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.subject}: {self.problem}"

    @classmethod
    def unless(cls, subject: str, requirements: Iterable[tuple[bool, str]]) -> None:
        """Raise with every problem at once, if there is a requirement that is not met."""
        if problems := [problem for met, problem in requirements if not met]:
            raise cls(subject, "; ".join(problems))


class BadName(DeclarationError):
    """A name that could not be kept or printed without loss; `subject` is the text."""

    def __str__(self) -> str:
        return f"{self.subject!r} is no valid name: {self.problem}"


class BadDuration(DeclarationError):
    """A length of time that cannot be read; `subject` is what was given."""

    def __str__(self) -> str:
        return f"{self.subject} is no valid duration: {self.problem}"


class ScheduleError(DeclarationError):
    """A rule that cannot be read or can never fire, or a schedule that cannot do what was asked of it."""


class ControlError(DeclarationError):
    """The control object was asked for what makes no sense, or has nobody to ask; `code` says which, as a number."""

    def __init__(self, subject: str, problem: str, code: int) -> None:
        super().__init__(subject, problem)
        self.args = (subject, problem, code)
        self.code = code

    def __str__(self) -> str:
        return f"0x{self.code:X}: {super().__str__()}"


class PayloadError(MainspringError, ValueError):
    """A value does not fit the types it was declared with.

    `subject` names what it was meant for (a task, a result), `path` where in the value the trouble is
    (`order.lines[2].price`; empty for the whole of it), `problem` says what is wrong there.
    """

    def __init__(self, subject: str, path: str, problem: str) -> None:
        super().__init__(subject, path, problem)
        self.subject = subject
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{self.subject}{where}: {self.problem}"


class PayloadTooLarge(PayloadError):
    """The message for `outbox` has `size` bytes, and may have `limit`."""

    def __init__(self, outbox: str, size: int, limit: int) -> None:
        problem = f"{size:,} bytes, the limit is {limit:,}; keep it elsewhere and send its key"
        super().__init__(f"outbox {outbox}", "", problem)
        self.outbox = outbox
        self.size = size
        self.limit = limit
        self.args = (outbox, size, limit)


class BadResult(PayloadError):
    """The function returned a value that cannot be kept: the job has failed, and the function is not called again."""

    def __str__(self) -> str:
        return f"{super().__str__()}; the function has returned and is not called again"


class IllegalTransition(MainspringError):
    """The life of a job has no step from `source` to `target`."""

    def __init__(self, source: str, target: str, advice: str = "") -> None:
        super().__init__(source, target, advice)
        self.source = source
        self.target = target
        self.advice = advice

    def __str__(self) -> str:
        advice = f": {self.advice}" if self.advice else ""
        return f"a job cannot go from {self.source} to {self.target}{advice}"


class NameTaken(MainspringError):
    """There is something under `name` already: a task of an app, a service of a task set, a schedule; `kind` if known."""

    def __init__(self, name: str, kind: str = "") -> None:
        super().__init__(name, kind)
        self.name = name
        self.kind = kind

    def __str__(self) -> str:
        article = "an" if self.kind[:1] in "aeiou" else "a"
        what = f"{article} {self.kind}" if self.kind else "something"
        instead = (
            ", or change the first one (schedules.change; in a shell, schedules change)"
            if self.kind == "schedule"
            else ""
        )
        return f"there is {what} named {self.name!r} already; give the second one a name of its own{instead}"


class ShuttingDown(MainspringError):
    """A task set that is closing takes nothing new; `name` was not started."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"{self.name!r} was not started: its task set is shutting down"


class Standstill(MainspringError):
    """Virtual time cannot go on: `reason` says why, `waiting` where each task stands."""

    def __init__(self, reason: str, waiting: Sequence[str]) -> None:
        super().__init__(reason, waiting)
        self.reason = reason
        self.waiting = tuple(waiting)

    def __str__(self) -> str:
        return "\n  ".join([self.reason, *self.waiting])


class UnknownTask(MainspringError):
    """No task is registered under `name`; `did_you_mean` is the nearest that is."""

    code = 0x01

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        hint = f"; did you mean {self.did_you_mean!r}?" if self.did_you_mean else ""
        return f"no task is named {self.name!r}{hint}"


class UnknownSchedule(MainspringError):
    """No schedule is kept under `name`; `did_you_mean` is the nearest that is."""

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        hint = f"; did you mean {self.did_you_mean!r}?" if self.did_you_mean else ""
        return f"no schedule is named {self.name!r}{hint}"


class UnknownBreaker(MainspringError):
    """No breaker is declared for the task `name`; `did_you_mean` is the nearest that has one."""

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        hint = f"; did you mean {self.did_you_mean!r}?" if self.did_you_mean else ""
        return f"the task {self.name!r} has no breaker{hint}"


class Conflict(MainspringError):
    """The unique `key` of `task` is taken by the job `job`."""

    def __init__(self, task: str, key: str, job: str) -> None:
        super().__init__(task, key, job)
        self.task = task
        self.key = key
        self.job = job

    def __str__(self) -> str:
        return f"the unique key {self.key!r} of {self.task} is taken by job {self.job}"


class BadOutboxName(DeclarationError):
    """No outbox can have this `name`."""

    def __init__(self, name: object) -> None:
        problem = "a name has 1 to 1024 of A-Z, a-z, 0-9, dot, hyphen and underscore, and begins and ends with a letter or digit"
        super().__init__(f"outbox {name!r}", problem)
        self.name = name
        self.args = (name,)


class BadPayloadType(DeclarationError):
    """The `type` of a payload has a name that cannot be kept with a message."""

    def __init__(self, type: object) -> None:  # noqa: A002 -- what it is called everywhere
        super().__init__(f"payload type {type!r}", "it has 1 to 1024 printable characters of ASCII")
        self.type = type
        self.args = (type,)


class PartitionOutOfRange(DeclarationError):
    """The `outbox` has `partitions` of them, numbered from 0, and no `partition` of that number."""

    def __init__(self, outbox: str, partition: object, partitions: int) -> None:
        problem = f"its partitions are 0 to {partitions - 1}, there is no {partition!r}; leave it out and give a key"
        super().__init__(f"outbox {outbox}", problem)
        self.outbox = outbox
        self.partition = partition
        self.partitions = partitions
        self.args = (outbox, partition, partitions)


class PartitionCountMismatch(DeclarationError):
    """The `outbox` is there already with `found` partitions, and `expected` were asked for."""

    def __init__(self, outbox: str, expected: int, found: int) -> None:
        problem = (
            f"it was created with {found} partitions, and keeps them, since the order of its keys hangs on them; say "
            f"partitions={found}, or give an outbox with {expected} another name"
        )
        super().__init__(f"outbox {outbox}", problem)
        self.outbox = outbox
        self.expected = expected
        self.found = found
        self.args = (outbox, expected, found)


class UnknownOutbox(MainspringError):
    """No outbox is kept under this `name`; `did_you_mean` is the nearest that is."""

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        if self.did_you_mean:
            return f"there is no outbox {self.name!r} in this store; did you mean {self.did_you_mean!r}?"
        return f"there is no outbox {self.name!r} in this store; the first message, or a node that handles it, makes it"


class UnknownQueue(MainspringError):
    """No job, task or node has to do with a queue of this `name`; `did_you_mean` is the nearest that is known."""

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        hint = f"; did you mean {self.did_you_mean!r}?" if self.did_you_mean else ""
        return f"no queue is named {self.name!r}{hint}"


class UnknownNode(MainspringError):
    """No node is known under this id, `name`; `did_you_mean` is the nearest that is."""

    def __init__(self, name: str, did_you_mean: str = "") -> None:
        super().__init__(name, did_you_mean)
        self.name = name
        self.did_you_mean = did_you_mean

    def __str__(self) -> str:
        hint = f"; did you mean {self.did_you_mean!r}?" if self.did_you_mean else ""
        return f"no node has the id {self.name!r}{hint}"


class NoAnswer(MainspringError, TimeoutError):
    """The node `node` has not carried out an order within `seconds`. It may do so later."""

    def __init__(self, node: str, seconds: float) -> None:
        super().__init__(node, seconds)
        self.node = node
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.node} has not answered within {self.seconds:g} s; the order stays open"


class NoOverview(MainspringError):
    """The store `store` does not play the role `Overview`, which `what` needs."""

    def __init__(self, store: str, what: str) -> None:
        super().__init__(store, what)
        self.store = store
        self.what = what

    def __str__(self) -> str:
        return f"{self.store} has no {self.what}; stores in SQLite, PostgreSQL and memory have"


class LeaseLost(MainspringError):
    """The attempt no longer holds `job` under `lease`: nothing that it writes counts."""

    def __init__(self, job: str, lease: int) -> None:
        super().__init__(job, lease)
        self.job = job
        self.lease = lease

    def __str__(self) -> str:
        return f"job {self.job} is no longer held under lease {self.lease}; stop working on it"


class JobGone(MainspringError):
    """The job `job` is not there: it never was, was deleted, or is past its retention."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job

    def __str__(self) -> str:
        return f"job {self.job} is not there: it never was, was deleted, or is past its retention"


class JobUnfinished(MainspringError, TimeoutError):
    """The job `job` was still `state` after `seconds` of waiting for its result. It goes on."""

    def __init__(self, job: str, state: str, seconds: float) -> None:
        super().__init__(job, state, seconds)
        self.job = job
        self.state = state
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"job {self.job} was still {self.state} after {self.seconds:g} s; it goes on, and can be waited for again"
        )


class JobFailed(MainspringError):
    """The job `job` failed, because of `cause`; `error` is what its last attempt raised, as text."""

    def __init__(self, job: str, cause: str, error: str = "") -> None:
        super().__init__(job, cause, error)
        self.job = job
        self.cause = cause
        self.error = error

    def __str__(self) -> str:
        error = f": {self.error}" if self.error else ""
        return f"job {self.job} failed ({self.cause}){error}"


class JobCancelled(MainspringError):
    """The job `job` was cancelled, and has no result."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job

    def __str__(self) -> str:
        return f"job {self.job} was cancelled"


class TransactionTooLong(MainspringError):
    """A handler's transaction on the store was open for longer than `seconds`, and was rolled back."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"the transaction was open for more than {self.seconds:g} s and was rolled back; it is in the way of others, "
            "so do the slow part before it, or give it a longer limit"
        )


class StoreError(MainspringError):
    """The store `store` cannot do what was asked; `problem` says why, and what to do."""

    def __init__(self, store: str, problem: str) -> None:
        super().__init__(store, problem)
        self.store = store
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.store}: {self.problem}"


class StoreUnavailable(StoreError):
    """The store cannot now; the same may work later."""


class StoreClosed(StoreError):
    """The store has been closed, or was not opened."""


class SchemaError(StoreError):
    """What is there is no store of ours, or a newer one than this code knows. Nothing was changed."""


class FlushFailed(StoreError):
    """What is committed could not be brought to where it stays. It is committed all the same."""

    code = 0xD22


class NodeGone(StoreError):
    """The node is not alive under that term: it was declared dead, or has left."""


class SlotDied(MainspringError, RuntimeError):
    """The process that ran the function ended, with `code` as `subprocess` has it: negative for a signal."""

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        if self.code >= 0:
            return f"the process slot that ran it ended with exit code {self.code}{detail}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        hint = "; if nobody killed it, the machine may have run out of memory" if name == "SIGKILL" else ""
        return f"the process slot that ran it was killed by {name}{detail}{hint}"


class SlotStartTimeout(MainspringError, TimeoutError):
    """A process could not be started, or had not imported `module`, within `seconds`; the function was not called."""

    def __init__(self, module: str, seconds: float) -> None:
        super().__init__(module, seconds)
        self.module = module
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"process slot: starting it and importing {self.module} took longer than {self.seconds:g} s; "
            "import slow libraries inside the function, where its timeout applies"
        )


class Escaped(MainspringError):
    """A function raised what would have ended more than its own job: `kind`, such as SystemExit, with `message`."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class LockTaken(MainspringError, TimeoutError):
    """The lock `name` was held by others for all the `seconds` that it was waited for."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name, seconds)
        self.name = name
        self.seconds = seconds

    def __str__(self) -> str:
        return f"the lock {self.name!r} was held by others for {self.seconds:g} s"


class PluginError(MainspringError):
    """Something about the plugin `plugin` does not work: `problem`."""

    code = 0x01

    def __init__(self, plugin: str, problem: str) -> None:
        super().__init__(plugin, problem)
        self.plugin = plugin
        self.problem = problem

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.problem}"


class CapabilityError(PluginError, PermissionError):
    """The plugin `plugin` was not granted `capability`, and asked for it; of several, all are named in one.

    `problem` says so where no grant would help, `advice` else what would.
    """

    code = 0x05

    def __init__(
        self,
        plugin: str,
        capability: str,
        problem: str = "",
        advice: str = "its host grants it with app.install(…, grant=[…]), or, "
        "where that says 'all', its author adds it to Plugin(…, requires=[…])",
    ) -> None:
        super().__init__(plugin, problem)
        self.args = (plugin, capability, problem, advice)
        self.capability = capability
        self.advice = advice

    def __str__(self) -> str:
        if self.problem:
            return f"plugin {self.plugin} is refused {self.capability}: {self.problem}"
        return f"plugin {self.plugin} was not granted {self.capability}; {self.advice}"


class HostError(MainspringError):
    """What the embedding program offers under the name `service` could not be used: `problem`."""

    code = 0xD10

    def __init__(self, service: str, problem: str) -> None:
        super().__init__(service, problem)
        self.service = service
        self.problem = problem

    def __str__(self) -> str:
        return f"host service {self.service}: {self.problem}"


class HostMissing(HostError):
    """The program offers no `service`; `code` is 0xD21 if it offers nothing at all, 0xD10 if it offers other things."""

    def __init__(self, service: str, problem: str, code: int = 0xD21) -> None:
        super().__init__(service, problem)
        self.args = (service, problem, code)
        self.code = code

    def __str__(self) -> str:
        return f"0x{self.code:X}: {super().__str__()}"


class CompactionFailed(HostError):
    """The program raised while it compacted its storage."""

    code = 0xD11


class WriteFailed(HostError):
    """The program raised while it wrote for a job."""

    code = 0xD12


class ReadFailed(HostError):
    """The program raised while it read for a job."""

    code = 0xD13


class ReportedFailure(MainspringError):
    """A job returned `Failed`, because of `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
