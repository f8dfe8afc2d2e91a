"""Page 14: one peer: what it does, what comes next, what became of what it sent, its credits."""

import asyncio
from functools import partial

from nicegui import ui
from nicegui.element import Element

from node.coordinator.database import StoreError
from node.coordinator.pages import words
from node.coordinator.pages.acting import DAYS, ROUND, Offer, button
from node.coordinator.pages.components import (
    VALUE,
    Age,
    Cell,
    Figure,
    Rows,
    Text,
    doing_of,
    link,
    peer_link,
    section,
    when,
)
from node.coordinator.pages.site import Moment, Site
from node.coordinator.view import Member, Round, View

_OFFERS = (
    Offer("admit", "Admit", "Lets it in by an invitation that only it can use."),
    Offer("seat", "Give a vote", "Gives it a vote from the next round that names the order.", (ROUND,)),
    Offer("unseat", "Take the vote", "Takes its vote; it goes on to contribute.", (ROUND,)),
    Offer("kick", "Kick", "Ends its part in the run; it may come back.", (ROUND,)),
    Offer("ban", "Ban", "Ends its part in the run until the ban ends or is lifted.", (DAYS, ROUND)),
    Offer("unban", "Lift the ban", "Lets it in again."),
)


def add(site: Site) -> None:
    """Add the pages."""

    @ui.page("/peers")
    def find() -> None:
        with site.page("My node", "/peers"), section("Find a node"):
            Text(
                "p",
                "A node's peer id is in the first lines that it prints, and in `intellect-node status`.",
                "soft",
            )
            with Element("div").classes("bar"):
                wanted = Text("input", "", "field").props(
                    'type=search placeholder="Peer id or name" aria-label="Peer id or name" size=30'
                )
            table = Rows(("Node", "Standing", "Does"), "No node is called so.", "Nodes found")

            def search(text: str) -> None:
                view = site.service.view
                found = matching(view, text)
                table.show(text, lambda: [
                    (partial(peer_link, view, each.peer), each.standing, doing_of(each)) for each in found
                ])  # fmt: skip

            wanted.on("input", lambda event: search(str(event.args)[:80]), throttle=0.3, js_handler=VALUE)

    @ui.page("/peers/{peer}")
    async def one(peer: str) -> None:
        with site.page("Node", "/peers"):
            if len(peer) > 64 or not peer.isalnum() or not peer.isascii():
                Text("p", "This is no peer id.", "card")
                return
            await _one(site, peer)


def matching(view: View, text: str, most: int = 20) -> list[Member]:
    """Peers whose name or id holds a text, at most ``most``."""
    wanted = text.strip().lower()
    if not wanted:
        return []
    held = (
        each
        for each in view.members.values()
        if wanted in each.peer.lower() or wanted in each.who.name.lower()
    )
    return [each for each, _ in zip(held, range(most), strict=False)]


