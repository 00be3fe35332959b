"""Redaction: values whose names sound secret, and what a task declares with `redact`.

A name is split into words, as `user_password`, `userPassword` and `X-Api-Key` have them. It is hidden if some of them in a
row are one of `NAMES`, if its last word is one of `LAST_WORDS`, or if a single word has one of the fragments of
`_FRAGMENTS` in it, as `dbpassword` has. A hidden value is hidden with all its contents. In pairs, `["Authorization", "…"]` or
`{"name": "Authorization", "value": "…"}`, the first is the name. In values only passwords of URLs are hidden: a secret in
the text of an error, in a log line or under a name like `data` is shown.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.client.preview import PREVIEW_BYTES, completed
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.core.schedule import Template
from mainspring.core.unique import UniqueKey
from mainspring.errors import DeclarationError, UnknownTask
from mainspring.runtime.definition import Definition, Registry
from mainspring.stores.outbox import Letter, Message
from mainspring.stores.overview import Argument, Search
from mainspring.stores.records import JobView
from mainspring.stores.searching import previewed

T = TypeVar("T")

HIDDEN: Final = "\N{BULLET}" * 3
HIDDEN_UNKNOWN: Final = f"{HIDDEN} the task is not known here"
HIDDEN_UNHANDLED: Final = f"{HIDDEN} the handler is not known here"
NAMES: Final = (
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "token",
    "api_key",
    "api_keys",
    "access_key",
    "access_keys",
    "private_key",
    "private_keys",
    "authorization",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "card_number",
    "cvv",
    "cvc",
    "ssn",
    "jwt",
    "bearer",
    "csrf",
    "xsrf",
    "session_id",
)
"""Hidden wherever they are. Not "tokens": that is a number to many."""
LAST_WORDS: Final = frozenset({"auth", "dsn", "otp", "pass", "pin", "session", "signature"})
"""Hidden at the end of a name: `user_pin` and `db_pass`, and not `pin_color` or `session_count`."""
_FRAGMENTS: Final = re.compile(
    "passw(?!ordless)|passphrase|passcode|secret(?!ar[iy]|ion|ed?$|ing|ive|ly)|credential|cardnumber|sessionid|pwd$"
    "|(?:api|access|private|signing)key|(?:access|api|auth|bearer|client|csrf|id|refresh|session|user|xsrf)token"
)
"""Hidden within a word, where names run together: `dbpassword`, `clientsecret`, and not `secretary` or `passwordless`."""
_MAX_NAME_WORDS: Final = 40
"""Values under a name of more words are hidden."""
_NAMING: Final = ("name", "key", "header", "field")
_NAMED: Final = ("value", "values")
"""Keys of objects that are a name and its value."""
_URL_PASSWORD: Final = re.compile(r"(://[^\s:/?#@]*:)[^\s/?#]+@")
_CUT_PASSWORD: Final = re.compile(r'(://[^\s":/?#@]*:)[^\s"/?#@]*("[\]}]*)$')
"""The same at the end of a text that was cut within it."""
ANSWER_BYTES: Final = 2_000_000
"""Bytes of payloads, results and saved values in one answer; values beyond the limit are previewed."""
_LONGEST: Final = 4
"""Words in a row that are looked at as one name."""
_MAX_CACHED_CHARS: Final = 64
"""Names of up to so many characters are cached. Longer ones would fill memory."""
_MAX_NAME_CHARS: Final = 200
"""Values under a longer name are hidden: splitting it into words is expensive."""
_HOLDS: Final = (msgspec.Struct, tuple, list, dict)
"""What may have a record in it."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")


class Budget:
    """Bytes that one answer may still decode."""

    def __init__(self, size: int = ANSWER_BYTES) -> None:
        self.left = size

    def take(self, size: int) -> bool:
        """Take `size` bytes; False if fewer are left."""
        if size > self.left:
            return False
        self.left -= size
        return True


def parts(name: str) -> frozenset[str]:
    """Join the words of a name, up to four in a row: "myApiKey" has "my", "api", "key", "apikey" and so on."""
    return _analysis(name)[0]


def _analysis(name: str) -> tuple[frozenset[str], bool]:
    """Return the parts of a name, and whether it names a secret by itself."""
    return _cached(name) if len(name) <= _MAX_CACHED_CHARS else _analyse(name[:_MAX_NAME_CHARS])


