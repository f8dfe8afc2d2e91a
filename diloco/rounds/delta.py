"""A value as what it adds to what follows from the value before it.

A value lists everybody who contributes, trains and votes, although from one round to the next little of that changes.
Both sides *predict* its lists from the value before: everybody trains the whole lease, everybody stays, leases are
assigned by the run's rules. A delta holds what is not so. Its size grows with what changed, not with the members.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from diloco.rounds.leases import samples_of
from diloco.rounds.orders import with_parameters
from diloco.rounds.planning import books_after
from diloco.rounds.roster import bitmap, weigh
from diloco.rounds.rules import Rules
from diloco.rounds.values import Contributor, Elector, Ghost, ReducedChunk, Value, value_digest
from protocol.errors import Code, NodeError
from protocol.messages import decode, encode, field, message, part, spec_of

_NUMBERS = {f.name: f.number for f in spec_of(Value).fields if f.max_items is not None}
_MOST = 2**64 - 1
_LATER = ("late", "leases", "returned")  # lists that are predicted when the others are known


@part
class Piece:
    """A step through a predicted list: pass some items over, copy the next ones, then insert new ones."""

    skip: int = field(1, default=0)
    copy: int = field(2, default=0)
    insert: int = field(3, default=0)


@part
class Script:
    """How one list of a value is made from the predicted one.

    Attributes:
        number: The list's field number in ``round.value``.
        pieces: The steps; what they do not reach is passed over.
    """

    number: int = field(1)
    pieces: tuple[Piece, ...] = field(2, default=(), max_items=65536)


@message("round.value-delta", version=1, max_bytes="1 MiB", rate="20/s", audience="member")
class ValueDelta:
    """A value that follows another one, as what differs from the prediction.

    Attributes:
        rest: Encoded ``round.value`` without the digest of its predecessor; its lists hold only what is inserted.
        scripts: Lists that differ from the predicted ones.
    """

    rest: bytes = field(1, max_bytes=1048576)
    scripts: tuple[Script, ...] = field(2, default=(), max_items=64)


def encode_delta(rules: Rules, tip: Value, value: Value) -> bytes:
    """What ``value`` adds to ``tip``. Any two values have a delta, if not always a short one.

    Raises:
        NodeError: ``E-WIRE-002`` when it is larger than a message may be.
    """
    told = _told(rules, tip, value)
    lists: dict[str, Any] = {}
    scripts = []
    for predict in (_first, _late, _books):
        for name, predicted in predict(rules, tip, value).items():
            items = getattr(told, name)
            pieces, lists[name] = _differ(predicted, items)
            if items != predicted:
                scripts.append(Script(number=_NUMBERS[name], pieces=pieces))
    rest = encode(replace(told, previous=b"", **lists))
    return encode(ValueDelta(rest=rest, scripts=tuple(scripts)))


def apply_delta(rules: Rules, tip: Value, tip_digest: bytes, data: bytes, digest: bytes) -> bytes:
    """The encoded value that a delta leads to; time and memory are linear in the delta and in ``tip``.

    Args:
        rules: The run's rules.
        tip: The value before.
        tip_digest: Its digest.
        data: An encoded ``round.value-delta``.
        digest: Digest of the value that must come of it.

    Raises:
        NodeError: ``RND_CHAIN`` when another value, or none, comes of it; ``E-WIRE-…`` when it is no delta.
    """
    delta = decode(ValueDelta, data)
    value = replace(decode(Value, delta.rest), previous=tip_digest)
    scripts = {script.number: script.pieces for script in delta.scripts}
    try:
        for predict in (_first, _late, _books):
            lists: dict[str, Any] = {
                name: _follow(predicted, getattr(value, name), scripts.get(_NUMBERS[name]))
                for name, predicted in predict(rules, tip, value).items()
            }
            value = replace(value, **lists)
            if predict is _first:
                value = _untold(rules, tip, value)
        whole = encode(value)
    except (NodeError, ValueError, ArithmeticError) as error:
        raise NodeError(Code.RND_CHAIN, f"A delta leads to no value: {error}.") from error
    if value_digest(whole) != digest:
        raise NodeError(
            Code.RND_CHAIN, f"A delta does not lead to the value of round {value.round} it names."
        )
    return whole


# ---- what is predicted, in this order: each knows what the ones before led to


def _first(rules: Rules, tip: Value, value: Value) -> dict[str, tuple[Any, ...]]:
    """The lists that would follow from ``tip`` alone."""
    lists: dict[str, tuple[Any, ...]] = {name: getattr(tip, name) for name in _NUMBERS if name not in _LATER}
    per_sample = rules.tokens_per_sample
    return lists | {
        "roster": tuple(
            Contributor(peer=lease.peer, weight=0, tokens=min(size * per_sample, _MOST), samples=size)
            for lease, size in ((lease, min(samples_of(lease), _MOST)) for lease in tip.leases)
        ),
        "chunks": (),
        "electorate": tuple(Elector(peer=elector.peer) for elector in tip.electorate),
        "ghosts": tuple(Ghost(peer=ghost.peer, rounds=min(ghost.rounds + 1, _MOST)) for ghost in tip.ghosts),
        "failed_leaders": (),
        "failed_last": tip.failed_leaders,
        "failed_before": tip.failed_last,
        "boots": (),
        "left": (),
        "orders": (),
        "reveals": (),
    }


def _late(rules: Rules, tip: Value, value: Value) -> dict[str, tuple[Any, ...]]:
    """Members that had something to train and did not contribute, for the first time."""
    gave = {entry.peer for entry in value.roster}
    missed = {lease.peer for lease in tip.leases} - gave - set(tip.late) if gave else set()
    return {"late": tuple(peer for peer in tip.members if peer in missed)}


def _books(rules: Rules, tip: Value, value: Value) -> dict[str, tuple[Any, ...]]:
    """The leases, by the run's rules."""
    stay = {elector.peer for elector in value.electorate} | set(value.members)
    away = {elector.peer for elector in value.electorate if elector.absent or value.stopped}
    present = set() if value.finished else stay - away - set(value.late)
    try:
        rules = with_parameters(rules, {each.name: each.value for each in value.parameters})
        books = books_after(rules, tip, value.roster, value.chunks, stay, present)
    except (NodeError, ValueError):  # no honest value: positions are leased twice, or beyond all bounds
        return {"leases": tip.leases, "returned": tip.returned}
    return {"leases": books.leases, "returned": books.returned}


