"""The orchestrator's rules, one at a time."""

from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest
from blake3 import blake3

from diloco.rounds.leases import samples_of
from diloco.rounds.values import Lease, Value
from rl.orchestration.books import lease_of, plan
from rl.orchestration.events import (
    Abandoned,
    Appealed,
    Asked,
    AskVerdict,
    Ban,
    Broken,
    Certified,
    Delete,
    Dispute,
    Distrust,
    Effect,
    Event,
    Found,
    Give,
    Gone,
    Judged,
    Lift,
    Planted,
    Published,
    Receipt,
    Report,
    Tell,
    Tick,
    Uploaded,
    Validators,
)
from rl.orchestration.feeding import Batch, next_batch
from rl.orchestration.leasing import may_send
from rl.orchestration.machine import advance, rebuild
from rl.orchestration.moving import holding, moved
from rl.orchestration.rows import File, GroupFacts, Kept, Opinion, Work
from rl.orchestration.rules import Rules
from rl.orchestration.waiting import nothing_in, waiting_for
from rl.work.standing import Standing
from rl.work.window import in_window
from tests.rl.orchestration.world import first_value, next_value

T = TypeVar("T")
ME = "trainer-0"
RULES = Rules(rounds=0, lease_size=4, window=2, group_size=2, groups_per_work=2, trusted_after=100)


