"""Page 1, 2 and 4: what happens now, who is where in the round, and whether all hold the same."""

from collections.abc import Callable
from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.alerts import loss_of
from node.coordinator.pages import words
from node.coordinator.pages.components import (
    Age,
    Figure,
    Levelled,
    Rows,
    Text,
    doing_of,
    link,
    peer_link,
    section,
    when,
)
from node.coordinator.pages.site import Moment, Site
from node.coordinator.verdict import PHASES, Dot, heard
from node.coordinator.view import View

_NAMES = {
    "compute": "Compute", "encode": "Encode", "ready": "Ready", "reduce": "Reduce", "vote": "Certify", "apply": "Apply",
}  # fmt: skip


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/")
    def overview() -> None:
        with site.page("Overview", "/"):
            _phases(site)
            _figures(site)
            with Element("div").classes("wide"):
                _agreement(site)
                _alerts(site)


def _phases(site: Site) -> None:
    chosen: list[str] = []
    with section("The round"):
        with Element("p").classes("soft"):
            round_said = Text("span")
            left = Text("strong")
        boxes: dict[str, tuple[Text, Text, Text]] = {}
        with Element("div").classes("strip"):
            for phase in PHASES:
                with Text("button", "", "phase").put("type", "button") as button:
                    Text("div", _NAMES[phase], "name")
                    through, dots = (
                        Text("div", "", "soft"),
                        Text("div", "", "dots").put("aria-hidden", "true"),
                    )
                boxes[phase] = (button, through, dots)
                button.on("click", partial(_choose, chosen, phase, lambda: refresh(site.moment())))
        Text("p", "One dot per member, in the phase that it is in: ● heard lately, ○ not. Choose a phase to see who is "
             "not through it.", "soft")  # fmt: skip
        missing = Rows(
            ("Member", "Does", "Since"), "All are through.", "Members that are not through the phase"
        )
    missing.set_visibility(False)

    def refresh(moment: Moment) -> None:
        view, tip = moment.view, moment.view.tip
        entry = view.present()
        until = max(
            (m.doing.until or 0.0 for m in view.members.values() if m.doing.round == tip.round + 1),
            default=0.0,
        )
        round_said.say(
            f"Round {tip.round + 1}, epoch {tip.epoch}, attempt {entry.attempts or 1}; "
            f"{len(tip.taking_part)} members, {len(tip.electorate)} of them vote. "
            if entry else "No round is under way."
        )  # fmt: skip
        left.put("data-until", f"{until:.1f}")
        places = _places(view, moment.dots)
        for phase, (button, through, dots) in boxes.items():
            reached = sum(dot.reached for dot in moment.dots[phase])
            through.say(f"{reached} of {len(moment.dots[phase])} through")
            here = [peer for peer, place in places.items() if place == phase]
            dots.say("".join("●" if heard(view, peer, moment.now) else "○" for peer in here))
            button.put("aria-expanded", "true" if chosen[:1] == [phase] else "false")
        missing.set_visibility(bool(chosen))
        if chosen:
            absent = [dot.peer for dot in moment.dots[chosen[0]] if not dot.reached]
            missing.show((chosen[0], tuple(absent[:100]), int(moment.now) // 5), lambda: [
                (partial(peer_link, view, peer),
                 doing_of(view.members[peer]) if peer in view.members else "nothing was heard of it",
                 partial(when, view.members[peer].doing.since if peer in view.members else 0.0))
                for peer in absent[:100]
            ])  # fmt: skip

    site.follow(refresh)


def _choose(chosen: list[str], phase: str, refresh: Callable[[], None]) -> None:
    chosen[:] = [] if chosen[:1] == [phase] else [phase]
    refresh()


def _places(view: View, dots: dict[str, tuple[Dot, ...]]) -> dict[str, str]:
    """In which phase each member is: the first that it is not through."""
    reached = {phase: {dot.peer for dot in dots[phase] if dot.reached} for phase in PHASES}
    found = {}
    for peer in view.tip.taking_part:
        last = max((place for place, phase in enumerate(PHASES) if peer in reached[phase]), default=-1)
        found[peer] = PHASES[min(last + 1, len(PHASES) - 1)]
    return found


