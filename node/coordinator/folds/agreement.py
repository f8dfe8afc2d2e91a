"""Whether members hold the same outer state."""

from node.coordinator.folds.making import Next
from node.coordinator.view import Agreement, Round


def certify(following: Next, number: int, base: str, at: float) -> None:
    """A value names the state that its round was trained on: that after the round before."""
    entry = following.view.rounds.get(str(number))
    if entry is not None:
        compare(following, entry, at, certified=base)
    elif following.view.agreement.round < 0:
        following.single("agreement", Agreement(number, base, certified=True, as_of=at))


def compare(following: Next, entry: Round, at: float, certified: str = "") -> None:
    """Compare what members say they hold after a round."""
    old = following.view.agreement
    if entry.round < old.round:
        return
    if not certified and entry.round == old.round and old.certified:
        certified = old.digest
    said = entry.states
    counts: dict[str, int] = {}
    for digest in said.values():
        counts[digest] = counts.get(digest, 0) + 1
    digest = certified or max(counts, key=lambda each: (counts[each], each), default="")
    dissenters = tuple(sorted(peer for peer, held in said.items() if held != digest))
    first = old.first_divergent
    if dissenters and first < 0:
        first = entry.round
    agreement = Agreement(
        entry.round, digest, bool(certified), counts.get(digest, 0), len(said), dissenters, first, at
    )
    following.single("agreement", agreement)