async def _one(site: Site, peer: str) -> None:
    with section("State"):
        name = Text("p", "", "value peer")
        Text("p", peer, "mono")
        doing, next_ = Text("p"), Text("p", "", "soft")
        age = Age()
    with Element("div").classes("cards"):
        standing, credits = Figure("Standing"), Figure("Credits", "tokens, certified")
        accepted, late = Figure("Rounds accepted"), Figure("Rounds late")
        speed, rtt = Figure("Speed", "tokens per second"), Figure("Round trip")
    with section("Last rounds"):
        verdicts = Rows(
            ("Round", "Outcome", "Why", "Tokens", "Decided"), "It took part in no round yet.", "Last rounds"
        )
    with section("Refused, and evidence"):
        refused = Rows(("What", "Why", "Round", "Said by", "When"), "Nothing of it was refused.", "Refusals")
    with section("Verdicts on its rollouts"):
        rollouts = Rows(("Outcome", "Why", "Rollouts", "Reward", "When"), "None.", "Rollouts")
    with section("Credits"):
        ledger = Rows(("Round", "Verified", "Claimed", "Total"), "None yet.", "Credits")
        Text("a", "Save as CSV").put("href", f"/api/v1/credits/export.csv?peer={peer}").put("download", "")
    if site.actions is not None:
        with section("For the operator"), Element("div").classes("bar"):
            for offer in _OFFERS:
                button(site, offer, peer)
    last: list[Member] = []

    def refresh(moment: Moment) -> None:
        view = moment.view
        member = view.members.get(peer)
        if member is None:
            name.say("Nothing was heard of this node.")
            next_.say("A node that joins appears here within some seconds of its start.")
            return
        next_.say(expected(view, member, moment.now))
        if last and last[0] is member:
            return
        last[:] = [member]
        name.say(words.safe(member.who.name) or "A node without a name")
        doing.say(doing_of(member))
        age.at(member.heard_at)
        _figures(member, standing, credits, accepted, late, speed, rtt)
        mine = [each for each in _rounds(view) if peer in each.expected or peer in each.marks]
        verdicts.show(
            tuple((each.round, each.outcome) for each in mine),
            lambda: [_verdict(each, peer) for each in mine],
        )
        of_it = [each for each in (*view.evidence, *view.refusals) if each.peer == peer][-30:][::-1]
        refused.show(tuple((each.at, each.by) for each in of_it), lambda: [
            (words.safe(each.what), words.safe(f"{each.reason} {each.code}", 200),
             str(each.round) if each.round >= 0 else "—",
             "the chain" if each.by == "chain" else partial(peer_link, view, each.by), partial(when, each.at))
            for each in of_it
        ])  # fmt: skip
        judged = [each for each in view.verdicts if each.worker == peer][-30:][::-1]
        rollouts.show(tuple(each.at for each in judged), lambda: [
            (each.outcome, words.safe(f"{each.sentence} {each.code}", 200), str(each.rollouts),
             words.number(each.reward), partial(when, each.at)) for each in judged
        ])  # fmt: skip

    site.follow(refresh)
    try:
        page = await asyncio.to_thread(site.service.store.credits, 500, peer=peer)
    except StoreError as error:
        Text("p", str(error), "card").props("role=alert")
        return
    newest = page[-20:][::-1]
    ledger.show(len(page), lambda: [
        (partial(link, f"Round {each.round}", f"/rounds/{each.round}"), words.count(each.verified),
         words.count(each.claimed), words.count(each.total)) for each in newest
    ])  # fmt: skip


def _figures(
    member: Member,
    standing: Figure,
    credits: Figure,
    accepted: Figure,
    late: Figure,
    speed: Figure,
    rtt: Figure,
) -> None:
    tally, held = member.tally, member.figures
    standing.show(member.standing, member.heard_at, "with a vote" if member.who.seat else "without a vote")
    credits.show(
        words.count(tally.verified), tally.last_at, f"of {words.count(tally.claimed)} claimed tokens"
    )
    accepted.show(str(tally.accepted), tally.last_at, f"the last is round {tally.last_round}")
    late.show(str(tally.late), tally.last_at, f"{tally.refused} refusals, {tally.strikes} strikes")
    speed.show(words.count(held.speed.value if held.speed else None), held.speed.as_of if held.speed else 0.0)
    rtt.show(words.seconds(held.rtt.value if held.rtt else None), held.rtt.as_of if held.rtt else 0.0,
             words.safe(held.path) or "from the coordinator")  # fmt: skip


def _rounds(view: View) -> list[Round]:
    return sorted((each for each in view.rounds.values() if each.decided_at), key=lambda each: -each.round)[
        :20
    ]


def _verdict(entry: Round, peer: str) -> tuple[Cell, ...]:
    mine = next((each for each in entry.roster if each.peer == peer), None)
    why = "its tokens are in the mean"
    if mine is None:
        marks = entry.marks.get(peer, {})
        why = "it was ready, but not in the value" if "ready" in marks else "it was not ready in time"
    elif mine.clip < 1:
        why = f"clipped to {mine.clip:.2f} of its size"
    elif mine.included < 1:
        why = f"{words.share(mine.included, 1)} of the chunks hold it"
    return (
        partial(link, f"Round {entry.round}", f"/rounds/{entry.round}"), "✔ accepted" if mine else "✖ not in", why,
        words.count(mine.tokens) if mine else "—", partial(when, entry.decided_at),
    )  # fmt: skip


def expected(view: View, member: Member, now: float) -> str:
    """What happens to a node next, in a sentence."""
    doing = member.doing
    if member.standing == "banned":
        return "The operator banned it; the audit log says why."
    if member.standing in ("outside", "newcomer"):
        return "Next: it downloads the state, and takes part from the round whose value names it."
    if now - member.heard_at > 60:
        return "Nothing was heard of it for over a minute: look at its log."
    if doing.until is not None and doing.until > now:
        return f"Next: the phase ends in at most {words.seconds(doing.until - now)}."
    return f"Next: the value of round {view.tip.round + 1}."