class Bench:
    """One orchestrator, and what it asked for last."""

    def __init__(
        self, rules: Rules = RULES, trainers: tuple[str, ...] = (ME,), published: int | None = 0
    ) -> None:
        self.now = 100.0
        self.made = 0
        self.value = first_value(trainers)
        self.state = rebuild(ME, rules, self.value, Kept(), self.now)[0]
        self.effects: tuple[Effect, ...] = ()
        self.feed(Validators(frozenset({"v1", "v2", "v3"})))
        if published is not None:
            self.feed(Published(published))

    def feed(self, event: Event) -> tuple[Effect, ...]:
        self.state, self.effects = advance(self.state, event, self.now)
        return self.effects

    def of(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def ask(self, worker: str = "w", holding: tuple[int, ...] = (), most: int = 100) -> Work:
        self.feed(Asked(worker, holding, most))
        (give,) = self.of(Give)
        return give.work

    def told(self, worker: str = "w", holding: tuple[int, ...] = ()) -> Tell:
        self.feed(Asked(worker, holding))
        (tell,) = self.of(Tell)
        return tell

    def groups(self, work: Work, rewards: tuple[float, ...] = (0.0, 1.0)) -> tuple[GroupFacts, ...]:
        return tuple(GroupFacts(each, work.version, work.version, rewards, 10) for each in work.positions)

    def send(
        self, work: Work, rewards: tuple[float, ...] = (0.0, 1.0), twice: bool = False, **other: object
    ) -> bytes:
        self.made += 1
        digest = blake3(str(self.made).encode()).digest()
        event = Uploaded(
            work.worker, work.counter, digest, 100, work.version, self.groups(work, rewards), bytes(32), twice
        )
        self.feed(replace(event, **other))  # type: ignore[arg-type]
        return digest

    def verdict(self, digest: bytes, accepted: bool = True, strikes: int = 1, validator: str = "") -> None:
        asked = [name for key, name in self.state.asked if key == digest.hex()]
        code = "" if accepted else "E-RL-070"
        self.feed(Judged(digest, Opinion(validator or asked[0], accepted, code, "Proof 3 differs.", strikes)))

    def make(self, worker: str = "w", rewards: tuple[float, ...] = (0.0, 1.0)) -> bytes:
        """Work, answered and accepted."""
        digest = self.send(self.ask(worker), rewards)
        self.verdict(digest)
        return digest

    def batch(self, done: int = 0, size: int = 4) -> Batch | None:
        lease = lease_of(self.state.value, ME)
        assert lease is not None
        return next_batch(self.state, lease, done, size)

    def round(self, samples: int) -> None:
        """A round is decided in which this trainer trained on so many positions."""
        present = tuple(lease.peer for lease in self.value.leases)
        self.value = next_value(self.value, {ME: samples} if samples else {}, present, ())
        self.feed(Certified(self.value))


# ---- which positions, for which round


def test_a_plan_has_the_lease_and_what_the_next_rounds_will_lease() -> None:
    wanted = plan(first_value((ME,)), ME, ahead=2, lease_size=4, rounds=0)
    assert [(each.position, each.round) for each in wanted] == [(p, p // 4) for p in range(12)]


def test_nothing_is_planned_beyond_the_last_round() -> None:
    assert len(plan(first_value((ME,)), ME, ahead=2, lease_size=4, rounds=2)) == 8


def test_plans_of_two_trainers_share_all_positions_and_are_what_is_leased_later() -> None:
    names = ("a", "b")
    value = first_value(names)
    plans = {name: plan(value, name, ahead=2, lease_size=4, rounds=0) for name in names}
    assert sorted(each.position for some in plans.values() for each in some) == list(range(24))
    for number in (1, 2):
        value = next_value(value, {"a": 4, "b": 4}, names, ())
        for lease in value.leases:
            foreseen = [each.position for each in plans[lease.peer] if each.round == number]
            assert foreseen == list(range(lease.start, lease.start + lease.count))


def test_the_part_of_a_trainer_that_left_is_in_the_plan_of_the_other() -> None:
    value = first_value(("a", "b"))
    after = next_value(value, {"a": 4}, ("a",), ())
    assert {4, 5, 6, 7} <= {each.position for each in plan(after, "a", ahead=1, lease_size=4, rounds=0)}


@pytest.mark.failure_mode(45)
@pytest.mark.parametrize(
    ("oldest", "newest", "fits"),
    [(5, 7, True), (4, 7, False), (7, 7, True), (7, 8, False), (5, 5, True), (4, 4, False), (8, 8, False)],
)
def test_the_window_is_exact_on_both_sides(oldest: int, newest: int, fits: bool) -> None:
    bench = Bench()
    for _ in range(7):
        bench.round(0)
    assert bench.state.counts(0, oldest, newest, bench.state.rounds_of()) is fits
    assert (in_window(oldest, 7, 2) and in_window(newest, 7, 2)) is fits


@pytest.mark.failure_mode(45)
def test_a_group_is_trained_on_in_the_last_round_of_its_window_and_not_in_the_next() -> None:
    bench = Bench()
    for _ in range(2):
        bench.make()
    for number in range(3):  # rounds 0, 1 and 2; the groups are of version 0
        assert bench.batch() is not None, number
        bench.round(0)
    assert bench.state.policy == 3
    assert bench.batch() is None


@pytest.mark.failure_mode(45)
def test_no_work_is_given_whose_answer_could_not_be_trained_on() -> None:
    bench = Bench()
    for _ in range(3):
        bench.round(0)
    tell = bench.told()
    assert tell.waiting.reason == "unpublished"
    assert "needs policy version 1 or newer; version 0 is the newest" in tell.waiting.sentence
    bench.feed(Published(1))
    assert bench.ask().positions == (0, 1)


# ---- leases of work


def test_work_is_given_in_position_order_and_numbered_per_worker() -> None:
    bench = Bench()
    assert [bench.ask("a").positions, bench.ask("b").positions] == [(0, 1), (2, 3)]
    assert bench.ask("a", (0,)).counter == 1


def test_a_lease_that_its_worker_lost_is_given_again() -> None:
    bench = Bench()
    work = bench.ask()
    assert bench.ask() == work


def test_answers_come_in_the_order_of_leases() -> None:
    bench = Bench()
    first, second = bench.ask(), bench.ask(holding=(0,))
    bench.send(second)
    (receipt,) = bench.of(Receipt)
    assert (receipt.taken, receipt.reason) == (False, "order")
    assert bench.of(Delete)
    bench.send(first)
    assert bench.of(Receipt)[0].taken
    bench.send(second)
    assert bench.of(Receipt)[0].taken


def test_the_same_answer_twice_counts_once() -> None:
    bench = Bench()
    work = bench.ask()
    digest = bench.send(work)
    bench.send(work, digest=digest)
    assert bench.of(Receipt)[0].taken and not bench.of(Delete)
    assert bench.state.record("w").recent == "a"


def test_an_abandoned_lease_goes_to_somebody_else_and_is_remembered() -> None:
    bench = Bench()
    work = bench.ask()
    bench.feed(Abandoned("w", work.counter, "no memory"))
    assert bench.ask("other").positions == work.positions
    assert bench.state.record("w").recent == "x"


@pytest.mark.failure_mode(48)
def test_a_worker_that_is_silent_loses_its_lease_and_the_others_go_on() -> None:
    bench = Bench()
    dead = bench.ask("dead")
    assert bench.ask("other").positions == (2, 3)
    bench.now += RULES.work_within.total_seconds()
    bench.feed(Tick())
    assert bench.ask("third").positions == dead.positions


@pytest.mark.failure_mode(48)
def test_a_worker_that_is_known_to_be_gone_loses_its_lease_at_once() -> None:
    bench = Bench()
    dead = bench.ask("dead")
    bench.feed(Gone("dead"))
    assert bench.ask("other").positions == dead.positions


def test_a_late_answer_is_taken_until_somebody_else_has_the_work() -> None:
    bench = Bench()
    late = bench.ask("slow")
    bench.now += RULES.work_within.total_seconds()
    bench.feed(Tick())
    bench.send(late)
    assert bench.of(Receipt)[0].taken
    again = Bench()
    late = again.ask("slow")
    again.now += RULES.work_within.total_seconds()
    again.feed(Tick())
    again.ask("fast")
    again.send(late)
    assert again.of(Receipt)[0].reason == "no-lease"


def test_who_abandons_much_is_suspicious() -> None:
    bench = Bench(replace(RULES, trusted_after=0, tries=100))
    for _ in range(8):
        bench.feed(Abandoned("w", bench.ask().counter))
    assert bench.state.standing(bench.state.record("w")) is Standing.SUSPICIOUS


def test_a_new_identity_has_a_small_quota_and_is_told_so() -> None:
    bench = Bench(replace(RULES, newcomer_positions=3, open_works=9))
    assert len(bench.ask().positions) == 2
    assert len(bench.ask(holding=(0,)).positions) == 1
    tell = bench.told(holding=(0, 1))
    assert tell.waiting.reason == "quota"
    assert "3" in tell.waiting.sentence and tell.waiting.until == bench.now + RULES.ask_again.total_seconds()


def test_new_identities_share_a_quota_once_somebody_is_established() -> None:
    bench = Bench(replace(RULES, trusted_after=2, newcomer_positions=2, newcomer_share=0.1))
    bench.make("old")
    assert bench.ask("new-1").positions
    assert bench.told("new-2").waiting.reason == "quota"
    assert bench.ask("old").positions


def test_a_full_queue_stops_work_ahead_but_not_what_the_running_round_needs() -> None:
    bench = Bench(replace(RULES, most_waiting=2, newcomer_positions=100, open_works=9))
    works = [bench.ask(holding=tuple(range(count))) for count in range(2)]
    assert [work.positions for work in works] == [(0, 1), (2, 3)]
    tell = bench.told(holding=(0, 1))
    assert tell.waiting.reason == "queue-full"
    assert tell.waiting.sentence.startswith(
        "4 groups are in work or wait to be trained on, and at most 2 may"
    )


def test_a_crowd_of_identities_is_bounded_and_does_not_push_out_who_works() -> None:
    bench = Bench(replace(RULES, most_workers=3))
    bench.ask("busy")
    for number in range(20):
        bench.feed(Asked(f"crowd-{number}"))
    assert len(bench.state.kept.workers) == 3
    assert "busy" in bench.state.kept.workers


def test_an_upload_is_refused_before_its_bytes_come() -> None:
    bench = Bench()
    work = bench.ask()
    most = 2 * RULES.bytes_per_group
    assert may_send(bench.state, "w", work.counter, most) is None
    too_much = may_send(bench.state, "w", work.counter, most + 1)
    assert too_much is not None and too_much.reason == "size" and str(most) in too_much.sentence
    nothing = may_send(bench.state, "w", 7, 100)
    assert nothing is not None and nothing.reason == "no-lease"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "version 0; the file says 3"),
        ({"groups": ()}, "positions [0, 1]; the file has []"),
        ({"groups": tuple(GroupFacts(p, 0, 0, (1.0,), 5) for p in (0, 1))}, "1 rollouts; a group has 2"),
        ({"groups": tuple(GroupFacts(p, 0, 0, (1.0, float("nan")), 5) for p in (0, 1))}, "not finite"),
        ({"groups": tuple(GroupFacts(p, 0, 1, (1.0, 0.0), 5) for p in (0, 1))}, "versions 0 to 1"),
        ({"groups": tuple(GroupFacts(p, -1, 0, (1.0, 0.0), 5) for p in (0, 1))}, "versions -1 to 0"),
    ],
)
def test_a_file_that_is_not_what_was_leased_is_refused_and_the_work_goes_on(
    change: dict[str, object], words: str
) -> None:
    bench = Bench()
    work = bench.ask()
    bench.send(work, **change)
    (receipt,) = bench.of(Receipt)
    assert not receipt.taken and words in receipt.sentence
    assert bench.state.record("w").strikes == 1
    assert bench.ask("other").positions == work.positions


