"""An orchestrator with its rows, files and clock: real files of real workers, read as strangers' files are."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diloco.rounds.waiting import Waiting
from protocol.errors import Code, NodeError
from protocol.units import Digest
from rl.orchestration.audits import Audits
from rl.orchestration.events import Ban, Distrust, Give, Report
from rl.orchestration.rows import Opinion, Work
from rl.rollouts.files import marker_of
from rl.validation.draw import Shares, follows, is_audited
from tests.rl.orchestration.bench import RULES, RUN, Bench
from tests.rl.orchestration.world import next_value
from tests.rl.rollouts.making import ANA, BEN, MAX, TOM, plain


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()


async def test_a_rollout_file_is_taken_judged_and_read_back_as_groups(bench: Bench) -> None:
    work = bench.ask()
    receipt = await bench.answer(work)
    assert receipt.taken
    asked = bench.asked()
    assert asked.number == 1 and follows(asked.link, 1, Audits(b"k" * 32, RUN, Shares()).anchor(1), 0)
    bench.desk.judged(asked.digest, Opinion(asked.validator, True))
    assert any(isinstance(each, Report) and each.accepted for each in bench.told)
    groups = await bench.desk.groups(((asked.digest, 1), (asked.digest, 0)))
    assert groups is not None
    assert [group.position for group in groups] == [1, 0]
    assert not bench.folder.coming(ANA.peer_id, 0).exists()
    assert plain(groups)[0][2] != plain(groups)[0][3]


async def test_after_kill_9_a_desk_knows_what_it_knew_and_asks_again(bench: Bench) -> None:
    await bench.make()
    work = bench.ask()
    await bench.answer(work)
    open_work = bench.ask()
    before = bench.desk.state.kept
    (bench.folder.path(b"\1" * 32)).write_bytes(b"half")
    asked = len(bench.told)
    bench.start()  # nothing of the old life is closed
    assert bench.desk.state.kept == before
    assert not bench.folder.path(b"\1" * 32).exists()
    assert len(bench.told) == asked + 1  # the file that waits for its verdict
    again = bench.desk.ask(ANA.peer_id)
    assert isinstance(again, Give) and again.work == open_work


async def test_a_file_whose_bytes_are_gone_is_made_again(bench: Bench) -> None:
    digest = await bench.make()
    bench.folder.delete([digest])
    assert await bench.desk.groups(((digest, 0),)) is None
    assert bench.of("rollout.lost")[0]["code"] == "E-RL-001"
    assert bench.ask(BEN).positions == (0, 1)
    again = await bench.make()
    bench.folder.delete([again])
    bench.start()
    assert not bench.desk.state.kept.files


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"beacon": b"x" * 32}, "beacon"),
        ({"weights": b"x" * 32}, "weights"),
        ({"counter": 7}, "counter 7; the lease is for 0"),
        ({"environment_version": "2"}, "environment version 2"),
    ],
)
async def test_a_file_of_another_lease_is_refused_with_what_differs(
    bench: Bench, changes: dict[str, object], words: str
) -> None:
    receipt = await bench.answer(bench.ask(), **changes)
    assert (receipt.taken, receipt.reason) == (False, "E-RL-070")
    assert words in receipt.sentence
    assert bench.folder.used == 0
    assert bench.desk.state.record(ANA.peer_id).strikes == 1


async def test_a_truncated_file_is_refused_and_the_others_are_not_touched(bench: Bench) -> None:
    good = await bench.make()
    work = bench.ask()
    path = bench.write(work)
    path.write_bytes(path.read_bytes()[:-50])
    receipt = await bench.desk.receive(ANA.peer_id, work.counter)
    assert (receipt.taken, receipt.reason) == (False, "E-RL-003")
    path = bench.write(bench.ask(BEN), worker=ANA.peer_id)
    assert bench.desk.state.kept.files[good.hex()].state == "accepted"


async def test_one_worker_cannot_answer_for_another(bench: Bench) -> None:
    work = bench.ask(BEN)
    bench.write(replace(work, worker=ANA.peer_id))
    bench.folder.coming(ANA.peer_id, 0).rename(bench.folder.coming(BEN.peer_id, 0))
    marker_of(bench.folder.coming(ANA.peer_id, 0)).rename(marker_of(bench.folder.coming(BEN.peer_id, 0)))
    receipt = await bench.desk.receive(BEN.peer_id, 0)
    assert receipt.reason == "E-RL-070" and "worker" in receipt.sentence


async def test_what_was_never_leased_is_not_let_in(bench: Bench) -> None:
    with pytest.raises(NodeError) as refused:
        bench.desk.begin_upload(ANA.peer_id, 3, 100)
    assert refused.value.code is Code.RL_LEASE
    assert (await bench.desk.receive(ANA.peer_id, 3)).reason == "no-lease"


async def test_an_upload_that_never_came_leaves_its_lease_open(bench: Bench) -> None:
    work = bench.ask()
    receipt = await bench.desk.receive(ANA.peer_id, work.counter)
    assert (receipt.taken, receipt.reason) == (False, "missing")
    assert (await bench.answer(work)).taken


async def test_what_came_of_an_answer_goes_with_its_lease(bench: Bench) -> None:
    work = bench.ask()
    bench.desk.begin_upload(ANA.peer_id, work.counter, 10_000)
    bench.folder.coming(ANA.peer_id, work.counter).write_bytes(b"half")
    assert bench.folder.used == 10_000
    bench.desk.abandon(ANA.peer_id, work.counter, "no memory")
    assert bench.folder.used == 0
    assert not bench.folder.coming(ANA.peer_id, work.counter).exists()


async def test_when_rows_cannot_be_written_nothing_has_happened(bench: Bench) -> None:
    before = bench.desk.state
    with bench.full_disk(), pytest.raises(NodeError) as full:
        bench.desk.ask(ANA.peer_id)
    assert full.value.code is Code.STO_FULL
    assert bench.desk.state is before
    assert bench.ask().counter == 0


async def test_a_banned_worker_is_told_why_and_its_files_are_kept_as_evidence(bench: Bench) -> None:
    await bench.answer(bench.ask())
    asked = bench.asked()
    bench.desk.judged(asked.digest, Opinion(asked.validator, False, "E-RL-075", "Proof 3 differs.", 1000))
    (ban,) = [each for each in bench.told if isinstance(each, Ban)]
    assert ban.evidence == (asked.digest,)
    with pytest.raises(NodeError) as refused:
        bench.desk.ask(ANA.peer_id)
    assert refused.value.code is Code.RL_NO_WORK and "Proof 3 differs" in refused.value.sentence
    bench.now += 10_000
    bench.desk.tick()
    assert not bench.desk.state.kept.files
    assert bench.folder.evidence(asked.digest) is not None


async def test_another_trainer_takes_files_over_and_has_them_judged_again(
    bench: Bench, tmp_path: Path
) -> None:
    digest = await bench.make()
    other = Bench(tmp_path / "other", me=MAX, trainers=(MAX,))
    for copied in (bench.folder.path(digest), marker_of(bench.folder.path(digest))):
        (tmp_path / "other" / "rollouts" / "coming" / copied.name).write_bytes(copied.read_bytes())
    path = tmp_path / "other" / "rollouts" / "coming" / bench.folder.path(digest).name
    await other.desk.found(path)
    assert other.desk.state.kept.files[digest.hex()].trainer == TOM.peer_id
    other.desk.judged(digest, Opinion(other.asked_of(digest), True))
    groups = await other.desk.groups(((digest, 0), (digest, 1)))
    assert groups is not None and not path.exists()
    assert other.desk.state.kept.files[digest.hex()].state == "accepted"
    assert other.ask(BEN).positions == (2, 3)
    await other.close()


@pytest.mark.parametrize("changes", [{"version": 1}, {"beacon": Digest(b"x" * 32)}, {"environment": "other"}])
async def test_a_file_of_another_run_or_of_an_unknown_policy_is_not_taken_over(
    bench: Bench, tmp_path: Path, changes: dict[str, Any]
) -> None:
    other = Bench(tmp_path / "other", me=MAX, trainers=(MAX,))
    work = bench.ask()
    if "version" in changes:
        work = replace(work, **changes)
        bench.value = next_value(bench.value, {}, (TOM.peer_id,), ())
        bench.desk.certified(bench.value)
    lying = bench.write(work, **changes)
    with pytest.raises(NodeError) as refused:
        await other.desk.found(lying)
    assert refused.value.code is (Code.RL_POLICY if "version" in changes else Code.RL_PROVENANCE)
    assert not lying.exists() and not other.desk.state.kept.files
    await other.close()


async def test_files_leave_the_disk_with_the_value_that_consumes_them(bench: Bench) -> None:
    first = await bench.make()
    await bench.make()
    bench.value = next_value(bench.value, {TOM.peer_id: 2}, (TOM.peer_id,), ())
    bench.desk.certified(bench.value)
    assert not bench.folder.path(first).exists()
    assert len(list(bench.folder.path(first).parent.glob("*.parquet"))) == 1


async def test_who_has_to_wait_is_told_until_when(bench: Bench) -> None:
    works: list[Work] = [bench.ask(), bench.ask()]
    told = bench.desk.ask(ANA.peer_id, tuple(work.counter for work in works))
    assert isinstance(told, Waiting)
    assert (told.reason, told.until) == ("open-leases", bench.now + bench.rules.ask_again.total_seconds())


@pytest.mark.parametrize("trusted_after", [0, 100])
async def test_beside_a_taken_file_a_bad_one_is_planted_that_shows_who_does_not_look(
    tmp_path: Path, trusted_after: int
) -> None:
    """Established workers (0) are audited by share: what is planted is drawn to be audited all the same."""
    rules = replace(RULES, trusted_after=trusted_after)
    bench = Bench(tmp_path, rules, shares=Shares(twice=0.0, planted=1.0))
    try:
        work = bench.ask()
        await bench.answer(work)
        honest = bench.asked()
        await bench.desk.plant(honest.digest)
        bad = bench.asked()
        assert bad.digest != honest.digest and bad.validator != honest.validator
        assert (bad.standing, bad.number) == (honest.standing, 2)
        assert is_audited(Digest(bad.link), Digest(bad.digest), bad.standing, bench.shares)
        given, groups, signed = await bench.reader.read(bench.folder.path(bad.digest), courier=TOM.peer_id)
        first, honest_groups, _ = await bench.reader.read(bench.folder.path(honest.digest))
        assert signed.signer == TOM.peer_id and given == first, "it names the worker whose file it was"
        made, true = plain(groups), plain(honest_groups)
        assert made != true and [each[0] for each in made] == [each[0] for each in true]
        bench.start()  # nothing of it is lost by kill -9
        assert {honest.digest, bad.digest} == {each.digest for each in bench.told[-2:]}  # type: ignore[union-attr]
        careless = bench.asked_of(bad.digest)
        bench.desk.judged(bad.digest, Opinion(careless, True))
        assert [e.validator for e in bench.told if isinstance(e, Distrust)] == [careless]
        assert not bench.folder.path(bad.digest).exists()
        bench.desk.judged(honest.digest, Opinion(careless, True))
        assert bench.desk.state.kept.files[honest.digest.hex()].state == "waiting", "its word counts no more"
        other = bench.asked_of(honest.digest)
        assert other != careless
        bench.desk.judged(honest.digest, Opinion(other, True))
        assert bench.desk.state.kept.files[honest.digest.hex()].state == "accepted"
    finally:
        await bench.close()


async def test_what_is_not_drawn_gets_nothing_planted_beside_it(bench: Bench) -> None:
    await bench.answer(bench.ask())
    honest, asked = bench.asked(), len(bench.told)
    await bench.desk.plant(honest.digest)
    await bench.desk.plant(b"x" * 32)
    assert len(bench.told) == asked and len(list(bench.folder.path(b"").parent.glob("*.parquet"))) == 1


async def test_who_watches_is_told_how_rollouts_stand_and_what_each_verdict_was_about(bench: Bench) -> None:
    bench.desk.tick()
    bench.desk.tick()
    (begin,) = bench.of("rollouts.queue")
    wanted = begin["free"]
    assert wanted == len(bench.desk.state.wanted) and begin["validators"] == ("v1", "v2", "v3")
    work = bench.ask()
    bench.desk.tick()
    await bench.answer(work)
    bench.desk.tick()
    asked = bench.asked()
    bench.desk.judged(asked.digest, Opinion(asked.validator, True))
    bench.desk.tick()
    queues = [
        (each["free"], each["working"], each["judging"], each["ready"]) for each in bench.of("rollouts.queue")
    ]
    assert queues == [(wanted, 0, 0, 0), (wanted - 2, 2, 0, 0), (wanted - 2, 0, 2, 0), (wanted - 2, 0, 0, 2)]
    assert bench.of("rollouts.queue")[-1]["workers"] == 1
    (verdict,) = bench.of("rollout.verdict")
    told = {
        name: verdict[name] for name in ("rollouts", "reward", "solved", "version", "staleness", "validators")
    }
    assert told == {
        "rollouts": 4, "reward": 0.5, "solved": 0.5, "version": 0, "staleness": 0, "validators": [asked.validator],
    }  # fmt: skip
