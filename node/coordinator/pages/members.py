"""Page 5: everybody in one table that sorts, filters and exports."""

from collections import Counter

from nicegui import ui

from node.coordinator.pages import words
from node.coordinator.pages.components import Text
from node.coordinator.pages.grids import UNITS, Grid, Row, column, peer_column, rounded
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import Member, View

COLUMNS = (
    peer_column(),
    column("short", "Id", 150, text=True),
    column("standing", "Standing", 125, text=True),
    column("doing", "Does", 120, text=True),
    column("version", "Version", 110, text=True),
    column("device", "Device", 110, text=True),
    column("path", "Path", 100, text=True),
    column("rtt", "RTT, ms", 115),
    column("up", "Sends, B/s", 135, shape=UNITS),
    column("down", "Receives, B/s", 160, shape=UNITS),
    column("speed", "Tokens/s", 110, shape=UNITS),
    column("last", "Last round", 120),
    column("accepted", "Accepted", 115),
    column("refused", "Refused", 110),
    column("late", "Late", 90),
    column("credits", "Credits, tokens", 145, shape=UNITS),
    column("strikes", "Strikes", 100),
)
"""The table's columns."""


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/members")
    def members() -> None:
        with site.page("Members", "/members"):
            said = Text("p", "", "soft")
            grid = Grid(COLUMNS, rows_of(site.service.view), "members.csv")

            def refresh(moment: Moment) -> None:
                said.say(f"{len(moment.view.members)} peers. A version with ▲ is not the one that most have.")
                grid.show(rows_of(moment.view))

            site.follow(refresh)


_rows: list[tuple[View, list[Row]]] = []


def rows_of(view: View) -> list[Row]:
    """All peers as rows, made once per view; rounded, so that a row changes only where it looks different."""
    if not _rows or _rows[0][0] is not view:
        versions = Counter(member.who.version for member in view.members.values() if member.who.version)
        usual = versions.most_common(1)[0][0] if versions else ""
        _rows[:] = [(view, [_row(member, usual) for member in view.members.values()])]
    return _rows[0][1]


def _row(member: Member, usual: str) -> Row:
    who, figures, tally = member.who, member.figures, member.tally
    version = words.safe(who.version, 30)
    return {
        "peer": member.peer,
        "name": words.safe(who.name, 40) or words.short(words.safe(member.peer)),
        "short": words.short(words.safe(member.peer)),
        "standing": member.standing,
        "doing": "▲ trouble" if member.doing.trouble else words.safe(member.doing.phase, 30),
        "version": version if not version or who.version == usual else f"▲ {version}",
        "device": words.safe(who.device, 30),
        "path": words.safe(figures.path, 20),
        "rtt": round(figures.rtt.value * 1000) if figures.rtt is not None else None,
        "up": rounded(figures.rate.value) if figures.rate is not None else None,
        "down": None,
        "speed": rounded(figures.speed.value) if figures.speed is not None else None,
        "last": tally.last_round if tally.last_round >= 0 else None,
        "accepted": tally.accepted,
        "refused": tally.refused,
        "late": tally.late,
        "credits": tally.verified,
        "strikes": tally.strikes,
    }
