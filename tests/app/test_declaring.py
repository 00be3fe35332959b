"""What `@app.task` makes of a function, and what it refuses, all at once."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from mainspring import Context, Limit, Mainspring, Retention, Retry, Unique
from mainspring.core.names import Name
from mainspring.errors import BadName, DeclarationError, NameTaken, UnknownTask
from mainspring.runtime.definition import Definition, ExecutorKind

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("memory://")


async def resize(photo: int, width: int = 800) -> str:
    """Make it fit."""
    return f"{photo} at {width}"


def shrink(photo: int) -> None:
    """At the top of a module, where other processes find it."""


def enlarge(photo: int, width: int = 800) -> None:
    """The same, with another name."""


def problems(app: Mainspring, function: object, **options: Any) -> str:  # noqa: ANN401 - what no type allows
    with pytest.raises(DeclarationError) as raised:
        app.task(**options)(function)  # type: ignore[call-overload]  # the same
    assert list(app.registry) == []
    return str(raised.value)


def test_a_plain_declaration_has_the_defaults_of_every_task(app: Mainspring) -> None:
    task = app.task(resize)

    assert task.name == f"{__name__}.resize"
    definition = task.definition
    assert definition == Definition(
        name=Name("", f"{__name__}.resize"),
        function=resize,
        arguments=definition.arguments,
        result=definition.result,
        executor=ExecutorKind.COROUTINE,
        reference=f"{__name__}:resize",
    )
    assert list(app.registry) == [definition]
    assert (task.__name__, task.__doc__, task.__wrapped__) == ("resize", "Make it fit.", resize)  # type: ignore[attr-defined]  # put there by functools.update_wrapper


def test_everything_can_be_said(app: Mainspring) -> None:
    retry = Retry.fixed("5s", max_attempts=9)

    definition = app.task(
        name="photos.resize",
        aliases=["resize", "old:resize"],
        queue="photos",
        priority="high",
        retry=retry,
        max_attempts=4,
        timeout="30s",
        expires="1h",
        executor="process",
        unique=Unique(key="photo"),
        limit=[Limit(concurrency=3), Limit(rate="10/s", key=("photo", "width"))],
        retention=Retention(failed=timedelta(days=30)),
        loss_limit=5,
        payload_limit=100,
        redact="iban",
    )(enlarge).definition

    assert definition.name == Name("", "photos.resize")
    assert definition.aliases == (Name("", "resize"), Name("old", "resize"))
    assert (definition.queue, definition.priority) == ("photos", 75)
    assert (definition.retry.max_attempts, definition.retry.backoff) == (4, retry.backoff)
    assert (definition.timeout, definition.expires) == (timedelta(seconds=30), timedelta(hours=1))
    assert definition.executor is ExecutorKind.PROCESS
    assert definition.unique == Unique(key="photo")
    assert [limit.keys for limit in definition.limits] == [(), ("photo", "width")]
    assert definition.retention == Retention(failed=timedelta(days=30))
    assert definition.loss_limit == 5
    assert definition.redact == ("iban",)
    assert definition.arguments.envelope.limit == definition.result.envelope.limit == 100
    assert definition.reference == f"{__name__}:enlarge"


def test_a_task_can_still_be_called_as_a_function(app: Mainspring) -> None:
    @app.task
    def add(one: int, two: int = 2) -> int:
        return one + two

    assert add(1) == 3
    assert add(1, two=3) == 4


def test_every_problem_of_a_declaration_is_told_at_once(app: Mainspring) -> None:
    found = problems(
        app,
        shrink,
        name="photos resize",
        queue="",
        priority=101,
        timeout="soon",
        executor="coroutine",
        max_attempts=0,
        retry="often",
        unique="photo",
        limit="3",
        retention="1d",
        keep="1d",
        loss_limit=True,
        payload_limit=-1,
        redact=7,
        prioritty=3,
    )

    for problem in (
        "name: 'photos resize' is no valid name",
        "queue: '': give some text",
        "priority is a number from 0 to 100, or one of 'background', 'low', 'normal', 'high', 'critical', not 101",
        "timeout: 'soon' is no valid duration",
        "executor 'coroutine' needs an `async def`",
        "max_attempts: 0: a number of at least 1",
        "retry: 'often': write Retry.exponential",
        "unique: 'photo': write Unique(key='order')",
        "limit: '3': write Limit(concurrency=1)",
        "retention: '1d': write Retention(",
        "loss_limit: True: a number of at least 1",
        "payload_limit: -1: a number of at least 1",
        "redact: 7: give some text",
        "there is no option 'prioritty'; did you mean 'priority'?",
    ):
        assert problem in found


def test_a_number_that_a_store_could_not_keep_is_refused(app: Mainspring) -> None:
    with pytest.raises(DeclarationError, match="max_attempts: 2147483648: a number of at most 2,147,483,647"):
        app.task(max_attempts=2**31)(resize)
    with pytest.raises(DeclarationError, match="loss_limit: 2147483648: a number of at most 2,147,483,647"):
        app.task(loss_limit=2**31)(resize)


def test_none_stands_for_nothing_said(app: Mainspring) -> None:
    definition = app.task(name=None, queue=None, unique=None, limit=None, keep=None)(resize).definition

    assert (definition.queue, definition.unique, definition.limits) == ("default", None, ())


@pytest.mark.parametrize(
    ("band", "priority"), [("background", 0), ("low", 25), ("normal", 50), ("high", 75), ("critical", 100), (13, 13)]
)
def test_priorities_have_names(app: Mainspring, band: Any, priority: int) -> None:  # noqa: ANN401 - a name or a number
    assert app.task(priority=band)(resize).definition.priority == priority


def test_keep_is_short_for_a_retention(app: Mainspring) -> None:
    day = timedelta(days=1)

    assert app.task(keep="1d")(resize).definition.retention == Retention(succeeded=day, failed=day)
    assert "keep is short for retention" in problems(Mainspring("memory://"), resize, keep="1d", retention=Retention())


def test_unique_may_be_plain_true(app: Mainspring) -> None:
    assert app.task(unique=True)(resize).definition.unique == Unique()
    assert app.task(name="again", unique=False)(resize).definition.unique is None


def test_one_limit_needs_no_list(app: Mainspring) -> None:
    assert app.task(limit=Limit(concurrency=1))(resize).definition.limits == (Limit(concurrency=1),)


def test_two_limits_of_a_kind_are_refused(app: Mainspring) -> None:
    limits = [
        Limit(concurrency=1),
        Limit(rate="1/s"),
        Limit(concurrency=1, key="photo"),
        Limit(rate="1/s", key="width"),
    ]

    found = problems(app, resize, limit=limits)

    assert "one limit for the task as a whole" in found
    assert "one limit with a key" in found


def test_a_key_is_made_of_arguments_that_there_are(app: Mainspring) -> None:
    found = problems(app, resize, unique=Unique(key=("photo", "hight")), limit=Limit(concurrency=1, key="hight"))

    assert "unique: there is no argument `hight` to make a key of: `photo`, `width`" in found
    assert "limit: there is no argument `hight`" in found


def test_the_default_of_a_key_must_be_json(app: Mainspring) -> None:
    def send(to: Any = object) -> None:  # noqa: ANN401 - so that its default is the problem
        pass

    assert "the default of `to` cannot be written as JSON" in problems(app, send, unique=Unique(key="to"))


# Names.


def test_a_function_inside_of_another_is_named_after_both(app: Mainspring) -> None:
    @app.task
    def inner() -> None: ...

    assert inner.name == f"{__name__}.test_a_function_inside_of_another_is_named_after_both.inner"


def test_what_has_no_name_needs_one(app: Mainspring) -> None:
    assert "give it one: name='mail.send'" in problems(app, lambda: None)
    assert app.task(name="mail.send")(lambda: None).name == "mail.send"


def test_two_tasks_cannot_have_one_name(app: Mainspring) -> None:
    app.task(name="mail.send", aliases="send")(resize)

    for name in ("mail.send", "send"):
        with pytest.raises(NameTaken):
            app.task(name=name)(shrink)
    assert len(list(app.registry)) == 1


def test_a_task_is_found_by_name_and_alias_and_a_near_miss_is_told(app: Mainspring) -> None:
    task = app.task(name="mail.send", aliases="send")(resize)

    assert app.find("mail.send") is task
    assert app.find("send") is task
    with pytest.raises(UnknownTask) as raised:
        app.find("mail.sned")
    assert raised.value.did_you_mean == "mail.send"
    with pytest.raises(BadName):
        app.find("mail send")


SCRIPT = """
from mainspring import Mainspring
from mainspring.errors import DeclarationError
app = Mainspring("memory://")
@app.task
def resize(photo: int) -> None: ...
print(resize.name, resize.definition.reference)
try:
    print(app.task(name="heavy", executor="process")(resize).definition.reference)