def _figures(site: Site) -> None:
    with Element("div").classes("cards"):
        loss, speed = (
            Figure("Training loss", "nats per token"),
            Figure("Speed", "tokens per second, all members"),
        )
        tokens, sent = Figure("Tokens averaged"), Figure("Sent per round and member")
        spans, members = Figure("Last round took"), Figure("Members heard")

    def refresh(moment: Moment) -> None:
        view = moment.view
        rounds = sorted(view.rounds.values(), key=lambda each: each.round)
        decided = [each for each in rounds if each.decided_at]
        with_loss = [each for each in decided if each.losses]
        if with_loss:
            last = with_loss[-1]
            loss.show(words.number(loss_of(last)), last.decided_at, f"nats per token, round {last.round}")
        if decided:
            last = decided[-1]
            spans.show(words.seconds(last.decided_at - last.began_at) if last.began_at else "—", last.decided_at,
                       f"round {last.round}, attempt {last.attempts}")  # fmt: skip
            speed.show(words.count(sum(last.speeds.values()) or None), last.decided_at)
        counted = [each for each in decided if each.sent]
        if counted:
            last = counted[-1]
            mean = sum(last.sent.values()) / len(last.sent)
            factor = (
                f"{view.run.parameters / mean:.1f} × less than the model at fp32"
                if mean and view.run.parameters
                else ""
            )
            sent.show(words.size(mean), last.decided_at, factor)
        tokens.show(words.count(view.totals.tokens), view.totals.as_of, f"in {view.totals.rounds:,} rounds")
        part = view.tip.taking_part
        present = sum(heard(view, peer, moment.now) for peer in part)
        newest = max((each.heard_at for each in view.members.values()), default=0.0)
        members.show(f"{present} of {len(part)}", newest, "in the last 20 s")

    site.follow(refresh)


def _agreement(site: Site) -> None:
    with section("Agreement on the model"):
        sign = Levelled("p", "", "sign")
        with Element("dl").classes("facts"):
            Text("dt", "Digest")
            digest = Text("dd", "—", "mono")
            Text("dt", "Agree")
            agree = Text("dd")
            Text("dt", "First divergent round")
            first = Text("dd")
            Text("dt", "Dissenters")
            with Element("dd"):
                dissenters = Rows(("Member", "It says"), "none", "Dissenters")
        age = Age()

    def refresh(moment: Moment) -> None:
        held, view = moment.view.agreement, moment.view
        good = not held.dissenters
        sign.level("good" if good else "bad")
        sign.say(
            f"✔ All agree after round {held.round}."
            if good
            else f"✖ {len(held.dissenters)} hold another state."
        )
        digest.say(held.digest or "—")
        certified = ", certified by a quorum" if held.certified else ", not certified yet"
        agree.say(f"{held.agree} of {held.said} that said what they hold{certified}")
        first.say(str(held.first_divergent) if held.first_divergent >= 0 else "none so far")
        dissenters.show(held.dissenters, lambda: [
            (partial(peer_link, view, peer),
             words.short(words.safe(view.members[peer].state[1])) if peer in view.members else "—")
            for peer in held.dissenters[:50]
        ])  # fmt: skip
        age.at(held.as_of)

    site.follow(refresh)


def _alerts(site: Site) -> None:
    with section("What a person should look at"):
        table = Rows(("", "What", "Since"), "Nothing now.", "Alerts")
        link("The operator's actions", "/operator")

    def refresh(moment: Moment) -> None:
        found = moment.alerts
        table.show(tuple((each.name, each.about, each.level) for each in found), lambda: [
            ("✖ critical" if each.level == "critical" else "▲ warning", words.safe(each.sentence, 300),
             partial(when, each.since)) for each in found[:50]
        ])  # fmt: skip

    site.follow(refresh)
