"""Whether the demo showed what it is to show. Pure: a function of the nodes' logs and the demo's journal.

Each promise is one function that yields the sentences of what is wrong with it, none when it holds.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from node.demo.deeds import Facts
from node.demo.figures import seconds_to_next_commit
from node.demo.history import count, number, roster
from node.demo.scenario import HIGHEST_FRACTION, LOWEST_FRACTION, Step

SMALLEST_FALL = 1.0
"""Nats per token by which the validation loss has to fall."""

FEWEST_HOLDERS = 2
"""Members that the joiner has to get the state from."""

LARGEST_LOGIT_DIFFERENCE = 1e-4
"""Between the model as exported and reloaded, and as the run computes it."""

SAMPLES = 2
"""Generated texts that are shown."""


@dataclass(frozen=True)
class Check:
    """One promise.

    Attributes:
        name: A few words.
        wrong: What is wrong, in sentences; empty when the promise holds.
    """

    name: str
    wrong: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the promise holds."""
        return not self.wrong


def judge(facts: Facts, samples: Sequence[str]) -> tuple[Check, ...]:
    """Check every promise, in the order of the demo.

    Args:
        facts: What happened.
        samples: Generated texts.
    """
    checks = [Check(name, tuple(find(facts))) for name, find in _PROMISES]
    missing = SAMPLES - len(samples)
    checks.append(
        Check(
            "samples were generated",
            (f"{missing} of {SAMPLES} generated samples are missing.",) if missing > 0 else (),
        )
    )
    if facts.deeds.compared:
        checks.append(Check("the synchronous baseline was trained", tuple(_baseline(facts))))
    return tuple(checks)


def _undisturbed(facts: Facts) -> Iterator[str]:
    yield from facts.deeds.troubles


def _began(facts: Facts) -> Iterator[str]:
    first = facts.history.commits().get(0)
    if first is None:
        yield "The first round was never committed."
        return
    took_part = facts.history.names_of(roster(first))
    for name in facts.cast.members:
        if name not in took_part:
            yield f"{name} is not on the roster of the first round."


def _rounds(facts: Facts) -> Iterator[str]:
    commits = facts.history.commits()
    missing = [round for round in range(facts.options.rounds) if round not in commits]
    if missing:
        done = facts.options.rounds - len(missing)
        yield f"{done} of {facts.options.rounds} rounds were committed; round {missing[0]} is missing first."


def _joined(facts: Facts) -> Iterator[str]:
    name = facts.cast.joiner
    step, node = facts.deeds.steps.get(Step.JOIN), facts.history[name]
    if step is None:
        yield f"{name} was never started, because round {facts.script.join - 1} was not committed."
        return
    download = next(node.of("state.downloaded"), None)
    if download is None:
        yield f"{name} did not download the state."
    else:
        holders = count(download, "holders")
        if holders < FEWEST_HOLDERS:
            yield f"{name} got the state from {holders} member, not from several."
        yield from _base_agrees(facts, number(download, "round"), str(download.get("digest")))
    contributed = [round for round in facts.history.commits() if name in facts.history.contributors(round)]
    if not contributed:
        yield f"{name} never contributed to a round."


def _base_agrees(facts: Facts, round: int, digest: str) -> Iterator[str]:
    """The state that was downloaded is the one from which the members began that round."""
    applied = {
        str(event.get("digest"))
        for node in facts.history
        for event in node.of("apply")
        if node.name != facts.cast.joiner and number(event, "round") == round
    }
    if digest not in applied:
        yield f"The state that {facts.cast.joiner} downloaded for round {round} is not the members'."


def _killed(facts: Facts) -> Iterator[str]:
    name = facts.cast.founder
    step = facts.deeds.steps.get(Step.KILL)
    if step is None:
        yield f"{name} was never killed: from round {facts.script.kill} on no all-reduce was seen between 20 and 80 %."
        return
    round = number(step, "round")
    victim = facts.history[name]
    progress, over = victim.last("reduce.progress"), victim.last("reduce.end", "commit")
    fraction = float(progress.get("fraction") or 0.0) if progress is not None else 0.0
    if over is not None and progress is not None and over.t > progress.t:
        yield f"{name} had ended the all-reduce of round {round} when it was killed."
    elif not LOWEST_FRACTION <= fraction <= HIGHEST_FRACTION:
        yield f"{name} was killed at {fraction:.0%} of an all-reduce, not between 20 and 80 %."
    if facts.deeds.exits.get(name) != -signal.SIGKILL:
        yield f"{name} ended with status {facts.deeds.exits.get(name)}, not by SIGKILL."
    if facts.deeds.left_behind.get(name):
        yield f"{facts.deeds.left_behind[name]} processes of {name} outlived it."
    others = [each for each in facts.cast.names if each != name]
    if seconds_to_next_commit(facts, Step.KILL) is None or round not in facts.history.commits(others):
        yield f"Round {round}, in which {name} was killed, was not completed by the others."
        return
    if facts.history.commits(others)[round].t <= step.t:
        yield f"Round {round} was committed before {name} was killed in it."
    yield from _nothing_lost(facts, round, others)


