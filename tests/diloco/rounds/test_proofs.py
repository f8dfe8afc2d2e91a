"""What a delegate's reset may do to a chain, and what only one of the root key may."""

from dataclasses import replace

import pytest

from diloco.member.admission import seats
from diloco.member.setting import rules_of
from diloco.rounds import founding
from diloco.rounds.certificate import Certified
from diloco.rounds.proofs import Adoption, Proofs
from diloco.rounds.records import Reset, Start
from diloco.rounds.values import Decided, Value, value_digest
from protocol.delegation import Delegation
from protocol.envelope import seal
from protocol.errors import Code, NodeError
from protocol.identity import Identity
from protocol.messages import encode
from tests.diloco.member.fleet import OPERATOR, tiny_genesis

GENESIS = tiny_genesis(rounds=6)
RUN = GENESIS.run_id
RULES = rules_of(GENESIS, seats(RUN, GENESIS.operator))
PROOFS = Proofs(RUN, GENESIS.operator, GENESIS.base)
DELEGATE = Identity.ephemeral(b"d" * 32)
DELEGATION = seal(
    OPERATOR, RUN, Delegation(delegate=DELEGATE.peer_id, scopes=("reset",), number=1, expires_at=1 << 40)
).raw
PEERS = {OPERATOR.peer_id: True}


def start() -> Certified:
    data = encode(founding.make_start(RULES, GENESIS.base, PEERS, {}, b"s" * 32))
    return PROOFS.start(seal(OPERATOR, RUN, Start(value=data)).raw)


def after(last: Certified, mark: bytes = b"r", epoch: int = 0) -> Value:
    return founding.make_reset(RULES, last.value, last.digest, GENESIS.base, PEERS, mark * 32, epoch=epoch)


def signed(value: Value, root: bool = False) -> bytes:
    if root:
        return seal(OPERATOR, RUN, Reset(value=encode(value))).raw
    return seal(DELEGATE, RUN, Reset(value=encode(value), delegation=DELEGATION)).raw


def read(tip: Certified, raw: bytes) -> Certified:
    return PROOFS.reset(tip, raw, lambda number: [start()])


def test_a_delegate_ends_one_epoch_after_another() -> None:
    first = read(start(), signed(after(start())))
    second = read(first, signed(after(first)))
    assert (second.value.epoch, second.digest) == (2, value_digest(second.data))
    assert not PROOFS.by_root(second) and PROOFS.by_root(read(first, signed(after(first), root=True)))


def test_only_the_root_key_goes_back_behind_the_beginning_of_an_epoch() -> None:
    first = read(start(), signed(after(start()), root=True))
    behind, far = after(start(), b"o", epoch=1), after(first, epoch=2)
    for value in (behind, far, replace(behind, origin=first.digest)):
        with pytest.raises(NodeError, match="only the root key") as caught:
            read(first, signed(value))
        assert caught.value.code == Code.RND_CHAIN
        assert read(first, signed(value, root=True)).value == value


def test_a_delegate_names_the_beginning_of_the_epoch_that_it_ends() -> None:
    first = read(start(), signed(after(start())))
    with pytest.raises(NodeError, match="only the root key"):
        read(first, signed(replace(after(first), origin=start().digest)))


def test_the_other_side_of_two_resets_is_followed_once_the_root_key_went_on_there() -> None:
    mine = read(start(), signed(after(start(), b"m")))
    theirs = read(start(), signed(after(start(), b"t")))
    delegates = read(theirs, signed(after(theirs)))
    roots = read(delegates, signed(after(delegates), root=True))

    def adopt(*links: Certified) -> Adoption:
        adoption = Adoption(PROOFS, start(), mine.value.epoch, lambda number: [start()])
        for link in links:
            adoption.take(Decided(value=link.data, start=link.start))
        return adoption

    assert not adopt(theirs, delegates).whole, "a delegate does not decide between two resets"
    whole = adopt(theirs, delegates, roots)
    assert whole.whole and whole.found == [theirs, delegates, roots]


def test_a_reset_may_follow_a_reset_after_which_others_have_decided_more() -> None:
    first = read(start(), signed(after(start())))
    value = replace(after(first), epoch=1, round=0, begins=False, origin=first.digest, previous=first.digest)
    data = encode(value)
    decided = Certified(value, data, value_digest(data))
    second = PROOFS.reset(decided, signed(after(first)), lambda number: [start(), first])
    assert second.value.previous == first.digest
