"""Page 7: what was refused, by reason, with what shows it."""

from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages import words
from node.coordinator.pages.components import Cell, Rows, Text, link, peer_link, section, when
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import Refusal


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/refusals")
    def refusals() -> None:
        with site.page("Refusals", "/refusals"):
            with section("Evidence: signed by who no honest member is"):
                evidence = Rows(("Who", "What it shows", "Round", "Said by", "When"), "None.", "Evidence")
            with section("Refused, by reason"):
                total = Text("p", "", "soft")
                reasons = Element("div")
            last: list[object] = []

            def refresh(moment: Moment) -> None:
                view = moment.view
                total.say(
                    f"{view.totals.refused:,} in the whole run; the newest {len(view.refusals)} are here."
                )
                evidence.show(view.evidence, lambda: [
                    (partial(peer_link, view, each.peer), words.safe(each.reason or each.what), _round(each),
                     partial(peer_link, view, each.by), partial(when, each.at)) for each in view.evidence[::-1]
                ])  # fmt: skip
                if last and last[0] is view.refusals:
                    return
                last[:] = [view.refusals]
                reasons.clear()
                with reasons:
                    if not view.refusals:
                        Text("p", "None.", "soft")
                    for (what, code, reason), group in grouped(view.refusals).items():
                        with Element("details").classes("evidence"):
                            Text("summary", f"{len(group)} × {words.safe(what)}: {words.safe(reason) or 'no reason'} "
                                 f"{words.safe(code, 20)}")  # fmt: skip
                            table = Rows(
                                ("Whose", "Round", "Refused by", "Trust", "When"), "None.", "Evidence"
                            )
                            table.show(0, partial(_rows, site, group))

            site.follow(refresh)


def grouped(refusals: tuple[Refusal, ...]) -> dict[tuple[str, str, str], list[Refusal]]:
    """Refusals by what, code and reason; the most frequent first."""
    found: dict[tuple[str, str, str], list[Refusal]] = {}
    for each in reversed(refusals):
        found.setdefault((each.what, each.code, each.reason), []).append(each)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _rows(site: Site, group: list[Refusal]) -> list[tuple[Cell, ...]]:
    view = site.service.view
    return [
        (partial(peer_link, view, each.peer), _round(each) if each.round < 0 else
         partial(link, f"Round {each.round}", f"/rounds/{each.round}"),
         "the chain" if each.by == "chain" else partial(peer_link, view, each.by), each.trust, partial(when, each.at))
        for each in group[:100]
    ]  # fmt: skip


def _round(refusal: Refusal) -> str:
    return str(refusal.round) if refusal.round >= 0 else "—"
