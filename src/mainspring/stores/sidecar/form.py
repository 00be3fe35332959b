"""The document's form: what is in it, how it is written and how it is read.

    {"version": 1, "written_by": "mainspring 1.2.3",
     "schedules": [...], "runs": [...], "jobs": [...], "queues": [...], "keys": [...],
     "breakers": [...], "horizons": [...], "kept": [...]}

One entry a line, so that a person can read it and two of them can be compared. `schedules` are the records that every
store keeps. `runs` are those that are open and the last ones of each schedule; `jobs` are those of the open runs, with
all that it takes to make them again. `kept` is what was found here and could not be understood.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Raw, Struct

from mainspring.core.breaker import Breaker, Circuit, PhaseChange
from mainspring.core.job import FINISHED, JobId
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.duration import duration
from mainspring.errors import SchemaError
from mainspring.stores.circuits import Kept as KeptBreaker
from mainspring.stores.memory.plans import Kept
from mainspring.stores.records import JobView, Pause

VERSION: Final = 1
CHANGES_KEPT: Final = 10
"""Of the changes of a breaker's phase, so many are in the document, the newest."""

_DO: Final = "put a copy of it back, or move it away to begin with nothing"

SECTIONS: Final = ("schedules", "runs", "jobs", "queues", "keys", "breakers", "horizons", "kept")


class Standing(StrEnum):
    """What there is in the place of a document."""

    MISSING = "missing"
    EMPTY = "empty"
    FOREIGN = "foreign"  # uni's, which is read as it is
    STRANGE = "strange"  # a list of which nothing can be a row; all of it would be kept
    OURS = "ours"


class ScheduleEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A schedule: its record, and what is looked for or changed without reading that."""

    name: str
    revision: int
    next_at: datetime | None = None
    waits: bool = False
    last_end: datetime | None = None
    owner: str | None = None
    paused: bool = False
    consecutive_failures: int = 0
    record: Raw

    @classmethod
    def of(cls, kept: Kept, failures: int) -> "ScheduleEntry":
        return cls(
            name=kept.name,
            revision=kept.revision,
            next_at=kept.next_at,
            waits=kept.waits,
            last_end=kept.last_end,
            owner=kept.owner,
            paused=kept.is_paused,
            consecutive_failures=failures,
            record=Raw(kept.record),
        )

    def kept(self) -> Kept:
        return Kept(
            name=self.name,
            owner=self.owner,
            revision=self.revision,
            next_at=self.next_at,
            waits=self.waits,
            is_paused=self.paused,
            last_end=self.last_end,
            record=bytes(self.record),
        )


class RunEntry(Run, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run, and until when it is kept once it is not open."""

    keep_until: datetime

    @classmethod
    def of(cls, run: Run, keep_until: datetime) -> "RunEntry":
        return cls(**{field: getattr(run, field) for field in Run.__struct_fields__}, keep_until=keep_until)

    def run(self) -> Run:
        return Run(**{field: getattr(self, field) for field in Run.__struct_fields__})


