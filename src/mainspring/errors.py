"""Every error that Mainspring raises, in one tree.

MainspringError
├── DeclarationError        something was declared wrongly; raised where it is declared (also a ValueError)
│   ├── BadName             a name that could not be kept or printed without loss
│   └── BadDuration         a length of time that cannot be read
├── PayloadError            a value does not fit the types it was declared with (also a ValueError)
├── IllegalTransition       the life of a job has no such step
├── NameTaken               a task set runs something under that name already
├── ShuttingDown            a task set that is closing takes nothing new
└── Standstill              virtual time cannot go on: nothing will ever happen (see mainspring.testing)

Each carries its data as attributes of the same names as its arguments, survives pickling, and says in its message
what to do where that can be known. What a handler raises to steer its own job (`RetryIn`, `Snooze`, `Fail`) is no
error and lives in `core/outcome.py`.
"""

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
    """A task set runs something under `name` already."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"something named {self.name!r} is running here already; give the second one a name of its own"


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
