"""What can be said about a schedule, read and checked, and the plan that is made of it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from mainspring.client.calls import Call
from mainspring.client.options import Reader, read_all, read_count, read_moment
from mainspring.core.missed import Missed
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import Overlap, Plan, Template
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError, ScheduleError
from mainspring.runtime.definition import Definition
from mainspring.stores.records import AT_ONCE, NewJob

MOST_RUNS: Final = 2**31 - 1


class ScheduleOptions(TypedDict, total=False):
    """What a schedule takes beside its rule. None stands for nothing said; in a change it takes `until` and `max_runs` back."""

    missed: Missed | None
    """What to do about slots that nobody was there for; without it `Missed.latest()`."""
    overlap: Literal["allow", "skip", "queue_one", "cancel_previous"] | None
    """What a slot does while the run before it has not ended; without it "allow"."""
    jitter: Duration | None
    """By how much a start may be put off; how much it is, name and slot say."""
    until: datetime | None
    """No slot after this."""
    max_runs: int | None
    """No slot after so many have been fired; one whose unique key was taken counts too."""
    keep_runs: Duration | None
    """How long it is remembered what became of a slot; without it 30 days."""
    description: str | None


def plan_of(subject: str, rule: Rule, call: Call[Any], given: ScheduleOptions) -> Plan:
    """Make the plan of a schedule, or raise `ScheduleError` with everything that stands against it."""
    values, problems = read_all(given, _READERS)
    problems += _problems_of_rule(rule)
    problems += _problems_of_call(call)
    ScheduleError.unless(subject, ((False, problem) for problem in problems))
    return _checked(subject, Plan(rule=rule, template=_template(call.hand_over()), **values))


def changed(plan: Plan, rule: Rule | None, call: Call[Any] | None, given: ScheduleOptions, subject: str) -> Plan:
    """Say more about a plan; what is left out stays. An end can be taken back, by None."""
    values, problems = read_all(given, _READERS)
    problems += _problems_of_rule(rule) if rule is not None else []
    problems += _problems_of_call(call) if call is not None else []
    ScheduleError.unless(subject, ((False, problem) for problem in problems))
    template = plan.template if call is None else _template(call.hand_over())
    values |= {name: None for name, value in given.items() if name in {"until", "max_runs"} and value is None}
    return _checked(subject, replace(plan, rule=rule or plan.rule, template=template, **values))


def _checked(subject: str, plan: Plan) -> Plan:
    """Look at what fits together or not."""
    rule = plan.rule
    if isinstance(rule, Every) and not rule.after_end and plan.jitter > rule.interval:
        problem = f"a jitter of {plan.jitter} is longer than the interval of {rule.interval}: slots would change places"
        raise ScheduleError(subject, problem)
    return plan


def template_of(call: Call[Any]) -> Template:
    """Return the job that each slot makes, or raise `ScheduleError` with everything that stands against it."""
    ScheduleError.unless(f"task {call.definition.name}", ((False, problem) for problem in _problems(call.hand_over())))
    return _template(call.hand_over())


def _problems_of_rule(rule: object) -> list[str]:
    if isinstance(rule, Cron | Every | Once | Manual):
        return []
    return [f"a rule is Cron('0 9 * * *'), Every('15m'), Once(when) or Manual(), not {rule!r}"]


def _problems_of_call(call: object) -> list[str]:
    if isinstance(call, Call):
        own = [f"its jobs cannot all have the same {name}: leave out {name}" for name in call.own]
        return own + _problems(call.hand_over())
    definition = getattr(call, "definition", None)
    if isinstance(definition, Definition):
        return [f"a task is no call: write {definition.function.__name__}.call(…), with its arguments"]
    return [f"a call of a task is needed: task.call(…), not {call!r}"]


def _problems(new: NewJob) -> list[str]:
    problems = []
    if new.run_at != AT_ONCE:
        problems.append("the rule says when its jobs are due: leave out delay and run_at")
    if isinstance(new.expires, datetime):
        problems.append("its jobs cannot all expire at one instant: give expires a length of time")
    return problems


def _template(new: NewJob) -> Template:
    return Template(
        task=new.task,
        payload=new.payload,
        backoff=new.backoff,
        max_attempts=new.max_attempts,
        queue=new.queue,
        priority=new.priority,
        loss_limit=new.loss_limit,
        retention=new.retention,
        timeout=new.timeout,
        expires=new.expires if isinstance(new.expires, timedelta) else None,
        key=new.key,
        unique=_unique(new.unique),
        tags=new.facts.tags,
        redact=new.facts.redact,
    )


def _unique(unique: UniqueKey | None) -> UniqueKey | None:
    """Nobody is there to be told of a conflict: the slot makes no job then, and its run says so."""
    if unique and unique.on_conflict is OnConflict.RAISE:
        return replace(unique, on_conflict=OnConflict.RETURN)
    return unique


def _read_missed(value: object) -> Missed:
    if isinstance(value, Missed):
        return value
    raise DeclarationError("missed", f"write Missed.skip(), Missed.latest() or Missed.all(), not {value!r}")


def _read_overlap(value: object) -> Overlap:
    try:
        return Overlap(str(value))
    except ValueError:
        known = ", ".join(repr(str(one)) for one in Overlap)
        raise DeclarationError("overlap", f"overlap is one of {known}, not {value!r}") from None


def _read_description(value: object) -> str:
    if isinstance(value, str):
        return value
    raise DeclarationError("description", f"a description is text, not {value!r}")


def _read_runs(value: object) -> int:
    if (runs := read_count(value)) <= MOST_RUNS:
        return runs
    raise DeclarationError("max_runs", f"max_runs is at most {MOST_RUNS:,}; leave it out for no limit")


_READERS: Final[Mapping[str, Reader]] = {
    "missed": _read_missed,
    "overlap": _read_overlap,
    "jitter": duration,
    "until": read_moment,
    "max_runs": _read_runs,
    "keep_runs": duration,
    "description": _read_description,
}
