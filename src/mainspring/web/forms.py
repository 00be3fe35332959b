"""Forms of pages: another way to say what a route of the JSON API takes. Everything else is the same desk's."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request

from mainspring.client.words import count
from mainspring.web.application import body_of
from mainspring.web.clamping import plainly
from mainspring.web.problems import Problem
from mainspring.web.routes import AnyRoute

FORM: Final = "application/x-www-form-urlencoded"
MOST_FIELDS: Final = 1000

DONE: Final = {
    "jobs.retry": "The job will run again.",
    "jobs.cancel": "The job is cancelled, or asked to stop if it runs.",
    "jobs.run_now": "The job is due now.",
    "jobs.delete": "The job is gone.",
    "jobs.clone": "A copy of the job was enqueued.",
    "queues.pause": "The queue is paused; what runs goes on.",
    "queues.resume": "The queue goes on.",
    "queues.limit": "The limit holds from now on.",
    "nodes.quiet": "The node is asked to take nothing new.",
    "nodes.resume": "The node is asked to take jobs again.",
    "nodes.stop": "The node is asked to shut down.",
    "nodes.concurrency": "The node is asked to run so many at a time.",
    "schedules.run": "A job was made of the schedule.",
    "schedules.pause": "The schedule is paused.",
    "schedules.resume": "The schedule goes on.",
    "outboxes.replay": "The letter will be delivered again.",
    "outboxes.discard": "The letter is discarded.",
    "breakers.open": "The breaker is forced open: no job of the task starts.",
    "breakers.close": "The breaker is forced closed: all jobs of the task may start.",
    "breakers.reset": "The breaker is reset, and moves by itself.",
}
"""What is said when it worked; of others, that it is done."""
SHOWN: Final = {"nodes.stacks": "stacks.html"}
"""Actions whose answer is there to be read: what it is shown with, under the name `answer`."""


async def read_form(route: AnyRoute, request: Request) -> msgspec.Struct:
    """Read a form as the type that the route takes.

    A field that is left empty was not filled in; one that has to be said, and may be null, is null then.
    """
    body = await body_of(request, FORM)
    try:
        said = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:  # too many of them, or no UTF-8
        raise Problem(422, "invalid", str(error)) from None
    info = msgspec.inspect.type_info(route.takes)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101 - routes take nothing else
    kinds = {field.encode_name: field.type for field in info.fields}
    found: dict[str, Any] = {name: _value(values, kinds.get(name)) for name, values in said.items() if any(values)}
    found |= {
        field.encode_name: None for field in info.fields if field.encode_name not in found and _is_left_out(field, said)
    }
    try:
        read: msgspec.Struct = msgspec.convert(found, route.takes, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", str(error)) from None
    return read


def _is_left_out(field: msgspec.inspect.Field, said: Mapping[str, list[str]]) -> bool:
    may_be_null = any(isinstance(one, msgspec.inspect.NoneType) for one in plainly(field.type))
    return field.required and may_be_null and field.encode_name in said


def _value(values: list[str], kind: msgspec.inspect.Type | None) -> object:
    """Take a field's last value; all of them for a list, and what is JSON for an object."""
    for one in plainly(kind) if kind else ():
        if isinstance(one, (msgspec.inspect.VarTupleType, msgspec.inspect.ListType)):
            return values
        if isinstance(one, (msgspec.inspect.DictType, msgspec.inspect.StructType)):
            try:
                return msgspec.json.decode(values[-1])
            except (msgspec.DecodeError, RecursionError) as error:
                raise Problem(422, "invalid", str(error)) from None
    return values[-1]


def said_of(route: AnyRoute, status: int, body: bytes) -> tuple[str, str, str]:
    """Put an answer into words: how it went, a sentence, and what to do."""
    answer = msgspec.json.decode(body)
    if status >= 400:
        error = answer["error"]
        return "refused", error["message"], error.get("hint", "")
    if isinstance(answer, dict) and answer.get("problem"):
        return "refused", str(answer["problem"]), ""
    if isinstance(answer, dict) and "refused" in answer and "changed" in answer:
        return "done", f"{count(answer['changed'], 'job')} changed, {answer['refused']} left as they were.", ""
    if isinstance(answer, dict) and answer.get("changed") in (False, 0):
        return "done", "Nothing changed: it was so already.", ""
    return "done", DONE.get(route.name, "Done."), ""