def _analyse(name: str) -> tuple[frozenset[str], bool]:
    words = [word.casefold() for word in _WORD.findall(name)]
    if len(words) > _MAX_NAME_WORDS:
        return frozenset(), True
    ends = range(1, _LONGEST + 1)
    joined = frozenset("".join(words[at : at + end]) for at in range(len(words)) for end in ends)
    last = next((word for word in reversed(words) if not word.isdigit()), "")
    return joined, last in LAST_WORDS or any(map(_FRAGMENTS.search, words))


_cached: Final = lru_cache(maxsize=4096)(_analyse)


def _joined(names: Iterable[str]) -> frozenset[str]:
    return frozenset("".join(_WORD.findall(name)).casefold() for name in names)


Stored: TypeAlias = tuple[str, ...] | bool
"""The `redact` of a task."""


class Rule(NamedTuple):
    """What is hidden in some place."""

    names: frozenset[str]
    everything: bool = False
    mark: str = HIDDEN
    """What is shown instead."""

    def hides(self, name: str) -> bool:
        if self.everything or len(name) > _MAX_NAME_CHARS:
            return True
        joined, sounds_secret = _analysis(name)
        return sounds_secret or not self.names.isdisjoint(joined)

    def applied(self, value: Any) -> Any:  # noqa: ANN401 - what JSON holds
        """Return a value with what is hidden in it put out of sight."""
        match value:
            case dict():
                hidden = _NAMED if any(self._is_hidden_name(value.get(key)) for key in _NAMING) else ()
                return {
                    key: self.mark if key in hidden or self.hides(key) else self.applied(one)
                    for key, one in value.items()
                }
            case [first, second] if self._is_hidden_name(first):
                return [first, second if second is None else self.mark]
            case list():
                return [self.applied(one) for one in value]
            case str() if not self.everything and "://" in value:
                return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", value)
            case _:
                return self.mark if self.everything else value

    def _is_hidden_name(self, value: object) -> bool:
        return isinstance(value, str) and not self.everything and self.hides(value)


