"""What became of the work of a storm, read from the event logs of its nodes: pure functions of events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from node.eventlog import Event


@dataclass(frozen=True)
class Work:
    """Inner steps of one life of a node.

    Attributes:
        committed: In contributions that a value holds.
        lost: In contributions that no value holds.
        excluded: While the node was not on the quorum's side, or undecided at the end of the life.
    """

    committed: int = 0
    lost: int = 0
    excluded: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.committed + other.committed, self.lost + other.lost, self.excluded + other.excluded)


def work_of(events: Sequence[Event], off: Iterable[range] = ()) -> Work:
    """Inner steps of one life.

    Args:
        events: The life's events in order.
        off: Places in ``events`` at which the node was not on the quorum's side.
    """
    away = list(off)
    total = Work()
    running = 0  # steps since the last contribution was frozen
    frozen: list[int] = []  # contributions that wait for a value
    outside = False  # since the last value that holds one, the node was away
    for place, event in enumerate(events):
        outside = outside or any(place in span for span in away)
        if event.kind == "train.step":
            running += 1
        elif event.kind == "train.failed":
            running = 0  # the workers died, and train the lease again
        elif event.kind == "contribution.frozen":
            frozen.append(running)
            running = 0
        elif event.kind == "commit" and event["spent"] and frozen:
            *missed, given = frozen
            wasted = sum(missed)
            total += Work(given, 0, wasted) if outside else Work(given, wasted, 0)
            frozen, outside = [], False
    return total + Work(excluded=running + sum(frozen))


def states_of(logs: Mapping[str, Sequence[Event]]) -> tuple[int, list[str]]:
    """How many states several nodes had, and which of them they did not have alike."""
    by_round: dict[tuple[int, int], dict[str, set[str]]] = {}
    for name, events in logs.items():
        epoch = 0
        for event in events:
            if event.kind in ("commit", "reset"):
                epoch = max(epoch, int(event["epoch"]))
            elif event.kind == "apply":
                by_round.setdefault((epoch, event["round"]), {}).setdefault(name, set()).add(event["digest"])
    wrong = []
    for (epoch, number), states in sorted(by_round.items()):
        if len(set().union(*states.values())) > 1:
            wrong.append(f"epoch {epoch}, round {number}: {sorted(states)}")
    return sum(len(states) > 1 for states in by_round.values()), wrong


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """Growth per minute of (seconds, amount), by least squares; 0 for fewer than 3."""
    if len(samples) < 3:
        return 0.0
    mean_t = sum(t for t, _ in samples) / len(samples)
    mean_y = sum(y for _, y in samples) / len(samples)
    spread = sum((t - mean_t) ** 2 for t, _ in samples)
    return 60 * sum((t - mean_t) * (y - mean_y) for t, y in samples) / spread if spread else 0.0
