"""Promise first, word second: nothing is said before what it rests on is on disk (rule 5).

While nothing can be written the member abstains; what it would have said waits until the last promise is on disk.
"""

from collections.abc import Callable
from typing import Any

from diloco.rounds.events import Persist, Statement
from protocol.errors import NodeError


class Promising:
    """Writes promises and says statements, in this order.

    Args:
        save: Writes a promise durably; raises ``NodeError`` when it cannot.
        say: Signs and sends a statement.
        refused: Told the error when a promise cannot be written.
    """

    def __init__(
        self,
        save: Callable[[Persist], None],
        say: Callable[[Statement], None],
        refused: Callable[[NodeError], None],
    ) -> None:
        self._save, self._say, self._refused = save, say, refused
        self._unwritten: Persist | None = None
        self._waiting: dict[type[Any], Statement] = {}

    def persist(self, promise: Persist) -> None:
        """Write a promise. One that could not be written before is part of a later one of its round."""
        self._unwritten = promise
        place = (promise.epoch, promise.round)
        self._waiting = {k: s for k, s in self._waiting.items() if (s.epoch, s.round) == place}
        self._write(told=False)

    def say(self, body: Statement) -> None:
        """Say a statement, or keep it until the promise that it rests on is written."""
        if self._unwritten is None:
            self._say(body)
        else:
            self._waiting.pop(type(body), None)  # a later one of its kind replaces it, and comes last
            self._waiting[type(body)] = body

    def retry(self) -> None:
        """Try again to write what could not be written."""
        if self._unwritten is not None:
            self._write(told=True)

    def forget(self) -> None:
        """The round is decided: nothing of it is said any more."""
        self._unwritten = None
        self._waiting.clear()

    def _write(self, *, told: bool) -> None:
        assert self._unwritten is not None
        try:
            self._save(self._unwritten)
        except NodeError as error:
            if not told:
                self._refused(error)
            return
        self._unwritten = None
        waiting, self._waiting = self._waiting, {}
        for body in waiting.values():
            self._say(body)