def test_a_broken_file_costs_a_strike_and_its_positions_go_on() -> None:
    bench = Bench()
    work = bench.ask()
    bench.feed(Broken("w", work.counter, "E-RL-001", "The file ends early."))
    assert bench.of(Receipt)[0].sentence == "The file ends early."
    assert bench.ask("other").positions == work.positions


# ---- verdicts


def test_who_judges_a_file_is_drawn_by_its_link_and_drawn_alike_after_a_restart() -> None:
    bench = Bench()
    asked = []
    for number in range(6):
        bench.send(bench.ask(f"w{number}"), link=blake3(bytes([number])).digest())
        asked += [(ask.digest, ask.validator) for ask in bench.of(AskVerdict)]
    assert len({validator for _, validator in asked}) > 1
    again, effects = rebuild(ME, RULES, bench.value, bench.state.kept, 0.0)
    _, effects = advance(again, Validators(bench.state.validators), 0.0)
    assert {(each.digest, each.validator) for each in effects if isinstance(each, AskVerdict)} == set(asked)


@pytest.mark.failure_mode(48)
def test_a_silent_validator_is_followed_by_another_one() -> None:
    bench = Bench()
    digest = bench.send(bench.ask())
    (first,) = bench.of(AskVerdict)
    bench.now += RULES.verdict_within.total_seconds()
    bench.feed(Tick())
    (second,) = bench.of(AskVerdict)
    assert second.digest == digest and second.validator != first.validator
    bench.verdict(digest, validator=first.validator)  # late, and still of use
    assert bench.state.kept.files[digest.hex()].state == "accepted"