# ---- what is left out of the lists themselves


def _told(rules: Rules, tip: Value, value: Value) -> Value:
    """The value with 0 for each weight that follows from the tokens, and nothing for what the chunk before includes."""
    chunks, before = [], _everyone(value)
    for chunk in value.chunks:
        chunks.append(replace(chunk, included=_exchange(chunk.included, before, b"")))
        before = chunk.included
    return replace(value, roster=_weighed(rules, tip, value.roster), chunks=tuple(chunks))


def _untold(rules: Rules, tip: Value, value: Value) -> Value:
    """The reverse of ``_told``."""
    chunks: list[ReducedChunk] = []
    before = _everyone(value)
    for chunk in value.chunks:
        before = _exchange(chunk.included, before, b"")
        chunks.append(replace(chunk, included=before))
    return replace(value, roster=_weighed(rules, tip, value.roster), chunks=tuple(chunks))


def _everyone(value: Value) -> bytes:
    return bitmap(range(len(value.roster)), len(value.roster))


def _weighed(rules: Rules, tip: Value, roster: Sequence[Contributor]) -> tuple[Contributor, ...]:
    """The roster with 0 for the weight that its tokens lead to, and that weight for 0."""
    seated = {elector.peer for elector in tip.electorate}
    weights = weigh(rules, {entry.peer: entry.tokens for entry in roster if entry.tokens}, seated)
    return tuple(
        replace(entry, weight=_exchange(entry.weight, weights.get(entry.peer, 0), 0)) for entry in roster
    )


def _exchange(item: Any, one: Any, other: Any) -> Any:
    """An item, where ``one`` and ``other`` have changed places."""
    return other if item == one else one if item == other else item


def _differ(predicted: Sequence[Any], items: Sequence[Any]) -> tuple[tuple[Piece, ...], tuple[Any, ...]]:
    """The steps from a predicted list to another one, and the items that they insert."""
    places: dict[Any, deque[int]] = {}
    for place, item in enumerate(predicted):
        places.setdefault(item, deque()).append(place)
    pieces: list[Piece] = []
    inserted: list[Any] = []
    cursor = skip = copy = insert = 0
    for item in items:
        known = places.get(item, deque())
        while known and known[0] < cursor:
            known.popleft()
        if not known:
            inserted.append(item)
            insert += 1
            continue
        if insert or known[0] != cursor:
            pieces.append(Piece(skip=skip, copy=copy, insert=insert))
            skip, copy, insert = known[0] - cursor, 0, 0
        copy += 1
        cursor = known[0] + 1
    pieces.append(Piece(skip=skip, copy=copy, insert=insert))
    return tuple(pieces), tuple(inserted)


def _follow(
    predicted: Sequence[Any], inserted: Sequence[Any], pieces: Sequence[Piece] | None
) -> tuple[Any, ...]:
    """Take the steps; none at all leave the list as predicted."""
    if pieces is None:
        if inserted:
            raise ValueError("items are inserted nowhere")
        return tuple(predicted)
    items: list[Any] = []
    cursor = used = 0
    for piece in pieces:
        cursor += piece.skip
        if cursor + piece.copy > len(predicted) or used + piece.insert > len(inserted):
            raise ValueError("a step leaves the list")
        items += predicted[cursor : cursor + piece.copy]
        items += inserted[used : used + piece.insert]
        cursor += piece.copy
        used += piece.insert
    if used != len(inserted):
        raise ValueError("items are inserted nowhere")
    return tuple(items)
