"""What a node exports is the state that the run has decided on, and its folder stays as it was."""

from pathlib import Path

from blake3 import blake3

from node.exporting import committed_parameters
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd


def contents(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): blake3(path.read_bytes()).hexdigest() for path in files}


def test_the_committed_parameters_are_those_of_the_members(tmp_path: Path) -> None:
    genesis = tiny_genesis(rounds=5)
    with Swarm(seed=6, run=None) as swarm:
        crowd = Crowd(swarm, tmp_path, genesis)
        swarm.run(crowd.finished())
        seat = crowd.seats[0]
        wanted = seat.state.params.copy()
        for each in crowd.seats:
            each.member.ledger.close()
    before = contents(seat.folder)
    rounds, params = committed_parameters(seat.folder, genesis)
    assert rounds == 5 and params.tobytes() == wanted.tobytes()
    assert contents(seat.folder) == before
