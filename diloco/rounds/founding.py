"""Values that the operator signs instead of a quorum: the start record, and the reset that begins a new epoch."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from diloco.rounds.electorate import draw_order
from diloco.rounds.leases import Ledger, assign, assign_timed, settle, sizes_after
from diloco.rounds.rules import Rules
from diloco.rounds.values import START_ROUND, Boot, Elector, Value


def make_start(
    rules: Rules, base: bytes, peers: Mapping[str, bool], boots: Mapping[str, bytes], beacon: bytes
) -> Value:
    """The value of the start record: the first electorate, its leases, its tie-breaker.

    Args:
        rules: The run's rules.
        base: State digest of round 0.
        peers: The members that announced themselves; True where the admission has a seat.
        boots: Their boot nonces; a voter that starts anew before its first promise waits for the next value (rule 9).
        beacon: 32 random bytes.
    """
    voters = sorted(peer for peer, seated in peers.items() if seated)[: rules.max_voters]
    books = _leased(rules, Ledger((), (), 0), sorted(peers))
    return Value(
        epoch=0,
        round=START_ROUND,
        previous=bytes.fromhex(rules.run),
        base=base,
        leases=books.leases,
        cursor=books.cursor,
        electorate=tuple(Elector(peer=peer) for peer in voters),
        members=tuple(sorted(set(peers) - set(voters))),
        tie_breaker=draw_order("tie-breaker", beacon, voters)[0] if voters else "",
        boots=tuple(Boot(peer=peer, nonce=boots[peer]) for peer in voters if peer in boots),
        beacon=beacon,
        begins=True,
    )


def make_reset(
    rules: Rules,
    tip: Value,
    tip_digest: bytes,
    base: bytes,
    peers: Mapping[str, bool],
    beacon: bytes,
    boots: Mapping[str, bytes] = MappingProxyType({}),
    epoch: int = 0,
) -> Value:
    """The value of a reset: the chain goes on after ``tip`` in the next epoch, with another electorate (rule 15).

    Args:
        rules: The run's rules.
        tip: The last value that stands.
        tip_digest: Its digest.
        base: State digest after it.
        peers: Who asked; True where it has a seat.
        beacon: 32 random bytes.
        boots: Boot nonces of voters that lost their vote record, and may vote again from here on.
        epoch: The epoch that ends, where it is a later one than that of ``tip``.
    """
    voters = sorted(peer for peer, seated in peers.items() if seated)[: rules.max_voters]
    members = set(peers) - set(voters)
    stays = {*voters, *members}
    books = _leased(rules, settle(Ledger(tip.leases, tip.returned, tip.cursor), {}, stays), sorted(stays))
    return Value(
        epoch=max(tip.epoch, epoch) + 1,
        round=tip.round,
        previous=tip_digest,
        base=base,
        leases=books.leases,
        cursor=books.cursor,
        returned=books.returned,
        electorate=tuple(Elector(peer=peer) for peer in voters),
        members=tuple(sorted(members)),
        tie_breaker=draw_order("tie-breaker", beacon, voters)[0] if voters else "",
        beacon=beacon,
        boots=tuple(Boot(peer=peer, nonce=boots[peer]) for peer in voters if peer in boots),
        order_number=tip.order_number,
        banned=tip.banned,
        paused=tip.paused,
        parameters=tip.parameters,
        seated=tip.seated,
        unseated=tip.unseated,
        revoked=tip.revoked,
        origin=tip_digest if tip.begins else tip.origin,
        begins=True,
    )


def _leased(rules: Rules, books: Ledger, members: Sequence[str]) -> Ledger:
    if not rules.timed:
        return assign(books, members, rules.samples)
    sizes = sizes_after(books.leases, {}, members, most=rules.samples, step=rules.samples_per_step)
    return assign_timed(books, sizes)