def _nothing_lost(facts: Facts, round: int, others: Sequence[str]) -> Iterator[str]:
    """Nobody restarts, and all that the others trained in the round counts, trained once."""
    # A contribution that comes too late for its round is kept for the next one.
    named = {*facts.history.contributors(round), *facts.history.contributors(round + 1)}
    for name in others:
        node = facts.history[name]
        starts = len(facts.deeds.launches.get(name, ()))
        if starts > 1:
            yield f"{name} was started {starts} times."
        frozen = any(number(event, "round") == round for event in node.of("contribution.frozen"))
        if frozen and name not in named:
            yield f"The inner steps of {name} in round {round} were lost."
        begun = [
            number(event, "start") for event in node.of("train.begin") if number(event, "round") == round
        ]
        if len(set(begun)) < len(begun) and not facts.deeds.resumed:
            yield f"{name} trained the same samples of round {round} twice."


def _left(facts: Facts) -> Iterator[str]:
    name = facts.cast.leaver
    step = facts.deeds.steps.get(Step.LEAVE)
    if step is None:
        yield f"{name} was never told to leave."
        return
    node = facts.history[name]
    status = facts.deeds.exits.get(name)
    if status is None:
        yield f"{name} has not ended after SIGTERM."
    elif status != 0:
        yield f"{name} ended with status {status} after SIGTERM, not 0."
    for kind, words in (("drain.begin", "drain"), ("goodbye", "say goodbye")):
        if not any(event.t >= step.t for event in node.of(kind)):
            yield f"{name} did not {words} after SIGTERM."


def _finished(facts: Facts) -> Iterator[str]:
    for name in facts.cast.survivors:
        if facts.history[name].finished is None:
            yield f"{name} did not finish the run."
        elif facts.deeds.exits.get(name, 0) != 0:
            yield f"{name} ended with status {facts.deeds.exits[name]} when it was stopped, not 0."


def _digests(facts: Facts) -> Iterator[str]:
    ends = {
        name: event for name in facts.cast.survivors if (event := facts.history[name].finished) is not None
    }
    if not ends:
        yield "No survivor reported its state's digest."
    for what in ("digest", "parameters", "momentum"):
        found = {name: str(event.get(what)) for name, event in ends.items()}
        if len(set(found.values())) > 1:
            named = ", ".join(f"{name} {digest[:12]}" for name, digest in found.items())
            yield f"The digests of the {'state' if what == 'digest' else what} differ: {named}."
        elif found and not _are_digests(found):
            yield f"The survivors reported no digest of the {'state' if what == 'digest' else what}."


def _are_digests(found: dict[str, str]) -> bool:
    return all(digest not in ("", "None") for digest in found.values())


def _loss(facts: Facts) -> Iterator[str]:
    losses = list(facts.history.evaluations().values())
    if len(losses) < 2:
        yield "There are fewer than two evaluations, so nothing shows that the loss fell."
    elif losses[0] - losses[-1] < SMALLEST_FALL:
        yield f"The validation loss fell by {losses[0] - losses[-1]:.3f} nats, less than {SMALLEST_FALL:.1f}."


def _model(facts: Facts) -> Iterator[str]:
    model = facts.deeds.model
    if not model:
        yield "The model was not exported."
        return
    if model.get("error"):
        yield f"The exported model cannot be used: {model['error']}"
        return
    difference = model.get("logit_difference")
    if difference is None or not difference <= LARGEST_LOGIT_DIFFERENCE:
        yield f"The reloaded model's logits differ by {difference} from those of the run's own model."
    digests = {
        str(event.get("parameters"))
        for name in facts.cast.survivors
        if (event := facts.history[name].finished) is not None
    }
    if model.get("parameters_digest") not in digests:
        yield "The exported parameters are not those that the survivors agreed on."


def _baseline(facts: Facts) -> Iterator[str]:
    if not facts.deeds.baseline:
        yield "The synchronous baseline was not trained."
    elif facts.deeds.baseline.get("error"):
        yield f"The synchronous baseline failed: {facts.deeds.baseline['error']}"


_PROMISES: tuple[tuple[str, Callable[[Facts], Iterator[str]]], ...] = (
    ("nothing went wrong on the way", _undisturbed),
    ("all nodes of the start trained together", _began),
    ("every round was committed", _rounds),
    ("a node joined while the others trained", _joined),
    ("the founder was killed in an all-reduce, and the round completed", _killed),
    ("a node left politely", _left),
    ("the survivors finished the run", _finished),
    ("outer state is equal on all survivors", _digests),
    ("the validation loss fell", _loss),
    ("the exported model loads and computes the same", _model),
)