def test_without_validators_files_wait_and_are_judged_when_one_comes() -> None:
    bench = Bench()
    bench.feed(Validators(frozenset()))
    digest = bench.send(bench.ask())
    assert not bench.of(AskVerdict)
    bench.feed(Validators(frozenset({"late"})))
    assert [(ask.validator, ask.digest) for ask in bench.of(AskVerdict)] == [("late", digest)]


def test_two_validators_that_disagree_are_decided_by_a_third() -> None:
    bench = Bench()
    digest = bench.send(bench.ask(), twice=True)
    assert len(bench.of(AskVerdict)) == 2
    bench.verdict(digest, True)
    bench.verdict(digest, False)
    (dispute,) = bench.of(Dispute)
    assert len(dispute.accepting) == len(dispute.refusing) == 1
    bench.verdict(digest, True)
    assert bench.state.kept.files[digest.hex()].state == "accepted"
    assert [judge.overruled for judge in bench.state.kept.judges.values()].count(1) == 1
    bench.now += 10 * RULES.appeal_within.total_seconds()
    bench.feed(Tick())
    assert bench.state.kept.files[digest.hex()].state == "accepted"


def test_a_dispute_without_a_third_validator_ends_and_blames_nobody() -> None:
    bench = Bench()
    bench.feed(Validators(frozenset({"v1", "v2"})))
    digest = bench.send(bench.ask(), twice=True)
    bench.verdict(digest, True)
    bench.verdict(digest, False, 9)
    bench.now += RULES.appeal_within.total_seconds()
    bench.feed(Tick())
    (report,) = bench.of(Report)
    assert report.code == "disputed" and "nobody is blamed" in report.sentence
    assert bench.state.record("w").strikes == 0
    assert bench.ask("other").positions == (0, 1)