class Redactor:
    """Hides what is not to be shown, in whatever record it is. `names` are hidden beside those that always are."""

    def __init__(
        self,
        registry: Registry | None = None,
        names: Iterable[str] = (),
        *,
        handled: Callable[[], Mapping[str, Definition | None]] = dict,
        show_unknown: bool = False,
    ) -> None:
        given = (names,) if isinstance(names, str) else tuple(names)
        wrong = [name for name in given if not isinstance(name, str) or not _joined([name]) - {""}]
        DeclarationError.unless("redact", [(not wrong, f"names of arguments, as in redact=['iban'], not {wrong}")])
        self._registry: Final = registry or Registry()
        self._everywhere: Final = Rule(_joined((*NAMES, *given)))
        self._handled: Final = handled
        """Outboxes with a handler in this program, with the task if their messages become jobs."""
        self._show_unknown: Final = show_unknown

    # Records.

    def whole(self, value: T, budget: Budget | None = None) -> T:
        """Redact a record and all its contents.

        Long values are shortened once the budget is used up: a job has their sizes in `cut`, any other value is `{"cut": bytes}`.
        """
        shown: Any = value
        budget = budget or Budget()
        match value:
            case JobView():
                shown = self._job(value, budget)
            case Template():
                shown = self._template(value, budget)
            case Letter():
                shown = replace(value, message=self._message(value.message, budget))
            case Message():
                shown = self._message(value, budget)
            case AttemptError():
                shown = _error_within(budget, value)
            case msgspec.Struct():
                shown = self._struct(value, budget)
            case tuple() if not hasattr(value, "_fields"):
                shown = tuple(self.whole(one, budget) for one in value)
            case list():
                shown = [self.whole(one, budget) for one in value]
            case dict():
                shown = {name: self.whole(one, budget) for name, one in value.items()}
            case _:
                pass
        found: T = shown
        return found

    def _struct(self, record: msgspec.Struct, budget: Budget) -> msgspec.Struct:
        there = {name: getattr(record, name) for name in record.__struct_fields__}
        shown = {name: self.whole(one, budget) for name, one in there.items() if isinstance(one, _HOLDS)}
        changed = {name: one for name, one in shown.items() if one is not there[name] and one != there[name]}
        return replace(record, **changed) if changed else record

    def _job(self, view: JobView, budget: Budget) -> JobView:
        task, rule = view.job.task, self.rule(view.job.task, view.facts.redact)
        if not budget.take(sum(len(value) for value in (view.payload, view.saved, view.result) if value is not None)):
            view = previewed(view, PREVIEW_BYTES)
        is_cut = view.cut is not None and view.cut.payload > 0
        return replace(
            view,
            payload=_beginning(rule, view.payload, "args") if is_cut else _content(rule, view.payload, "args"),
            saved=None if view.saved is None else _stored(rule, view.saved),
            result=None if view.result is None else _content(rule, view.result, "value"),
            key=self._key(rule, task, view.key),
            unique=_unique(rule, view.unique),
            error=None if view.error is None else _error_within(budget, view.error),
        )

    def _template(self, template: Template, budget: Budget) -> Template:
        rule = self.rule(template.task, template.redact)
        return replace(
            template,
            payload=_within(budget, rule, template.payload, "args"),
            key=self._key(rule, template.task, template.key),
            unique=_unique(rule, template.unique),
        )

    def _message(self, message: Message, budget: Budget) -> Message:
        handled = self._handled()
        task = handled.get(message.outbox)
        if message.outbox not in handled and not self._show_unknown:  # elsewhere they may become jobs that are hidden
            rule = Rule(frozenset(), everything=True, mark=HIDDEN_UNHANDLED)
        else:
            rule = self._everywhere if task is None else self._of(task.redact)
        return replace(message, payload=_within(budget, rule, message.payload, "value"))

    def _key(self, rule: Rule, task: Name, key: str | None) -> str | None:
        """Show the key of a keyed limit, unless it is made of what is hidden."""
        if key is None or self._has_open_key(rule, task):
            return key
        return rule.mark

    # Rules.

    def rule(self, task: Name | None, stored: Stored = ()) -> Rule:
        """Return the redaction rule for the arguments, saved values and results of a task.

        The rule that was stored with a job, and that of the task as it is declared here, both hold. If there is neither,
        since the task is not known here, everything is hidden.
        """
        definition = self._find(task)
        if definition is not None:
            return self._of(definition.redact, stored)
        if task is None or self._show_unknown or stored:
            return self._of(stored)
        return Rule(frozenset(), everything=True, mark=HIDDEN_UNKNOWN)

    def _of(self, *redacts: Stored) -> Rule:
        if True in redacts:
            return Rule(frozenset(), everything=True)
        return Rule(
            self._everywhere.names | _joined(name for one in redacts if not isinstance(one, bool) for name in one)
        )

    def _find(self, task: Name | None) -> Definition | None:
        if task is not None:
            with suppress(UnknownTask):
                return self._registry.find(task)
        return None

    def _has_open_key(self, rule: Rule, task: Name) -> bool:
        """Return whether a limit key may be shown. The arguments in the key of an unknown task cannot be determined."""
        if rule.everything:
            return False
        definition = self._find(task)
        if definition is None:
            return self._show_unknown
        return not any(rule.hides(name) for limit in definition.limits for name in limit.keys)

    # Searching.

    def accepting(self, which: Search) -> Callable[[JobView], bool] | None:
        """Return a filter for jobs whose own rule hides a value that is searched for; None if there is no such rule."""
        argument = which.argument
        if argument is None and which.key is None:
            return None

        def accept(view: JobView) -> bool:
            rule = self.rule(view.job.task, view.facts.redact)
            if argument is not None and (rule.everything or _tells(rule, argument)):
                return False
            return which.key is None or self._has_open_key(rule, view.job.task)

        return accept

    def check(self, which: Search) -> None:
        """Refuse to search by what is hidden: whoever asks often enough would be told. Raises `DeclarationError`."""
        if which.task is not None and (which.argument is not None or which.key is not None):
            self._check_known(which.task)
        if which.argument is not None:
            self._check_argument(which.argument, which.task)
        if which.key is not None:
            tasks = [one.name for one in self._registry] if which.task is None else [which.task]
            hidden = [task for task in tasks if not self._has_open_key(self.rule(task), task)]
            _refuse("key", hidden, which.task)

    def _check_known(self, task: Name) -> None:
        if self._find(task) is None and not self._show_unknown:
            problem = "not known in this program, so its hidden arguments are not known either; search in a program that has it"
            raise DeclarationError(f"task {task}", problem)

    def _check_argument(self, argument: Argument, task: Name | None) -> None:
        if _tells(self._everywhere, argument):
            raise DeclarationError("argument", "what it names is not shown, and so it is not searched for either")
        if task is not None:
            tasks = [task]
        else:  # of those that hide everything, others have no argument of that name
            tasks = [
                one.name
                for one in self._registry
                if one.redact is not True or argument.path[0] in one.arguments.signature.hints
            ]
        _refuse("argument", [one for one in tasks if _tells(self.rule(one), argument)], task)


