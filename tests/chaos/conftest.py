"""One swarm of five for all tests here; each goes on where the one before it stopped."""

from collections.abc import Iterator

import pytest

from tests.chaos import disks
from tests.chaos.swarm import Swarm, swarm
from tests.e2e.cluster import RUN, settings


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Five members with seats in full swing; `ada` made the run, `eve` has a small disk where one can be had."""
    folder = tmp_path_factory.mktemp("chaos")
    run = settings(RUN, {"start_members = 3": "start_members = 5"})  # who comes after the start has no seat
    with swarm(folder, disks=() if disks.missing() else ("eve",), run=run) as made:
        first = made.add("ada").start("init")
        for name in ("bob", "cyd", "dan", "eve"):
            made.add(name).start("run", "--join", first.address)
        for node in made.everyone():
            first.contributed(node.peer)
        yield made
