"""Page 3: how the run went so far, as lines over rounds."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from nicegui import background_tasks, ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.pages.components import Age, Points, Text, chart, section, set_lines
from node.coordinator.pages.site import Moment, Site
from node.coordinator.reading import Point
from node.coordinator.view import View

Lines = Callable[[Sequence[Point], View], list[tuple[str, Points]]]


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/progress")
    async def progress() -> None:
        with site.page("Progress", "/progress"):
            problem = Text("p", "", "card bad").props("role=alert")
            problem.set_visibility(False)
            view, made, ages = site.service.view, [], []
            with Element("div").classes("wide"):
                for title, lines in CHARTS:
                    with section(title):
                        made.append((chart(title, lines((), view)), lines))
                        ages.append(Age())
            shown: list[int] = []

            async def again(moment: Moment) -> None:
                try:
                    found = await site.series()
                except StoreError as error:
                    problem.say(str(error)).set_visibility(True)
                    return
                problem.set_visibility(False)
                for each, lines in made:
                    set_lines(each, lines(found, moment.view))
                for age in ages:
                    age.at(found[-1].decided_at if found else 0.0)

            def refresh(moment: Moment) -> None:
                if shown != [moment.view.tip.round]:
                    shown[:] = [moment.view.tip.round]
                    background_tasks.create(again(moment))

            site.follow(refresh)


def with_gaps(points: Points) -> Points:
    """With a point without a value wherever rounds are missing between two points."""
    steps = sorted(after[0] - before[0] for before, after in pairwise(points))
    if not steps:
        return points
    usual = steps[len(steps) // 2]
    found = points[:1]
    for before, after in pairwise(points):
        if after[0] - before[0] > 1.5 * usual:
            found.append((before[0] + usual, None))
        found.append(after)
    return found


def _over(
    name: str, value: Callable[[Point], float | None]
) -> Callable[[Sequence[Point]], tuple[str, Points]]:
    return lambda points: (name, with_gaps([(point.round, value(point)) for point in points]))


def _lines(*made: tuple[str, Callable[[Point], float | None]]) -> Lines:
    return lambda points, view: [_over(name, value)(points) for name, value in made]


def _sent(points: Sequence[Point], view: View) -> list[tuple[str, Points]]:
    return [("Sent", with_gaps([(number, mean) for number, mean in _means(view)]))]


def _reduction(points: Sequence[Point], view: View) -> list[tuple[str, Points]]:
    size = view.run.parameters
    return [
        (
            "Reduction",
            with_gaps([(number, size / mean if mean and size else None) for number, mean in _means(view)]),
        )
    ]


def _means(view: View) -> list[tuple[int, float | None]]:
    """What the members of each recent round sent for it on average, bytes."""
    rounds = sorted((each for each in view.rounds.values() if each.decided_at), key=lambda each: each.round)
    return [(each.round, sum(each.sent.values()) / len(each.sent) if each.sent else None) for each in rounds]


def _utilisation(points: Sequence[Point], view: View) -> list[tuple[str, Points]]:
    found: Points = []
    for entry in sorted(view.rounds.values(), key=lambda each: each.round):
        spans = [
            marks["computed"] - marks["compute"]
            for marks in entry.marks.values()
            if "compute" in marks and "computed" in marks
        ]
        whole = entry.decided_at - entry.began_at if entry.decided_at and entry.began_at else 0.0
        if whole > 0:
            found.append((entry.round, 100 * sum(spans) / len(spans) / whole if spans else None))
    return [("Utilisation", with_gaps(found))]


def rewards(view: View) -> list[tuple[str, Points]]:
    """Reward and solve rate of the last accepted rollouts, in their order."""
    reward: Points = []
    solved: Points = []
    for place, verdict in enumerate(each for each in view.verdicts if each.outcome == "accepted"):
        reward.append((place, verdict.reward))
        solved.append((place, verdict.solved))
    return [("Mean reward", reward), ("Share solved", solved)]


CHARTS: tuple[tuple[str, Lines], ...] = (
    ("Loss, nats per token", _lines(("Training", lambda p: p.loss), ("Validation", lambda p: p.validation))),
    ("Reward of the last accepted rollouts", lambda points, view: rewards(view)),
    ("Tokens averaged per round", _lines(("Tokens", lambda p: float(p.tokens)))),
    ("Tokens averaged per second", _lines(("Speed", lambda p: p.tokens / p.seconds if p.seconds else None))),
    ("Length of a round, s", _lines(("Length", lambda p: p.seconds or None))),
    ("Utilisation: share of a round in training, %", _utilisation),
    ("Sent for a round by a member, bytes", _sent),
    ("Reduction factor: the model at fp32 to what a member sends", _reduction),
    ("Contributors", _lines(("Contributors", lambda p: float(p.contributors)))),
)
"""Heading and lines of every chart."""