def test_a_cheater_is_banned_with_evidence_and_told_why_and_nothing_of_it_is_trained_on() -> None:
    bench = Bench()
    good = bench.make("cheat")
    lie = bench.send(bench.ask("cheat"))
    bench.verdict(lie, False, strikes=9)
    (ban,) = bench.of(Ban)
    assert (ban.worker, ban.evidence) == ("cheat", (lie,))
    assert "Proof 3 differs" in ban.sentence
    assert bench.state.kept.files[good.hex()].state == "refused"
    assert bench.told("cheat").waiting.reason == "banned"
    assert bench.ask("honest").positions == (0, 1)


def test_who_cannot_judge_a_file_is_followed_by_another_and_blames_nobody() -> None:
    bench = Bench()
    digest = bench.send(bench.ask())
    (first,) = bench.of(AskVerdict)
    bench.feed(Judged(digest, Opinion(first.validator, False, "E-RL-080", "No memory.", undecided=True)))
    (second,) = bench.of(AskVerdict)
    assert second.validator != first.validator
    bench.verdict(digest)
    assert bench.state.kept.files[digest.hex()].state == "accepted"
    assert [judge.overruled for judge in bench.state.kept.judges.values()] == [0]


def test_a_file_that_nobody_can_judge_is_not_waited_for() -> None:
    bench = Bench()
    digest = bench.send(bench.ask())
    for name in ("v1", "v2", "v3"):
        bench.feed(Judged(digest, Opinion(name, False, "E-RL-080", "No memory.", undecided=True)))
    bench.now += RULES.appeal_within.total_seconds()
    bench.feed(Tick())
    assert bench.of(Report)[0].code == "disputed"
    assert bench.ask("other").positions == (0, 1)


def test_a_doubt_has_the_next_files_of_a_worker_audited_in_full() -> None:
    bench = Bench(replace(RULES, trusted_after=0, doubted=2))
    digest = bench.send(bench.ask())
    assert bench.of(AskVerdict)[0].standing is Standing.ESTABLISHED
    bench.feed(Judged(digest, Opinion(bench.of(AskVerdict)[0].validator, True, doubt=True)))
    standings = []
    for _ in range(2):
        digest = bench.send(bench.ask())
        standings.append(bench.of(AskVerdict)[0].standing)
        bench.verdict(digest)
    assert standings == [Standing.SUSPICIOUS, Standing.ESTABLISHED]


def test_files_are_numbered_as_they_are_acknowledged_and_no_number_is_given_twice() -> None:
    bench = Bench()
    bench.make()
    assert bench.of(Delete) == []
    bench.round(4)
    assert not bench.state.kept.files
    bench.feed(Published(1))
    bench.send(bench.ask(), link=b"2" * 32)
    (ask,) = bench.of(AskVerdict)
    assert (ask.number, ask.link) == (2, b"2" * 32)


