"""Page 10: rollouts: rewards, how far behind they were made, and who judged what."""

from collections import Counter
from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages import words
from node.coordinator.pages.components import (
    Age,
    Cell,
    Figure,
    Rows,
    Text,
    chart,
    peer_link,
    section,
    set_lines,
    when,
)
from node.coordinator.pages.progress import rewards
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import View
from node.coordinator.view_rollouts import Learning


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/rollouts")
    def rollouts() -> None:
        with site.page("Rollouts", "/rollouts"):
            with Element("div").classes("cards"):
                reward, solved = (
                    Figure("Mean reward", "of all accepted"),
                    Figure("Solve rate", "of all accepted"),
                )
                accepted, refused = Figure("Rollouts accepted"), Figure("Rollouts refused")
                waiting, behind = Figure("Undecided"), Figure("Staleness", "versions behind, newest verdicts")
            with section("Reward of the last accepted rollouts"):
                drawn = chart("Reward of the last accepted rollouts", rewards(site.service.view))
            with section("Where the rollouts of each trainer are"):
                queues = Rows(
                    ("Trainer", "Version", "Workers", "Wanted", "Made now", "Being judged", "Ready", "Validators",
                     "Last step", "Staleness of its groups", "Waits for"),
                    "No trainer said anything yet.", "Where the rollouts are",
                )  # fmt: skip
                queue_age = Age()
            with Element("div").classes("wide"):
                with section("Validators"):
                    validators = Rows(
                        ("Validator", "Accepted", "Refused", "Undecided"), "None yet.", "Validators"
                    )
                with section("Refused, by reason"):
                    reasons = Rows(("Reason", "Files"), "None.", "Refused rollouts by reason")
            with section("Last verdicts"):
                table = Rows(("Worker", "Outcome", "Why", "Rollouts", "Reward", "Behind", "By", "When"), "None yet.",
                             "Verdicts")  # fmt: skip
                Text(
                    "p", "A verdict names the reason, and the rollout file by its digest in the API.", "soft"
                )
            last: list[object] = []

            def refresh(moment: Moment) -> None:
                view, sums, held = moment.view, moment.view.rollouts, moment.view.verdicts
                queues.show(view.learning, lambda: [_queue(view, each) for each in view.learning.values()])
                queue_age.at(max((each.as_of for each in view.learning.values()), default=0.0))
                if last and last[0] is held:
                    return
                first = not last
                last[:] = [held]
                mean = sums.reward_sum / sums.rewarded if sums.rewarded else None
                reward.show(words.number(mean), sums.as_of)
                solved.show(words.share(sums.solved_sum, sums.rewarded), sums.as_of)
                accepted.show(words.count(sums.accepted), sums.as_of)
                refused.show(words.count(sums.refused), sums.as_of,
                             words.share(sums.refused, sums.accepted + sums.refused))  # fmt: skip
                waiting.show(words.count(sums.undecided), sums.as_of)
                late = sorted(each.staleness for each in held)
                behind.show(str(late[len(late) // 2]) if late else "—", sums.as_of)
                if not first:
                    set_lines(drawn, rewards(view))
                by: dict[str, Counter[str]] = {}
                for each in held:
                    by.setdefault(each.validator, Counter())[each.outcome] += 1
                validators.show(len(held), lambda: [
                    (partial(peer_link, view, peer), str(n["accepted"]), str(n["refused"]), str(n["undecided"]))
                    for peer, n in by.items()
                ])  # fmt: skip
                why = Counter(f"{each.sentence} {each.code}" for each in held if each.outcome == "refused")
                reasons.show(
                    dict(why), lambda: [(words.safe(text, 200), str(n)) for text, n in why.most_common()]
                )
                table.show(held, lambda: [
                    (partial(peer_link, view, each.worker), each.outcome,
                     words.safe(f"{each.sentence} {each.code}", 200), str(each.rollouts), words.number(each.reward),
                     str(each.staleness), partial(peer_link, view, each.validator), partial(when, each.at))
                    for each in held[:-51:-1]
                ])  # fmt: skip

            site.follow(refresh)


def _queue(view: View, each: Learning) -> tuple[Cell, ...]:
    validators = f"{len(each.validators)}" + (
        f", ▲ {len(each.distrusted)} distrusted" if each.distrusted else ""
    )
    step = f"round {each.round}, reward {words.number(each.reward)}, solved {words.number(each.solved, 2)}"
    ages = sorted(each.staleness.items(), key=lambda item: (len(item[0]), item[0]))
    behind = ", ".join(f"{groups} of {words.safe(age, 8)} behind" for age, groups in ages)
    return (
        partial(peer_link, view, each.peer), str(each.newest), str(each.workers), str(each.free), str(each.working),
        str(each.judging), str(each.ready), validators, step if each.round >= 0 else "—", behind or "—",
        words.safe(each.waiting, 200) or "—",
    )  # fmt: skip