def _refuse(what: str, hidden: list[Name], task: Name | None) -> None:
    if hidden and task is not None:
        raise DeclarationError(what, f"the task {task} does not show it, and so it is not searched for either")
    if hidden:
        raise DeclarationError(what, f"say of which task: {hidden[0]} does not show it")


def _tells(rule: Rule, argument: Argument) -> bool:
    """Say whether an answer would tell something of what is hidden."""
    if any(rule.hides(step) for step in argument.path):
        return True
    if argument.value is None:
        return False
    read = msgspec.json.decode(argument.value)
    return bool(rule.applied(read) != read)


def _error_within(budget: Budget, error: AttemptError) -> AttemptError:
    """Leave out the traceback of an error where the budget is used up."""
    return error if budget.take(len(error.message) + len(error.traceback)) else replace(error, traceback="")


def _within(budget: Budget, rule: Rule, stored: bytes, name: str) -> bytes:
    return _content(rule, stored, name) if budget.take(len(stored)) else msgspec.json.encode({"cut": len(stored)})


def _content(rule: Rule, stored: bytes, name: str) -> bytes:
    """Hide in what stands in an envelope; what is none is taken as a whole."""
    try:
        return _enveloped(rule, msgspec.json.decode(stored), name)
    except _UNREADABLE:
        return _unread(rule, stored)


def _enveloped(rule: Rule, read: object, name: str) -> bytes:
    if isinstance(read, dict) and name in read:
        # The names of arguments are those of the code; the keys of any other value may be secret themselves.
        whole = rule.everything and name != "args"
        return msgspec.json.encode({**read, name: rule.mark if whole else rule.applied(read[name])})
    return msgspec.json.encode(rule.applied(read))


def _beginning(rule: Rule, stored: bytes, name: str) -> bytes:
    """Redact the beginning of an envelope; any other value is hidden entirely."""
    found = completed(stored)
    if found is None:
        return msgspec.json.encode({})
    text = _CUT_PASSWORD.sub(rf"\1{HIDDEN}\2", found.text) if found.open else found.text
    try:
        read = msgspec.json.decode(text)
        _hide_unnamed(read, found.open)
        return _enveloped(rule, read, name)
    except _UNREADABLE:
        return msgspec.json.encode({})


def _hide_unnamed(read: Any, depth: int) -> None:  # noqa: ANN401 - what JSON holds
    """Hide values in objects that were cut before their `name`. The first two levels are the envelope and arguments."""
    for level in range(depth):
        if isinstance(read, dict) and level > 1 and not any(key in read for key in _NAMING):
            read.update({key: HIDDEN for key in _NAMED if key in read})
        values = list(read.values()) if isinstance(read, dict) else read
        if not isinstance(values, list) or not values:
            return
        read = values[-1]


def _stored(rule: Rule, stored: bytes) -> bytes:
    try:
        return msgspec.json.encode(rule.applied(msgspec.json.decode(stored)))
    except _UNREADABLE:
        return _unread(rule, stored)


def _unread(rule: Rule, stored: bytes) -> bytes:
    """What is no JSON has no names; what is too deep to look into is not shown."""
    try:
        msgspec.json.decode(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.encode(rule.mark) if rule.everything else stored
    except RecursionError:
        pass
    return msgspec.json.encode(HIDDEN)


def _unique(rule: Rule, unique: UniqueKey | None) -> UniqueKey | None:
    """Hide in a key that is made of arguments; one that a program made is a text of its own."""
    if unique is None:
        return None
    if rule.everything:
        return replace(unique, key=rule.mark)
    with suppress(*_UNREADABLE):
        read = msgspec.json.decode(unique.key)
        if isinstance(read, dict):
            return replace(unique, key=msgspec.json.encode(rule.applied(read)).decode())
    return unique
