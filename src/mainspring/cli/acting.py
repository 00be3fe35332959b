"""What a person has done by a command is a line in the store's audit log, as over HTTP, where the store keeps one.

Every command that changes something does it within `acting`, and says there under which name, and about what. Those that
only look do not, and neither do those that work themselves: `worker`, `dashboard`, `demo`, `doctor` and `migrate`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import click

from mainspring.app import Mainspring
from mainspring.cli.ask import confirmed
from mainspring.cli.reach import store_that_is_there
from mainspring.cli.words import me
from mainspring.client.audit import DONE, FROM_A_SHELL, PATIENCE, entry_of, keep, named
from mainspring.client.error_words import CUT_OFF, word_of
from mainspring.core.job import JobId


class Deed:
    """What a command does, as far as it has come."""

    def __init__(self) -> None:
        self.count: int | None = None
        self.outcome = DONE
        self.job: JobId | None = None
        """The one that was made."""
        self.began = asyncio.get_running_loop().time()
        self._is_wanted = True

    @property
    def leaves_a_line(self) -> bool:
        """Say whether anything was done, or refused: not if somebody thought better of it, or said what makes no sense."""
        return self._is_wanted or bool(self.count) or self.outcome != DONE

    def did(self, changed: int = 1) -> None:
        """Count to how many it was done."""
        self.count = (self.count or 0) + changed
        if changed:
            self.outcome = DONE

    def refused(self, error: Exception) -> None:
        """Note why it could not be done to one of several: that is the outcome where it was done to none."""
        if not self.count and self.outcome == DONE:
            self.outcome = word_of(error)

    def confirmed(self, question: str) -> bool:
        """Ask first; then it is asked for when the answer is given."""
        self._is_wanted = False
        self._is_wanted = confirmed(question)
        if not self.count:
            self.began = asyncio.get_running_loop().time()
        return self._is_wanted

    def broke_off(self, error: BaseException) -> None:
        """Note what has ended it."""
        match error:
            case BrokenPipeError():  # whoever was reading has seen enough
                return
            case click.Abort() if not self._is_wanted:  # at a question
                return
            case asyncio.CancelledError() | click.Abort():
                self.outcome = CUT_OFF
            case click.ClickException(__cause__=Exception() as cause):
                self.outcome = word_of(cause)
            case click.ClickException():
                self._is_wanted = False
            case _:
                self.outcome = word_of(error)


@asynccontextmanager
async def acting(app: Mainspring, action: str, *about: object, dry_run: bool = False) -> AsyncIterator[Deed]:
    """Do something to what it is `about`, and leave a line of what came of it, whatever that is."""
    deed = Deed()
    try:
        yield deed
    except (Exception, asyncio.CancelledError) as error:
        deed.broke_off(error)
        if not dry_run:  # and nobody waits once more for a store that may be why it ended so
            await _write_down(app, action, named(about), deed, within=PATIENCE)
        raise
    if not dry_run:
        await _write_down(app, action, named(about), deed)


async def _write_down(app: Mainspring, action: str, about: str, deed: Deed, within: float | None = None) -> None:
    if deed.leaves_a_line:
        who = f"{FROM_A_SHELL}{me()}"
        entry = entry_of(who, action, about, count=deed.count, outcome=deed.outcome, job=deed.job)
        await keep(partial(store_that_is_there, app), entry, deed.began, within=within)
