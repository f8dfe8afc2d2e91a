"""Values as deltas: any two of them, what does not fit, and how a delta grows."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco.rounds.delta import Piece, Script, ValueDelta, apply_delta, encode_delta
from diloco.rounds.planning import make_value
from diloco.rounds.roster import bitmap, make_plan, weigh
from diloco.rounds.rules import Rules, Seat
from diloco.rounds.statements import Ready
from diloco.rounds.values import Elector, ReducedChunk, Value, value_digest
from protocol.errors import NodeError
from protocol.messages import decode, encode
from protocol.testing.strategies import messages
from tests.diloco.rounds.swarm import Swarm

CHUNKS = (256, 256, 256)


def rules() -> Rules:
    return replace(
        Swarm(("anna",)).rules,
        seat_of=lambda raw, peer: Seat(raw == b"seat", peer.encode()) if raw else None,
    )


def there_and_back(tip: Value, value: Value) -> bytes:
    """The delta, once it was seen to lead to the value."""
    delta = encode_delta(rules(), tip, value)
    whole, follows = encode(value), value_digest(encode(tip))
    again = apply_delta(rules(), tip, follows, delta, value_digest(whole))
    assert again == encode(replace(value, previous=follows))
    return delta


def refused(tip: Value, delta: bytes, digest: bytes) -> None:
    with pytest.raises(NodeError):
        apply_delta(rules(), tip, value_digest(encode(tip)), delta, digest)


def peer(number: int) -> str:
    return f"12D3KooW{number:044d}"


class Run:
    """A run of many members in which everyone trains its whole lease, and some are replaced each round."""

    def __init__(self, members: int, seats: int = 31) -> None:
        self.rules = rules()
        self.newest = members
        self.gone: set[str] = set()
        self.beyond = list(range(seats, members))
        self.value = Value(
            epoch=0,
            round=-1,
            previous=b"\0" * 32,
            base=b"\1" * 32,
            electorate=tuple(Elector(peer=peer(n)) for n in range(seats)),
            members=tuple(peer(n) for n in self.beyond),
            tie_breaker=peer(0),
            beacon=b"\2" * 32,
        )
        self.step(0)

    def step(self, replaced: int) -> tuple[Value, Value]:
        """Decide a round; the value before it, and its own."""
        tip, digest = self.value, value_digest(encode(self.value))
        gone = {peer(n) for n in self.beyond[:: max(1, len(self.beyond) // max(1, replaced))][:replaced]}
        self.gone |= gone
        came = [self.newest + n for n in range(replaced)]
        self.beyond = [n for n in self.beyond if peer(n) not in gone] + came
        self.newest += replaced
        leases = {lease.peer: lease.count for lease in tip.leases}
        known = {elector.peer for elector in tip.electorate} | set(tip.members)
        here = (known - self.gone) | {peer(n) for n in came}
        readys = {
            name: Ready(
                epoch=0,
                round=tip.round + 1,
                attempt=0,
                base=b"\1" * 32,
                tokens=leases.get(name, 0) * self.rules.tokens_per_sample,
                samples=leases.get(name, 0),
                commitment=b"\3" * 32,
                norms=(1.0,) * len(CHUNKS),
                admission=b"" if name in known else b"admit",
            )
            for name in sorted(here)
        }
        plan = make_plan(self.rules, tip, readys)
        assert plan is not None
        size = len(plan.roster)
        chunks = [ReducedChunk(digest=bytes([n]) * 32, included=bitmap(range(size), size)) for n in range(3)]
        self.value = make_value(self.rules, tip, digest, plan, 0, chunks if size else [])
        return tip, self.value


@settings(max_examples=60, deadline=None)
@given(messages(Value), messages(Value))
def test_any_two_values_have_a_delta(tip: Value, value: Value) -> None:
    there_and_back(tip, replace(value, previous=value_digest(encode(tip))))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_change_of_a_list_is_in_the_delta(data: st.DataObject) -> None:
    run = Run(9, seats=4)
    tip, value = run.step(1)
    name = data.draw(st.sampled_from(["roster", "leases", "members", "electorate", "chunks", "returned"]))
    items = list(getattr(value, name))
    changed = data.draw(st.permutations(items))[data.draw(st.integers(0, len(items))) :]
    there_and_back(tip, replace(value, **{name: tuple(changed)}))


def test_weights_and_inclusions_that_do_not_follow_are_in_the_delta() -> None:
    tip, value = Run(40, seats=4).step(2)
    entry = value.roster[3]
    roster = (*value.roster[:3], replace(entry, weight=0), *value.roster[4:])
    there_and_back(tip, replace(value, roster=roster))
    lacking = replace(value.chunks[1], included=bitmap(range(3), len(value.roster)))
    empty = replace(value.chunks[2], included=b"")
    there_and_back(tip, replace(value, chunks=(value.chunks[0], lacking, empty)))


def test_a_delta_leads_nowhere_from_another_value_than_its_own() -> None:
    run = Run(12, seats=4)
    first, second = run.step(1)
    _, third = run.step(1)
    delta, digest = encode_delta(rules(), second, third), value_digest(encode(third))
    assert apply_delta(rules(), second, third.previous, delta, digest) == encode(third)
    refused(first, delta, digest)
    refused(third, delta, digest)
    refused(replace(second, members=second.members[1:]), delta, digest)
    refused(second, delta, value_digest(encode(second)))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_wrong_bit_in_a_delta_is_refused(data: st.DataObject) -> None:
    tip, value = Run(12, seats=4).step(1)
    delta, digest = bytearray(encode_delta(rules(), tip, value)), value_digest(encode(value))
    place = data.draw(st.integers(0, 8 * len(delta) - 1))
    delta[place // 8] ^= 1 << place % 8
    try:
        again = apply_delta(rules(), tip, value.previous, bytes(delta), digest)
    except NodeError:
        return
    assert again == encode(value)  # two encodings of one delta; what is believed is the digest


@pytest.mark.parametrize(
    "pieces",
    [
        (Piece(copy=2**40),),
        (Piece(skip=2**63, copy=1),),
        (Piece(insert=7),),
        (Piece(copy=12), Piece(copy=12)),
    ],
)
def test_steps_outside_of_a_list_are_refused(pieces: tuple[Piece, ...]) -> None:
    tip, value = Run(12, seats=4).step(1)
    honest = decode(ValueDelta, encode_delta(rules(), tip, value))
    greedy = replace(honest, scripts=(*honest.scripts, Script(number=11, pieces=pieces)))
    refused(tip, encode(greedy), value_digest(encode(value)))


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 40, encode(ValueDelta(rest=b"")), encode(ValueDelta(rest=b"\1"))]
)
def test_what_is_no_delta_is_refused(data: bytes) -> None:
    tip, value = Run(12, seats=4).step(1)
    refused(tip, data, value_digest(encode(value)))


def test_a_delta_grows_with_what_changed_and_not_with_the_members() -> None:
    sizes = {}
    for members in (100, 1000):
        run = Run(members)
        for _ in range(3):
            run.step(20)
        tip, value = run.step(20)
        sizes[members] = len(there_and_back(tip, value))
        assert len(value.roster) == members - 20 and len(value.leases) == members + 20
    assert sizes[1000] < 1.3 * sizes[100]
    assert sizes[1000] < len(encode(value)) / 20


def test_the_values_of_a_run_with_deaths_have_short_deltas() -> None:
    swarm = Swarm(("anna", "bert", "carl", "dora", "emil"), rounds=5)
    swarm.at(12.0, lambda: swarm.kill("emil"))
    swarm.run(until=300.0)
    chain = swarm.nodes["anna"].disk.chain
    assert len(chain) == 6
    for before, after in pairwise(chain):
        delta = encode_delta(swarm.rules, before.value, after.value)
        whole = apply_delta(swarm.rules, before.value, before.digest, delta, after.digest)
        assert whole == after.data


def test_of_a_roster_only_who_gave_less_than_its_lease_is_told() -> None:
    tip, value = Run(12, seats=4).step(0)
    short = replace(value.roster[5], samples=1, tokens=16)
    roster = (*value.roster[:5], short, *value.roster[6:])
    weights = weigh(rules(), {e.peer: e.tokens for e in roster}, {e.peer for e in tip.electorate})
    other = replace(value, roster=tuple(replace(entry, weight=weights[entry.peer]) for entry in roster))
    assert (
        weights[roster[6].peer] != value.roster[6].weight
    )  # what one did not give changes all other weights
    rest = decode(Value, decode(ValueDelta, there_and_back(tip, other)).rest)
    assert [entry.peer for entry in rest.roster] == [short.peer]