def test_an_appeal_goes_to_another_validator_and_can_lift_a_ban() -> None:
    bench = Bench()
    digest = bench.send(bench.ask())
    (ask,) = bench.of(AskVerdict)
    bench.verdict(digest, False, strikes=9)
    bench.feed(Appealed("w", digest))
    (other,) = bench.of(AskVerdict)
    assert other.validator != ask.validator
    bench.verdict(digest, True)
    bench.verdict(digest, True)
    (lift,) = bench.of(Lift)
    record = bench.state.record("w")
    assert (lift.worker, record.banned, record.strikes, record.refused) == ("w", "", 0, 0)
    assert bench.state.kept.files[digest.hex()].state == "accepted"
    bench.feed(Appealed("w", digest))
    assert not bench.effects


def test_an_appeal_that_fails_changes_nothing_and_there_is_no_second() -> None:
    bench = Bench()
    digest = bench.send(bench.ask())
    bench.verdict(digest, False)
    bench.feed(Appealed("w", digest))
    bench.verdict(digest, False)
    assert (bench.state.record("w").strikes, bench.state.record("w").refused) == (1, 1)
    bench.feed(Appealed("w", digest))
    assert not bench.of(AskVerdict)


def test_who_accepts_what_is_known_to_be_bad_is_not_asked_again_and_its_word_is_checked() -> None:
    bench = Bench()
    bench.feed(Validators(frozenset({"v1"})))
    digest = bench.make()
    planted(bench, "v2")
    waiting = bench.send(bench.ask("u"))
    by = {name for key, name in bench.state.asked if key == waiting.hex()}
    bench.feed(Judged(bytes(32), Opinion("v1", True)))
    assert [effect.validator for effect in bench.of(Distrust)] == ["v1"]
    again = {(ask.validator, ask.digest) for ask in bench.of(AskVerdict)}
    assert again == {("v2", digest), *((("v2", waiting),) if by == {"v1"} else ())}
    assert bench.state.kept.files[digest.hex()].state == "waiting"
    bench.feed(Judged(digest, Opinion("v1", True)))
    bench.feed(Judged(waiting, Opinion("v1", True)))
    assert {bench.state.kept.files[each.hex()].state for each in (digest, waiting)} == {"waiting"}


def planted(bench: Bench, knows: str) -> bytes:
    """A bad file, made from one that this validator has been given."""
    bench.feed(Validators(frozenset({knows})))
    origin = bench.send(bench.ask("o"))
    bench.feed(Validators(frozenset({"v1", "v2"})))
    bench.feed(Planted(File(bytes(32), "o", 0, 0, 10, ()), origin, b"l" * 32))
    return origin


def test_what_is_planted_goes_to_a_validator_that_does_not_know_what_it_was_made_from() -> None:
    for knows, other in (("v1", "v2"), ("v2", "v1")):
        bench = Bench()
        origin = planted(bench, knows)
        assert [(ask.validator, ask.digest) for ask in bench.of(AskVerdict)] == [(other, bytes(32))]
        bench.feed(Validators(frozenset({knows})))
        assert bytes(32).hex() not in {key for key, _ in bench.state.asked}
        bench.feed(Planted(File(b"2" * 32, "o", 0, 0, 10, ()), origin, b"l" * 32))
        assert bench.of(Delete) == [Delete((b"2" * 32,))], "where everybody knows, nothing is planted"


def test_who_refuses_what_is_planted_was_right_and_who_cannot_judge_it_was_not_wrong() -> None:
    for opinion, judged in ((Opinion("v2", False), 1), (Opinion("v2", False, undecided=True), 0)):
        bench = Bench()
        planted(bench, "v1")
        bench.feed(Judged(bytes(32), opinion))
        assert bench.of(Delete) == [Delete((bytes(32),))] and not bench.of(Distrust)
        assert not bench.of(Report), "its worker has not made it"
        assert sum(judge.judged for judge in bench.state.kept.judges.values()) == judged
        assert bench.state.record("o").strikes == bench.state.record("o").refused == 0


