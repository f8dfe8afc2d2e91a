"""What a donor gives to joiners is bounded by its upload limit, in virtual time."""

import asyncio
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from protocol.testing import Swarm
from protocol.units import Bytes
from shardcast.building import build_manifest
from shardcast.client import fetch
from shardcast.expect import Expect
from shardcast.limits import FRAME, MAX_CLIENTS
from shardcast.service import attach
from shardcast.shelf import Shelf

KIB = 1024
NAME = "ckpt/8"
SHARE = 256 * KIB
"""Bytes per second that each donor gives."""


@pytest.mark.failure_mode(17)
def test_four_joiners_get_no_more_than_the_donors_share_though_one_donor_dies(tmp_path: Path) -> None:
    content = Random(1).randbytes(4096 * KIB)
    (tmp_path / "object").write_bytes(content)
    manifest = build_manifest(tmp_path / "object", NAME, 128 * KIB)
    with Swarm(seed=5) as swarm:
        donors = swarm.nodes(3, upload=Bytes(SHARE))
        joiners = swarm.nodes(4)
        services = []
        for donor in donors:
            shelf = Shelf(tmp_path / donor.name)
            shelf.add(manifest, tmp_path / "object")
            services.append(attach(donor.endpoint, shelf))
        given: list[list[tuple[float, int]]] = [[] for _ in donors]

        async def look() -> None:
            while True:
                for donor, seen in zip(donors, given, strict=True):
                    seen.append((swarm.time, donor.endpoint.throttle.taken))
                await asyncio.sleep(0.1)

        async def scene() -> None:
            watch = asyncio.ensure_future(look())
            fetches = [
                joiner.spawn(
                    fetch(
                        joiner.endpoint, NAME, [donor.peer_id for donor in donors], tmp_path / f"copy {joiner.name}",
                        Expect(manifest_digest=manifest.digest),
                    )
                )
                for joiner in joiners
            ]  # fmt: skip
            await asyncio.sleep(5)
            assert all(service.sent for service in services) and not any(task.done() for task in fetches)
            donors[0].kill()
            reports = await asyncio.gather(*fetches)
            watch.cancel()
            assert all(report.per_holder.keys() >= {d.peer_id for d in donors[1:]} for report in reports)

        swarm.run(asyncio.wait_for(scene(), timedelta(minutes=5).total_seconds()))
        assert all((tmp_path / f"copy {joiner.name}").read_bytes() == content for joiner in joiners)
        assert all(service.gate.most <= MAX_CLIENTS for service in services)
        for seen in given[1:]:
            begun = next(taken for _, taken in seen if taken)
            assert seen[-1][1] - begun > SHARE, "it gave for a while"
            waiting = MAX_CLIENTS * FRAME  # what each stream has asked for and not yet sent
            for (start, before), (end, after) in ((seen[0], one) for one in seen):
                assert after - before <= SHARE * (end - start + 1) + waiting
