"""A world's story in lines: faults, what members say, what they decide."""

from collections.abc import Callable, Sequence
from typing import Any

from diloco.rounds.events import Commit, Effect, Event, Note, Persist, Renew, Resync, Say
from diloco.rounds.state import State
from diloco.rounds.statements import Close, Proposal, Ready, Vote
from diloco.rounds.values import Value, parse_value, value_digest
from tests.sim.judge import Judge
from tests.sim.process import Process


class Storyteller(Judge):
    """A judge that writes down what it sees."""

    def __init__(self, write: Callable[[str], Any] = print) -> None:
        super().__init__()
        self._write = write

    def tell(self, who: str, words: str) -> None:
        """Write a line."""
        self._write(f"{self.world.now:8.3f} {who:>5} {words}")

    def moved(
        self, process: Process, before: State, after: State, event: Event, effects: Sequence[Effect]
    ) -> None:
        """As ``Judge``."""
        for effect in effects:
            match effect:
                case Say(body):
                    self.tell(process.name, f"r{body.round} a{body.attempt} {_words(body)}")
                case Commit(certified, spent):
                    self.tell(
                        process.name, f"DECIDED {_value(certified.value)} a{certified.attempt} spent={spent}"
                    )
                case Renew(certified):
                    self.tell(process.name, f"RESET {_value(certified.value)}")
                case Note(kind, fields):
                    self.tell(process.name, f"note {kind} {dict(fields)}")
                case Resync(base):
                    self.tell(process.name, f"Resync {base.hex()[:4]}")
                case Persist():
                    pass
                case _:
                    self.tell(process.name, type(effect).__name__)
        super().moved(process, before, after, event, effects)


def _words(body: Any) -> str:
    if isinstance(body, Ready):
        flags = [name for name in ("leaving", "lost_record") if getattr(body, name)]
        voted = f" voted a{body.voted_attempt - 1}" if body.voted_attempt else ""
        return f"Ready base={body.base.hex()[:4]} tokens={body.tokens}{voted} {' '.join(flags)}"
    if isinstance(body, Close):
        return f"Close {value_digest(body.value).hex()[:4]} {_value(parse_value(body.value))}"
    if isinstance(body, Vote):
        return f"Vote {body.value.hex()[:4]}"
    if isinstance(body, Proposal):
        return f"Proposal of {len(body.readys)}"
    return f"{type(body).__name__} {getattr(body, 'reason', '')}"


def _value(value: Value) -> str:
    voters = " ".join(
        f"{e.peer}{'?' * e.absent}{'~' * e.withheld}{'!' * (e.peer == value.tie_breaker)}"
        for e in value.electorate
    )
    roster = " ".join(entry.peer for entry in value.roster)
    return f"e{value.epoch} r{value.round} [{roster}] -> {voters} | {' '.join(value.members)}"
