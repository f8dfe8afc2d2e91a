"""docs/rounds.md and the round machine say the same: phases, transitions, rules, events, effects."""

import ast
import re
from typing import get_args

import pytest

from diloco.rounds import events, hearing, intake
from diloco.rounds.waiting import HALTED, waiting
from tests.diloco.rounds.swarm import Swarm
from tests.repository.documents import ROOT, blocks, page, rows, section

TEXT = page("docs/rounds.md")
FIVE = ("anna", "bert", "carl", "dora", "emil")
Edges = set[tuple[str, str]]


def drawn() -> tuple[Edges, Edges]:
    """The transitions of the diagram: those of an undisturbed round, and all."""
    (diagram,) = blocks(TEXT, "mermaid")
    usual, _, rest = diagram.partition("%% when something does")
    assert rest

    def edges(text: str) -> Edges:
        return set(re.findall(r"^\s*(\w+) --> (\w+)", text, re.MULTILINE))

    return edges(usual), edges(diagram)


def phases() -> set[str]:
    """Every phase that a member may say, as the code has them."""
    found = set()
    for path in (ROOT / "diloco").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Waiting":
                first = node.args[0]
                assert isinstance(first, ast.Constant)
                found.add(first.value)
    return found


def reasons() -> set[tuple[str, str]]:
    """Every phase with every reason that a member may give, as the code has them."""
    found = set()
    for path in (ROOT / "diloco").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Waiting":
                phase, reason = node.args[:2]
                assert isinstance(phase, ast.Constant)
                known = (reason.value,) if isinstance(reason, ast.Constant) else tuple(HALTED)
                found |= {(phase.value, each) for each in known}
    return found


def test_the_page_lists_every_reason_to_wait_and_no_other() -> None:
    told = rows(section(TEXT, "### Why a member waits"))
    assert {(phase, reason) for phase, reason, _ in told} == reasons()


def watch(swarm: Swarm) -> Edges:
    """The transitions that the members of a simulated swarm go through from now on; grows while it runs."""
    seen: Edges = set()
    last: dict[tuple[str, int], str] = {}
    feed = swarm.feed

    def watched(name: str, event: events.Event) -> None:
        feed(name, event)
        node = swarm.nodes[name]
        if not node.alive:
            return
        phase = waiting(node.state, swarm.now).phase
        before = last.get((name, node.life), phase)
        last[name, node.life] = phase
        if before != phase:
            seen.add((before, phase))

    swarm.feed = watched  # type: ignore[method-assign]
    return seen


def test_the_diagram_has_every_phase_and_no_other() -> None:
    names = {name for edge in drawn()[1] for name in edge}
    assert names == phases()


def test_an_undisturbed_run_goes_the_way_that_is_drawn_first() -> None:
    swarm = Swarm(FIVE, rounds=4)
    seen = watch(swarm)
    swarm.run(until=600)
    assert seen == {edge for edge in drawn()[0] if "joining" not in edge}


@pytest.mark.parametrize("seed", range(4))
def test_through_faults_only_drawn_transitions_are_seen(seed: int) -> None:
    swarm = Swarm(FIVE, rounds=6, seed=seed, loss=0.15)
    seen = watch(swarm)
    leader = swarm.nodes["anna"].state.leader(0)
    swarm.run(when=lambda: swarm.nodes[leader].state.proposed >= 0)
    swarm.kill(leader)
    swarm.at(30.0, lambda: swarm.restart(leader))
    swarm.at(50.0, lambda: swarm.leave(next(name for name in FIVE if name != leader)))
    side = set(FIVE[:2])
    swarm.run(until=35)
    swarm.order(1, "pause")
    swarm.at(45.0, lambda: swarm.order(2, "resume", to=["dora", "emil"]))
    swarm.run(until=60)
    swarm.cut = lambda a, b: (a in side) != (b in side)
    swarm.run(until=120)
    swarm.cut = lambda a, b: False
    swarm.run(until=1000, when=lambda: all(node.state.finished for node in swarm.live()))
    assert seen - drawn()[1] == set()
    assert len(seen) > len(drawn()[0]), "the faults led somewhere else than the usual way"


def numbers() -> list[int]:
    return [int(number) for number in re.findall(r"^### Rule (\d+): ", TEXT, re.MULTILINE)]


def test_the_rules_are_numbered_without_a_gap() -> None:
    assert numbers() == list(range(1, len(numbers()) + 1))


def test_every_rule_that_the_code_names_is_on_the_page() -> None:
    named = set()
    for package in ("diloco", "node"):
        for path in (ROOT / package).rglob("*.py"):
            for found in re.findall(r"\b[Rr]ules? (\d+(?:(?:, | and )\d+)*)", path.read_text("utf-8")):
                named |= {int(number) for number in re.findall(r"\d+", found)}
    assert named
    assert named <= set(numbers())


def test_the_page_says_of_every_rule_how_far_it_is_built() -> None:
    told = rows(section(TEXT, "## What is built"))
    assert [int(row[0]) for row in told] == numbers()
    for number, built, missing in told:
        assert built in ("yes", "in part", "no"), number
        assert missing or built == "yes", number


def listed(what: str) -> set[str]:
    (line,) = re.findall(rf"^- {what}: (.+)$", section(TEXT, "## Events and effects"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", line))


def test_events_statements_and_effects_are_those_of_the_machine() -> None:
    assert listed("events") == {one.__name__ for one in intake.HANDLERS}
    assert listed("events") == {one.__name__ for one in get_args(events.Event)}
    assert listed("statements that arrive") == {one.__name__ for one in hearing.STATEMENTS}
    assert listed("effects") == {one.__name__ for one in get_args(events.Effect)}
