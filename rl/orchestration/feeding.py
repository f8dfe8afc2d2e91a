"""What the trainer's next inner step trains on: the groups of its lease, in position order, each at most once."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from diloco.rounds.leases import cut, spans_of
from diloco.rounds.values import Lease
from rl.orchestration.books import lease_of, positions_of
from rl.orchestration.rows import File
from rl.orchestration.state import Holder, State, group_of

PENDING = "pending"


@dataclass(frozen=True)
class Batch:
    """The data of one inner step.

    Attributes:
        groups: Digest of the file and position of each group to be trained on, in position order.
        consumed: Positions of the lease that are consumed with it, from where the step before ended.
        empties: Consumed positions with nothing trained, by reason.
    """

    groups: tuple[tuple[bytes, int], ...]
    consumed: int
    empties: Mapping[str, int] = field(default_factory=dict)


def fate(state: State, position: int, held: Mapping[int, Holder]) -> str:
    """What a position comes to: empty for a group to be trained on, ``pending``, or why nothing is trained on."""
    holder = held.get(position)
    if isinstance(holder, File) and holder.state == "accepted":
        return state.rules.difficulty.refuses(group_of(holder, position).rewards)
    return "given-up" if holder is None and state.place(position).given_up else PENDING


def next_batch(state: State, lease: Lease, done: int, size: int) -> Batch | None:
    """The groups for the next inner step of the running round; None while a position before its end is pending.

    A step covers ``size`` positions and trains on those of them that are worth it. Where none is, there is no step: the
    next ``size`` positions are taken as well. Without any group up to the end of the lease the batch has none.

    Args:
        state: The state.
        lease: This trainer's lease.
        done: Positions of it that are trained already.
        size: Positions of a step.
    """
    if lease_of(state.value, state.me) != lease:
        return None
    held = state.holders()
    left = list(positions_of(cut(spans_of(lease), done)[1]))
    groups: list[tuple[bytes, int]] = []
    empties: Counter[str] = Counter()
    for begin in range(0, len(left), size):
        part = left[begin : begin + size]
        for position in part:
            why = fate(state, position, held)
            if why == PENDING:
                return None
            if why:
                empties[why] += 1
            else:
                file = held[position]
                assert isinstance(file, File)
                groups.append((file.digest, position))
        if groups:
            return Batch(tuple(groups), begin + len(part), dict(empties))
    return Batch((), len(left), dict(empties))


def reopen(state: State) -> State:
    """Where the whole lease came to nothing, have its positions made again with the newest policy version.

    A policy version has its own beacon and thus its own tasks. What was made with the newest one stays as it is, so
    this ends.
    """
    now = [each.position for each in state.wanted if each.round == state.policy]
    held = state.holders()
    fates = {position: fate(state, position, held) for position in now}
    if any(why in (PENDING, "") for why in fates.values()):
        return state
    for position in fates:
        place = state.place(position)
        holder = held.get(position)
        made = group_of(holder, position).oldest if isinstance(holder, File) else place.floor
        if made < state.policy:
            state = state.with_row(replace(place, floor=state.policy, given_up=False, tries=0))
    return state
