"""Numbers of a demo, from its facts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from node.demo.deeds import Facts
from node.demo.history import NodeHistory, number, roster
from node.demo.scenario import Step

FP32_BYTES = 4


def seconds_to_next_commit(facts: Facts, step: Step) -> float | None:
    """From a step of the scenario to the next commit that a survivor of it saw; None when there was none."""
    event = facts.deeds.steps.get(step)
    if event is None:
        return None
    others = [name for name in facts.cast.names if name != event.get("node")]
    later = [
        commit.t for name in others for commit in facts.history[name].commits.values() if commit.t > event.t
    ]
    return min(later) - event.t if later else None


def steps_of_round(facts: Facts, round: int) -> int:
    """Inner steps that a member took in a round, the most of any; the run's H where no log says it."""
    taken = [
        number(event, "steps")
        for node in facts.history
        for event in node.of("train.end")
        if number(event, "round") == round
    ]
    return max(taken, default=0) or facts.options.inner_steps


def fp32_every_step_bytes(facts: Facts) -> int:
    """What the members together would have sent, had they all-reduced fp32 gradients at every inner step.

    2(N−1)/N · 4 · P bytes per member and step, which is what a ring or butterfly of N members sends at least
    (Patarasuk and Yuan 2009), summed over committed rounds with N the size of each round's roster.
    """
    total = 0
    for round, event in facts.history.commits().items():
        members = len(roster(event))
        total += (
            2 * (members - 1) * FP32_BYTES * facts.parameters * steps_of_round(facts, round) if members else 0
        )
    return total


def reduction(facts: Facts) -> float | None:
    """How many times fewer bytes were sent for rounds than `fp32_every_step_bytes`; None when none were."""
    sent = sum(node.bytes_sent["rounds"] for node in facts.history)
    baseline = fp32_every_step_bytes(facts)
    return baseline / sent if sent and baseline else None


def compute_shares(node: NodeHistory) -> Iterator[float]:
    """For each of a node's rounds, the share of its wall time in which the node's worker took inner steps.

    A round lasts from the moment the outer step of the one before was applied (the first from its first training) to
    that of its own.
    """
    begin: float | None = None
    training_since: float | None = None
    trained = 0.0
    for event in node.of("node.start", "train.begin", "train.end", "apply"):
        if event.kind == "node.start":
            begin = training_since = None  # a restart: what lies between is no round
            trained = 0.0
        elif event.kind == "train.begin":
            begin = event.t if begin is None else begin
            training_since = event.t
        elif event.kind == "train.end":
            if training_since is not None:
                trained += event.t - training_since
            training_since = None
        elif begin is not None:
            if event.t > begin:
                yield min(1.0, trained / (event.t - begin))
            begin, trained = event.t, 0.0


def compute_utilisation(facts: Facts) -> float | None:
    """Mean of `compute_shares` over all nodes and rounds; None without any."""
    shares = [share for node in facts.history for share in compute_shares(node)]
    return sum(shares) / len(shares) if shares else None


def tokens_committed(facts: Facts) -> int:
    """Tokens of all committed rounds."""
    return sum(number(event, "tokens") for event in facts.history.commits().values())


@dataclass(frozen=True)
class Segment:
    """What a node did for a while.

    Attributes:
        kind: `starting`, `training`, `waiting`, `reducing`, `deciding` or `applying`.
        round: The round it belonged to; -1 before the first.
        begin: Unix seconds.
        end: Unix seconds.
    """

    kind: str
    round: int
    begin: float
    end: float


_BEGINS: Mapping[str, str] = {
    "node.start": "starting",
    "train.begin": "training",
    "train.end": "waiting",
    "reduce.begin": "reducing",
    "reduce.end": "deciding",
    "commit": "applying",
    "apply": "waiting",
}
_ENDS = ("node.exit", "goodbye", "run.finished")


def segments(node: NodeHistory, end: float | None = None) -> tuple[Segment, ...]:
    """A node's time, cut into what it did.

    Args:
        node: The node.
        end: Unix seconds at which a node that wrote no end stopped, such as the kill; its last event by default.
    """
    found: list[Segment] = []
    kind, round, begin = "", -1, 0.0
    for event in node.events:
        if event.kind not in _BEGINS and event.kind not in _ENDS:
            continue
        if kind and event.t > begin:
            # A node that died has written nothing of it, so a start closes what the last word before it was.
            found.append(
                Segment(
                    kind, round, begin, _last_before(node, event.t) if event.kind == "node.start" else event.t
                )
            )
        kind, begin = _BEGINS.get(event.kind, ""), event.t
        round = -1 if event.kind == "node.start" else number(event, "round", round)
    last = node.events[-1].t if node.events else 0.0
    closing = last if end is None else end
    if kind and closing > begin:
        found.append(Segment(kind, round, begin, closing))
    return tuple(found)


def _last_before(node: NodeHistory, t: float) -> float:
    return max((event.t for event in node.events if event.t < t), default=t)