def test_what_is_planted_and_judged_by_nobody_goes_after_a_while_also_over_a_restart() -> None:
    bench = Bench()
    planted(bench, "v1")
    bench.state = rebuild(ME, RULES, bench.value, bench.state.kept, bench.now)[0]
    bench.now += RULES.appeal_within.total_seconds()
    bench.feed(Tick())
    assert Delete((bytes(32),)) in bench.effects and bytes(32).hex() not in bench.state.kept.files


# ---- batches


def test_a_step_has_its_groups_in_position_order_and_waits_for_what_is_pending() -> None:
    bench = Bench()
    first, second = bench.ask("a"), bench.ask("b")
    later = bench.send(second)
    bench.verdict(later)
    assert bench.batch() is None
    sooner = bench.send(first)
    bench.verdict(sooner)
    batch = bench.batch()
    assert batch is not None
    assert batch.groups == ((sooner, 0), (sooner, 1), (later, 2), (later, 3))
    assert bench.batch(done=2, size=2) == Batch(((later, 2), (later, 3)), 2)


def test_groups_without_a_range_are_consumed_and_not_trained_on() -> None:
    bench = Bench()
    flat, good = bench.make(rewards=(0.1 + 0.2, 0.3)), bench.make()
    assert bench.batch() == Batch(((good, 2), (good, 3)), 4, {"range": 2})
    assert bench.batch(size=2) == Batch(((good, 2), (good, 3)), 4, {"range": 2})  # there is no empty step
    assert flat.hex() in bench.state.kept.files


@pytest.mark.failure_mode(47)
def test_a_lease_of_which_every_group_is_filtered_makes_no_step_and_says_so() -> None:
    bench = Bench()
    for _ in range(2):
        bench.make(rewards=(1.0, 1.0))
    batch = bench.batch()
    assert batch == Batch((), 4, {"range": 4})
    lease = lease_of(bench.value, ME)
    assert lease is not None and samples_of(lease) == 4
    said = nothing_in(lease, batch, 0)
    assert said.reason == "all-filtered" and "none is worth a step: 4 for equal rewards" in said.sentence


@pytest.mark.failure_mode(47)
def test_after_a_round_of_nothing_the_positions_are_made_again_with_new_tasks() -> None:
    bench = Bench()
    for _ in range(2):
        bench.make(rewards=(1.0, 1.0))
    assert bench.ask("ahead").positions == (4, 5)  # they are not made twice with the same tasks
    bench.round(0)
    bench.feed(Published(1))
    work = bench.ask("w")
    assert (work.positions, work.version) == ((0, 1), 1)


def test_a_position_that_fails_everybody_is_given_up() -> None:
    bench = Bench(replace(RULES, tries=3))
    for number in range(3):
        bench.feed(Abandoned(f"w{number}", bench.ask(f"w{number}", most=1).counter))
    assert bench.ask("next").positions == (1, 2)


def test_files_are_deleted_when_a_value_names_their_positions_and_not_before() -> None:
    bench = Bench()
    first, second = bench.make(), bench.make()
    assert not bench.of(Delete)
    bench.round(2)
    assert [effect.digests for effect in bench.of(Delete)] == [(first,)]
    assert second.hex() in bench.state.kept.files
    assert [each.position for each in bench.state.wanted][:2] == [2, 3]


# ---- another trainer, another life


def test_files_of_another_trainer_are_taken_over_and_judged_again() -> None:
    bench = Bench()
    groups = tuple(GroupFacts(p, 0, 0, (0.0, 1.0), 10) for p in (0, 1))
    file = File(bytes(32), "w", 3, 0, 100, groups, trainer="trainer-9")
    bench.feed(Found(file, b"l" * 32))
    (asked,) = bench.of(AskVerdict)
    assert (asked.digest, asked.number, asked.link) == (bytes(32), 1, b"l" * 32)
    bench.verdict(bytes(32))
    assert bench.ask("w").positions == (2, 3)
    bench.send(bench.state.works_of("w")[0])
    bench.verdict(list(bench.state.kept.files.values())[-1].digest)
    batch = bench.batch()
    assert batch is not None and batch.groups[0] == (bytes(32), 0)
    bench.feed(Found(replace(file, digest=bytes(31) + b"1"), bytes(32)))
    assert bench.of(Delete), "its positions have files"