class JobEntry(JobView, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job that has not ended."""

    @classmethod
    def of(cls, view: JobView) -> "JobEntry":
        return cls(**{field: getattr(view, field) for field in JobView.__struct_fields__})

    def view(self) -> JobView:
        return JobView(**{field: getattr(self, field) for field in JobView.__struct_fields__})


class QueueEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A queue that is paused."""

    name: str
    paused: Pause


class KeyEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A unique key that is taken for longer than its job took."""

    task: Name
    key: str
    job: JobId
    taken_until: datetime


class BreakerEntry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The breaker of a task, and the last changes of its phase."""

    task: Name
    threshold: int | None = None
    """None: there is none any more, and only its term is kept."""
    cooldown: timedelta | None = None
    circuit: Circuit
    since: datetime
    by: str = ""
    reason: str = ""
    changes: list[PhaseChange] = []

    @classmethod
    def of(cls, kept: KeptBreaker, changes: list[PhaseChange]) -> "BreakerEntry":
        return cls(
            task=kept.task,
            threshold=kept.rule.threshold if kept.rule else None,
            cooldown=duration(kept.rule.cooldown) if kept.rule else None,
            circuit=kept.circuit,
            since=kept.since,
            by=kept.by,
            reason=kept.reason,
            changes=changes[-CHANGES_KEPT:],
        )

    def kept(self) -> KeptBreaker:
        has_rule = self.threshold is not None and self.cooldown is not None
        rule = Breaker(threshold=self.threshold, cooldown=self.cooldown) if has_rule else None  # type: ignore[arg-type]  # as `has_rule` says
        return KeptBreaker(
            task=self.task, rule=rule, circuit=self.circuit, since=self.since, by=self.by, reason=self.reason
        )


class HorizonEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Up to where the runs of a schedule are not in the document any more: a slot before that may have had a job."""

    name: str
    known_since: datetime


class Content(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document, read."""

    version: int = 0
    """0: there was none of ours."""
    written_by: str = ""
    schedules: list[ScheduleEntry] = []
    runs: list[RunEntry] = []
    jobs: list[JobEntry] = []
    queues: list[QueueEntry] = []
    keys: list[KeyEntry] = []
    breakers: list[BreakerEntry] = []
    horizons: list[HorizonEntry] = []
    kept: list[Raw] = []


_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

encode: Final = msgspec.json.Encoder().encode
_decode_ours: Final = msgspec.json.Decoder(Content).decode
_decode_rows: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_parts: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_version: Final = msgspec.json.Decoder(int).decode


def version_of(store: str, data: bytes) -> int:
    """Say which version of our form a document has: 0 for none, and for one of another program's that can be read."""
    return _version(store, data) or 0 if data else 0


def standing_of(store: str, data: bytes) -> Standing:
    """Say what a document is, of which there is one; what cannot be read raises `SchemaError`."""
    if not data:
        return Standing.EMPTY
    content = read(store, data)
    if content.version:
        return Standing.OURS
    rows = [bytes(row).lstrip()[:1] for row in content.kept]
    return Standing.FOREIGN if not rows or b"{" in rows else Standing.STRANGE


def read(store: str, data: bytes) -> Content:
    """Read a document, ours or one of uni's. What is neither raises `SchemaError`."""
    if not data:
        return Content()
    version = _version(store, data)
    if version is not None and version > VERSION:
        raise SchemaError(store, f"it has version {version}, and this release knows up to {VERSION}; use a newer one")
    try:
        if version is None:
            return Content(kept=_rows(data))
        content = _decode_ours(data)
    except _UNREADABLE as error:
        raise SchemaError(store, f"it cannot be read, and was left as it is: {error}; {_DO}") from error
    if problem := _problem(content):
        raise misfit(store, problem)
    return content


def misfit(store: str, problem: str) -> SchemaError:
    """Say that a document is one of ours and cannot be one that we have written."""
    return SchemaError(store, f"it does not fit together, and was left as it is: {problem}; {_DO}")


def written(sections: dict[str, list[bytes]], written_by: str) -> bytes:
    """Put a document together."""
    # The same stands between entries as between sections: so all of it, which may be megabytes, is copied once.
    parts = [b'{\n"version": %d,\n"written_by": %s' % (VERSION, encode(written_by))]
    for section in SECTIONS:
        entries = sections.get(section)
        if not entries:
            parts.append(b'"%s": []' % section.encode())
            continue
        first = len(parts)
        parts += entries
        parts[first] = b'"%s": [\n%s' % (section.encode(), parts[first])
        parts[-1] += b"\n]"
    parts[-1] += b"\n}\n"
    return b",\n".join(parts)


def entry(value: Struct) -> bytes:
    """Write an entry. Text that has no encoding, as in the error of a strange file name, is written as it is shown."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(_shown(msgspec.to_builtins(value)))


def _shown(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_shown(name): _shown(inner) for name, inner in value.items()}
        case list():
            return [_shown(inner) for inner in value]
        case _:
            return value


def _version(store: str, data: bytes) -> int | None:
    """Say which version of our form a document has; None for one of uni's."""
    try:
        if _is_list(data):
            _decode_rows(data)
            return None
        parts = _decode_parts(data)
        version = _decode_version(parts["version"]) if "version" in parts else None
    except _UNREADABLE as error:
        raise SchemaError(store, f"it cannot be read, and was left as it is: {error}; {_DO}") from error
    is_ours = version is not None and version > 0 and ("schedules" in parts or version > VERSION)
    is_unis = version is None and ("jobs" in parts) != ("rows" in parts)
    if not is_ours and not is_unis:
        problem = "it is JSON, but no document of schedules that is known, and was left as it is"
        raise SchemaError(store, f"{problem}; {_DO}")
    return version


def _rows(data: bytes) -> list[Raw]:
    """Take uni's rows as they are; what stands beside them is kept like one that cannot be understood."""
    if _is_list(data):
        return _decode_rows(data)
    parts = _decode_parts(data)
    rows = _decode_rows(parts.pop("jobs" if "jobs" in parts else "rows"))
    return [*rows, Raw(encode(parts))] if parts else rows


def _is_list(data: bytes) -> bool:
    return data.lstrip()[:1] == b"["


def _problem(content: Content) -> str:
    """Say what contradicts itself in a document; nothing that we have written does."""
    open_runs = {run.id for run in content.runs if run.is_open and not run.lingers}
    jobs = [entry.job.id for entry in content.jobs]
    names = [entry.name for entry in content.schedules]
    with_job = [(run.schedule, run.slot) for run in content.runs if run.reason is None and run.slot]
    if len(set(names)) < len(names):
        return "two schedules have the same name"
    if len({run.id for run in content.runs}) < len(content.runs) or len(set(jobs)) < len(jobs):
        return "two runs or jobs have the same id"
    if len(set(with_job)) < len(with_job):
        return "a slot has two jobs"
    if open_runs != set(jobs):
        return "a run is open that has no job, or a job has no open run"
    if any(entry.job.state in FINISHED for entry in content.jobs):
        return "a job is among the open ones that has ended"
    entries = (*content.schedules, *content.runs, *content.jobs, *content.queues, *content.keys, *content.horizons)
    if any(_has_no_zone(entry) for entry in (*entries, *content.breakers)):
        return "an instant has no zone"
    return ""


def _has_no_zone(value: object) -> bool:
    """Say whether an instant in it is one on any clock: it could be compared with no other."""
    match value:
        case datetime():
            return value.tzinfo is None
        case Struct():
            return any(_has_no_zone(getattr(value, field)) for field in value.__struct_fields__)
        case list() | tuple():
            return any(_has_no_zone(inner) for inner in value)
        case _:
            return False
