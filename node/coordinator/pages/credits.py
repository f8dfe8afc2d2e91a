"""Page 11: credits: what certified rounds list, verified against claimed."""

from nicegui import ui
from nicegui.element import Element

from node.coordinator.pages import words
from node.coordinator.pages.components import Figure, Text, section
from node.coordinator.pages.grids import UNITS, Grid, Row, column, peer_column
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import View

_COLUMNS = (
    peer_column(),
    column("verified", "Verified, tokens", 160, shape=UNITS),
    column("claimed", "Claimed, tokens", 160, shape=UNITS),
    column("share", "Verified, % of claimed", 190),
    column("rounds", "Rounds", 110),
    column("last", "Last round", 130),
)


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/credits")
    def credits() -> None:
        with site.page("Credits", "/credits"):
            with Element("div").classes("cards"):
                verified, claimed = (
                    Figure("Verified", "tokens certified as averaged"),
                    Figure("Claimed", "tokens"),
                )
                ratio, rounds = Figure("Verified of claimed"), Figure("Rounds")
            with section("By node"):
                Text("p", "Computed only from certified rounds.", "soft")
                grid = Grid(_COLUMNS, rows_of(site.service.view), "credits.csv")
            with section("The whole ledger, with running totals"), Element("div").classes("bar"):
                for form in ("csv", "parquet"):
                    Text("a", f"Save as {form.upper() if form == 'csv' else 'Parquet'}", "button").put(
                        "href", f"/api/v1/credits/export.{form}"
                    ).put("download", "")

            def refresh(moment: Moment) -> None:
                sums = moment.view.totals
                verified.show(words.count(sums.verified), sums.as_of)
                claimed.show(words.count(sums.claimed), sums.as_of)
                ratio.show(words.share(sums.verified, sums.claimed), sums.as_of)
                rounds.show(f"{sums.rounds:,}", sums.as_of)
                grid.show(rows_of(moment.view))

            site.follow(refresh)


def rows_of(view: View) -> list[Row]:
    """Everybody with credits, the most first."""
    held = [each for each in view.members.values() if each.tally.accepted]
    return [
        {
            "peer": each.peer,
            "name": words.safe(each.who.name, 40) or words.short(words.safe(each.peer)),
            "verified": each.tally.verified,
            "claimed": each.tally.claimed,
            "share": round(100 * each.tally.verified / each.tally.claimed, 1) if each.tally.claimed else None,
            "rounds": each.tally.accepted,
            "last": each.tally.last_round,
        }
        for each in sorted(held, key=lambda each: -each.tally.verified)
    ]