except DeclarationError as error:
    print(error)
"""


def run(*command: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_script_that_is_started_by_its_path_is_named_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "photos.py").write_text(SCRIPT, encoding="utf-8")

    first, second = run("photos.py", folder=tmp_path)

    assert first == "photos.resize None"
    assert second.startswith("task heavy: executor 'process' finds the function by importing it: a script")
    assert "start it with `python -m`" in second


def test_a_script_that_is_started_as_a_module_has_its_real_name(tmp_path: Path) -> None:
    (tmp_path / "album").mkdir()
    (tmp_path / "album" / "photos.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "album" / "__main__.py").write_text(SCRIPT, encoding="utf-8")

    lines = run("-m", "album.photos", folder=tmp_path)
    assert lines == ["album.photos.resize album.photos:resize", "album.photos:resize"]
    first, second = run("-m", "album", folder=tmp_path)
    assert first == "album.resize None"
    assert "importing album.__main__ would start the program again" in second


def test_what_is_typed_in_has_no_file(tmp_path: Path) -> None:
    assert run("-c", SCRIPT, folder=tmp_path)[0] == "__main__.resize None"


# Executors.


def test_where_a_function_runs_follows_from_how_it_is_written(app: Mainspring) -> None:
    assert app.task(resize).definition.executor is ExecutorKind.COROUTINE
    assert app.task(shrink).definition.executor is ExecutorKind.THREAD


def test_a_process_finds_functions_at_the_top_of_modules_only(app: Mainspring) -> None:
    def inner() -> None: ...

    found = problems(app, inner, executor="process")
    assert "is made inside of another function; move it to the top of its module" in found
    assert "it has no name to import it by" in problems(app, lambda: None, name="nameless", executor="process")
    assert app.task(executor="process")(shrink).definition.reference == f"{__name__}:shrink"


@pytest.mark.parametrize("executor", ["fibre", 3])
def test_an_unknown_executor_is_refused(app: Mainspring, executor: object) -> None:
    assert "executor is one of 'coroutine', 'thread', 'process'" in problems(app, shrink, executor=executor)


# What is no task.


class Mailer:
    def send(self, to: str) -> None: ...


def count() -> Iterator[int]:
    yield 1


async def count_slowly() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (7, "a task is a function"),
        (Mailer, "a task is a function"),
        (Mailer.send, "a method has no object to be called on; make it a function"),
        (count, "a generator runs nothing by being called"),
        (count_slowly, "a generator runs nothing by being called"),
    ],
)
def test_what_cannot_be_a_task_is_refused(app: Mainspring, function: object, problem: str) -> None:
    assert problem in problems(app, function, name="it")


def test_a_bound_method_is_a_function_like_any_other(app: Mainspring) -> None:
    task = app.task(name="mail")(Mailer().send)

    assert task.definition.arguments.encode(("ada",), {}) == b'{"v":1,"args":{"to":"ada"}}'


def test_a_task_of_another_app_can_be_a_task_here_too(app: Mainspring) -> None:
    theirs = Mainspring("memory://").task(resize)

    ours = app.task(theirs)

    assert ours.definition.function is resize
    assert ours.definition.executor is ExecutorKind.COROUTINE


# The context and the result.


def test_a_parameter_annotated_with_the_context_is_no_argument(app: Mainspring) -> None:
    @app.task
    def first(ctx: Context, photo: int) -> None: ...

    @app.task
    def last(photo: int, *, context: Context) -> None: ...

    @app.task
    def perhaps(photo: int, ctx: Context | None = None) -> None: ...

    @app.task
    def quoted(ctx: "Context", photo: int) -> None: ...

    assert first.definition.context == "ctx"
    assert last.definition.context == "context"
    assert perhaps.definition.context == "ctx"
    assert quoted.definition.context == "ctx"
    for task in (first, last, perhaps, quoted):
        assert task.definition.arguments.encode((7,), {}) == b'{"v":1,"args":{"photo":7}}'


@pytest.mark.parametrize("annotation", ["Context", "mainspring.Context", "Context | None", "'Context'"])
def test_a_context_may_be_imported_for_type_checkers_only(tmp_path: Path, annotation: str) -> None:
    (tmp_path / "photos.py").write_text(
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "from mainspring.app import Mainspring\n"
        "if TYPE_CHECKING: from mainspring import Context\n"
        "app = Mainspring('memory://')\n"
        "@app.task\n"
        f"def resize(ctx: {annotation}, photo: int) -> None: ...\n"
        "print(resize.definition.context)\n",
        encoding="utf-8",
    )

    assert run("photos.py", folder=tmp_path) == ["ctx"]


def test_one_context_is_enough(app: Mainspring) -> None:
    def twice(one: Context, two: Context) -> None: ...

    assert "one parameter takes the Context, not one and two" in problems(app, twice)


def test_the_result_is_of_the_type_that_the_function_returns(app: Mainspring) -> None:
    @app.task
    def never() -> NoReturn:
        raise AssertionError

    @app.task
    def anything():  # type: ignore[no-untyped-def]  # noqa: ANN202 - what the test is about
        ...

    assert app.task(resize).definition.result.decode(b'{"v":1,"value":"big"}') == "big"
    assert never.definition.result.decode(b'{"v":1,"value":null}') is None
    assert anything.definition.result.decode(b'{"v":1,"value":{"any":[1]}}') == {"any": [1]}


def test_a_result_that_cannot_be_carried_is_refused_where_it_is_declared(app: Mainspring) -> None:
    def later() -> "Decimal":
        raise AssertionError

    def listing() -> Iterator[int]:
        raise AssertionError

    def broken() -> "1 / 0":  # type: ignore[valid-type]
        raise AssertionError

    assert "its result: its annotation cannot be resolved: division by zero" in problems(app, broken)
    found = problems(app, later)
    assert "its result: the name `Decimal` is not defined; import it outside `if TYPE_CHECKING`" in found
    assert "its result: " in problems(app, listing)


def test_arguments_that_cannot_be_carried_are_refused_where_they_are_declared(app: Mainspring) -> None:
    def send(to: Mailer) -> None: ...

    assert "parameter `to`" in problems(app, send)


# Queues.


def test_a_queue_is_declared_once_and_checked(app: Mainspring) -> None:
    app.queue("mail", concurrency=3, timeout="1m", limit=Limit(rate="10/s"))

    with pytest.raises(DeclarationError, match="it has been declared before"):
        app.queue("mail")
    with pytest.raises(DeclarationError) as raised:
        app.queue("some mail", concurrency=0, timeout="soon", limit=Limit(concurrency=1, key="to"))
    for problem in ("no valid name", "concurrency: 0", "timeout: 'soon'", "keys are for the limits of tasks"):
        assert problem in str(raised.value)
