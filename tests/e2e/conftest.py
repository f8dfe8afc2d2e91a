"""One swarm for the whole session; each of its tests goes on where the one before it stopped."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, cluster

SHORT = '[run]\nname = "tiny"\n'
"""All that a contributor has to write of a run."""


@pytest.fixture(scope="session")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members in full swing, and a fourth that is on its way.

    `ada` made the run. `bob` has two workers. `cyd` has a home directory that it cannot write. `dee` came when rounds
    were being decided, knows only bob's address, and has no copy of the text.
    """
    with cluster(tmp_path_factory.mktemp("swarm")) as made:
        home, elsewhere = made.folder / "home", made.folder / "elsewhere"
        home.mkdir(mode=0o500)
        elsewhere.mkdir()
        ada = made.add("ada").start("init")
        bob = made.add("bob", workers=2).start("run", "--join", ada.address)
        cyd = made.add("cyd").start("run", "--join", ada.address, privileged=False, HOME=home)
        for node in (ada, bob, cyd):
            node.wait("commit")
        made.add("dee", run=SHORT, folder=elsewhere).start("run", "--join", bob.address)
        yield made
