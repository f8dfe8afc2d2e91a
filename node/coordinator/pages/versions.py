"""Page 9: checkpoints and policy versions, and who holds how much of them."""

from functools import partial

from nicegui import ui

from node.coordinator.pages import words
from node.coordinator.pages.components import Rows, Text, peer_link, section, when
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view_rollouts import Version


def add(site: Site) -> None:
    """Add the page."""

    @ui.page("/versions")
    def versions() -> None:
        with site.page("Checkpoints", "/versions"):
            with section("Checkpoints and policy versions, newest first"):
                table = Rows(
                    ("Kind", "Version", "Size", "Digest", "Whole at", "Published"), "None yet.", "Versions"
                )
            with section("Progress of the newest, per holder"):
                Text("p", "What each node says it has.", "soft")
                progress = Rows(
                    ("Node", "Has"), "Nobody said anything yet.", "Progress of the newest version"
                )

            def refresh(moment: Moment) -> None:
                held = sorted(moment.view.versions.values(), key=lambda each: (-each.at, -each.version))
                table.show(tuple((each.key, len(each.holders), whole(each)) for each in held), lambda: [
                    (words.safe(each.kind), str(each.version), words.size(each.size or None),
                     words.short(words.safe(each.digest)) or "—", f"{whole(each)} of {len(each.holders)} holders",
                     partial(when, each.at)) for each in held
                ])  # fmt: skip
                newest = dict(held[0].holders) if held else {}
                progress.show(newest, lambda: [
                    (partial(peer_link, moment.view, peer), _bar(share)) for peer, share in sorted(newest.items())
                ])  # fmt: skip

            site.follow(refresh)


def whole(version: Version) -> int:
    """How many hold all of it."""
    return sum(share >= 1 for share in version.holders.values())


def _bar(share: float) -> str:
    full = round(20 * max(0.0, min(1.0, share)))
    return f"{'█' * full}{'░' * (20 - full)} {100 * share:.0f} %"
