"""Orders that wait: for a round, or for a time, such as the end of a ban. Kept in one file over restarts."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from node.roles.wish import Wish
from protocol.errors import Code, NodeError
from protocol.files import write_whole

MOST = 256
"""Orders that wait at once."""


@dataclass(frozen=True)
class Waiting:
    """One order that waits.

    Attributes:
        number: Of the entry; grows.
        wish: What is to be ordered.
        at: Not before, Unix seconds; 0 for at any time.
        round: It acts from this round on at the earliest; -1 for any.
    """

    number: int
    wish: Wish
    at: float = 0.0
    round: int = -1


class Planned:
    """The orders of a run that wait, in a file that is whole at any time.

    An entry is in the file until a value has taken its order up: after a crash the order is given again.

    Args:
        path: The file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last, self._all = _read(path)
        self._given: dict[int, int] = {}

    def all(self) -> tuple[Waiting, ...]:
        """All that wait, oldest first."""
        return self._all

    def add(self, wish: Wish, *, at: float = 0.0, round_number: int = -1) -> Waiting:
        """Have an order wait.

        Raises:
            NodeError: ``CFG_USAGE``: too many do; ``STO_FULL`` where it cannot be kept.
        """
        if len(self._all) >= MOST:
            raise NodeError(Code.CFG_USAGE, f"{MOST} orders wait.", fix="Drop some: admin drop NUMBER.")
        made = Waiting(self._last + 1, wish, at, round_number)
        self._keep((*self._all, made))
        return made

    def drop(self, number: int) -> Waiting:
        """An order that is not to be given after all.

        Raises:
            NodeError: ``CFG_USAGE``: there is none of that number.
        """
        found = next((each for each in self._all if each.number == number), None)
        if found is None:
            raise NodeError(Code.CFG_USAGE, f"No order waits under number {number}.")
        self._keep(tuple(each for each in self._all if each is not found))
        return found

    def drop_about(self, peer: str) -> None:
        """Nothing waits about a peer any more, since something else was ordered."""
        if any(each.wish.peer == peer for each in self._all):
            self._keep(tuple(each for each in self._all if each.wish.peer != peer))

    def give(self, now: float, tip: int, taken_up: int, order: Callable[[Wish], int]) -> None:
        """Give what is due, and forget what values have taken up.

        Args:
            now: Unix seconds.
            tip: The last decided round.
            taken_up: The highest number of an order that a value has taken up.
            order: Gives an order; its number.

        Raises:
            NodeError: What ``order`` raises; it is tried again.
        """
        for each in self._all:
            if each.number in self._given:
                if self._given[each.number] <= taken_up:
                    self._keep(tuple(other for other in self._all if other is not each))
                    del self._given[each.number]
            elif now >= each.at and tip + 2 >= each.round:  # named in the value of the round before
                self._given[each.number] = order(each.wish)

    def _keep(self, waiting: tuple[Waiting, ...]) -> None:
        last = max((self._last, *(each.number for each in waiting)))
        content = {"last": last, "waiting": [asdict(each) for each in waiting]}
        write_whole(self._path, [json.dumps(content).encode()])
        self._last, self._all = last, waiting


def _read(path: Path) -> tuple[int, tuple[Waiting, ...]]:
    """The last number that was given, and what waits.

    Raises:
        NodeError: ``STO_CORRUPT``.
    """
    try:
        content = json.loads(path.read_bytes())
        waiting = tuple(Waiting(**{**each, "wish": Wish(**each["wish"])}) for each in content["waiting"])
        return int(content["last"]), waiting
    except FileNotFoundError:
        return 0, ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise NodeError(
            Code.STO_CORRUPT, f"{path} cannot be read: {error}.", fix="Move it away; then no order waits."
        ) from error  # fmt: skip
