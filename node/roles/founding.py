"""Making a run, and writing its start record once."""

from collections.abc import Callable
from pathlib import Path

from diloco.creation import create_genesis
from diloco.member.setting import Emit
from diloco.rounds.certificate import Certified
from node.delegating import ROOT_FILE
from node.joining import GENESIS_FILE
from node.roles.coordinator import Coordinator
from node.runfile import RunFile
from protocol.errors import Code
from protocol.files import write_whole
from protocol.identity import Identity

FOUNDED_FILE = "founded"


def make_run(runfile: RunFile, path: Path, folder: Path) -> None:
    """Make a run's genesis and its operator's key.

    Args:
        runfile: What the run is.
        path: The run file, whose folder relative data paths begin at.
        folder: The data directory that gets them.
    """
    operator = Identity.load_or_create(folder / ROOT_FILE)
    genesis = create_genesis(runfile.sections(), operator.peer_id, path.parent)
    write_whole(folder / GENESIS_FILE, [genesis.to_bytes()])


async def write_start(
    coordinator: Coordinator,
    folder: Path,
    begun: Callable[[], bool],
    take: Callable[[Certified], None],
    emit: Emit,
) -> Certified | None:
    """Found the run, once: a second start record would be another chain, which no member follows.

    Args:
        coordinator: The one on this node.
        folder: The node's data directory.
        begun: Whether this node knows a value of the run.
        take: Takes the start record into its ledger.
        emit: The event log.

    Returns:
        The start record, if it was written here and now.
    """
    mark, start = folder / FOUNDED_FILE, None
    if not begun():
        if mark.exists():
            reason = "This node's ledger is gone; it waits for a member that has the run's chain."
            emit("ledger.lost", code=str(Code.STO_CORRUPT), reason=reason)
            return None
        if not coordinator.has_root_key:
            return None
        made = await coordinator.begin()
        if not begun():  # else others had the chain: the mark was lost as well
            take(made)
            start = made
    write_whole(mark, [b""])
    return start