def test_positions_that_fall_to_a_trainer_are_those_it_did_not_foresee_and_has_no_file_of() -> None:
    bench = Bench(trainers=(ME, "trainer-1"))
    plan = bench.state.wanted
    assert moved((), bench.state) == tuple(each.position for each in plan), "who comes late asks for all"
    assert moved(plan, bench.state) == ()
    bench.value = next_value(bench.value, {ME: 4, "trainer-1": 4}, (ME, "trainer-1"), ())
    bench.feed(Certified(bench.value))
    assert moved(plan, bench.state) == (), "as foreseen; what comes after that nobody had made before"
    plan = bench.state.wanted
    bench.value = next_value(bench.value, {ME: 4}, (ME,), ())  # the other one has left, its lease came back
    bench.feed(Certified(bench.value))
    fallen = moved(plan, bench.state)
    assert fallen and not set(fallen) & {each.position for each in plan}
    bench.make()
    first = next(iter(bench.state.kept.files.values()))
    made = {group.position for group in first.groups}
    assert moved(plan, bench.state) == tuple(each for each in fallen if each not in made)
    assert holding(bench.state, made) == (first.digest,) and holding(bench.state, set(fallen) - made) == ()
    bench.feed(Planted(File(bytes(32), "w", 0, 0, 10, first.groups), first.digest, b"l" * 32))
    assert holding(bench.state, made) == (first.digest,), "what is planted is given to nobody"


def test_a_trainer_that_comes_after_another_goes_on_from_its_rows() -> None:
    bench = Bench()
    digest = bench.make()
    bench.ask("slow")
    again, effects = rebuild(ME, RULES, bench.value, bench.state.kept, 5.0)
    assert again.kept == bench.state.kept and not effects
    assert [digest.hex()] == list(again.kept.files)
    assert again.timers[("work", "slow/0")] == 5.0 + RULES.work_within.total_seconds()


# ---- why a trainer waits


def _why(bench: Bench, value: Value | None = None) -> tuple[str, str]:
    lease = lease_of(value or bench.value, ME)
    assert lease is not None
    said = waiting_for(bench.state, lease, 0, 4, bench.now, bench.now + 30)
    assert said.until == bench.now + 30
    return said.reason, said.sentence


@pytest.mark.failure_mode(48)
def test_a_trainer_says_what_it_waits_for_with_numbers_and_a_bound() -> None:
    bench = Bench(published=None)
    bench.round(0), bench.round(0), bench.round(0)
    assert _why(bench)[0] == "unpublished"
    bench.feed(Published(3))
    reason, sentence = _why(bench)
    assert reason == "no-workers"
    assert sentence == (
        "Round 3: 0 of 4 groups of the next step are there, 4 are for nobody: no worker has asked for 60 s; "
        "waiting at most 30 s more."
    )
    first = bench.ask("a")
    assert _why(bench) == (
        "generating",
        "Round 3: 0 of 4 groups of the next step are there, 2 are with 1 workers, 2 are to be given out, "
        "0 files are being judged; waiting at most 30 s more.",
    )
    second = bench.ask("b")
    digest = bench.send(first)
    bench.verdict(digest)
    bench.send(second)
    assert _why(bench)[0] == "verifying"
    bench.feed(Validators(frozenset()))
    assert _why(bench)[0] == "no-validators"


def test_bounds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="group_size is 0"):
        replace(RULES, group_size=0)
    assert RULES.work_within > timedelta(0)
    assert isinstance(Lease(peer="a", start=0, count=1), Lease)
