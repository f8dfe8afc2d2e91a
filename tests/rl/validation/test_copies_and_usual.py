from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from protocol.errors import Code
from protocol.identity import Identity
from protocol.units import Digest
from rl.rollouts.record import Group
from rl.validation.copies import Seen
from rl.validation.usual import Tally
from tests.rl.rollouts.making import groups

ANA, BEN, EVE = (Identity.ephemeral(letter * 32).peer_id for letter in (b"a", b"b", b"e"))
FILE, OTHER = Digest(bytes(32)), Digest(b"o" * 32)


def likely(held: Sequence[Group], nats: float) -> tuple[Group, ...]:
    """The rollouts with log-probabilities that sum to so many nats."""
    return tuple(
        replace(
            group,
            rollouts=tuple(
                replace(
                    each,
                    logprobs=np.where(each.sampled, -nats / each.sampled.sum(), 0).astype(np.float32),
                )
                for each in group.rollouts
            ),
        )
        for group in held
    )


def test_the_same_unlikely_text_from_another_worker_is_a_copy_and_the_same_file_again_is_not() -> None:
    seen, held = Seen(), likely(groups(7), 100)
    assert seen.check(FILE, ANA, held) == []
    seen.add(FILE, ANA, held)
    assert seen.check(FILE, ANA, held) == []
    found = seen.check(OTHER, EVE, held)
    assert {finding.code for finding in found} == {Code.RL_COPY}
    assert ANA in found[0].sentence


def test_a_text_that_many_draw_is_no_copy() -> None:
    seen, held = Seen(), likely(groups(7), 5)
    seen.add(FILE, ANA, held)
    assert seen.check(OTHER, BEN, held) == []


def test_an_unlikely_text_twice_in_one_file_is_a_copy() -> None:
    (group,) = likely(groups(7), 100)
    twice = (replace(group, rollouts=(group.rollouts[0], replace(group.rollouts[0], index=1))),)
    assert [finding.code for finding in Seen().check(FILE, ANA, twice)] == [Code.RL_COPY]


def test_one_proof_of_two_texts_is_a_copy_however_likely_they_are() -> None:
    seen = Seen()
    first, second = likely(groups(7), 1), likely(groups(8), 1)
    seen.add(FILE, ANA, first)
    stolen = replace(
        second[0].rollouts[0], proofs=(second[0].rollouts[0].proofs[0], first[0].rollouts[0].proofs[1])
    )
    held = (replace(second[0], rollouts=(stolen, second[0].rollouts[1])),)
    (finding,) = seen.check(OTHER, EVE, held)
    assert (finding.code, finding.evidence["chunk"]) == (Code.RL_COPY, 1)


def test_a_proof_is_the_same_for_two_texts_that_differ_in_their_last_token_only() -> None:
    seen = Seen()
    (group,) = likely(groups(7, sampled=20), 1)
    first = group.rollouts[0]
    last = first.tokens.copy()
    last[-1] += 1
    seen.add(FILE, ANA, (replace(group, rollouts=(first,)),))
    assert seen.check(OTHER, BEN, (replace(group, rollouts=(replace(first, tokens=last),)),)) == []


def test_memory_is_bounded_and_the_oldest_is_forgotten_first() -> None:
    seen = Seen(most=10)
    for position in range(100):
        seen.add(FILE, ANA, likely(groups(position), 100))
    assert len(seen._texts) <= 10
    assert len(seen._proofs) <= 10
    assert seen.check(OTHER, EVE, likely(groups(0), 100)) == []
    assert seen.check(OTHER, EVE, likely(groups(99), 100)) != []


def tallied(shift: float, *, versions: int = 4, per: int = 16, drift: float = 5.0) -> Tally:
    """Four honest workers and one whose rewards are shifted, while everybody's rewards rise with the version."""
    chance, tally = np.random.default_rng(3), Tally()
    for version in range(versions):
        for worker in (
            ANA,
            BEN,
            Identity.ephemeral(b"c" * 32).peer_id,
            Identity.ephemeral(b"d" * 32).peer_id,
            EVE,
        ):
            for position in range(per):
                reward = chance.normal() + drift * version + (shift if worker == EVE else 0)
                (group,) = groups(position)
                rollouts = tuple(replace(each, reward=reward) for each in group.rollouts)
                tally.add(worker, (replace(group, version=version, rollouts=rollouts),))
    return tally


def test_a_worker_whose_rewards_are_higher_than_everybodys_is_doubted_and_nobody_else_is() -> None:
    tally = tallied(1.5)
    (doubt,) = tally.doubts(EVE)
    assert (doubt.code, "above" in doubt.sentence) == (Code.RL_REWARD, True)
    assert tally.doubts(ANA) == tally.doubts(BEN) == []


def test_honest_workers_are_not_doubted_though_rewards_rise_from_version_to_version() -> None:
    tally = tallied(0.0)
    assert [tally.doubts(worker) for worker in (ANA, BEN, EVE)] == [[], [], []]


def test_a_few_groups_say_nothing() -> None:
    assert tallied(50.0, versions=1, per=7).doubts(EVE) == []


def test_a_tally_is_bounded() -> None:
    tally = tallied(0.0, versions=40, per=1)
    assert len(tally._held) == 32
