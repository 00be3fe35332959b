"""The word to stop: given once, heard by all."""

from mainspring.supervise.lines import Line, Waiter, first_of


class Stop(Line):
    """Set once, it stays set; everyone who waits for it, now or later, is called."""

    def __init__(self) -> None:
        super().__init__()
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        while self.call_first():
            pass

    async def wait(self) -> None:
        await first_of([self])

    def join(self, waiter: Waiter) -> None:
        super().join(waiter)
        if self._set:
            self.call_first()

    def give_back(self) -> None:
        """Do nothing: it is still set for whoever looks."""
