"""Exporting a node's last committed model, while the node runs or after."""

from pathlib import Path

from diloco.codec import codec
from diloco.creation import grid_of, initial_state
from diloco.data.corpus import corpus_of
from diloco.export import export
from diloco.genesis import Genesis
from diloco.parameters import in_force
from diloco.replay import replay
from diloco.store.checkpoints import Checkpoints, Floats
from diloco.store.ledger import Ledger
from diloco.store.reduced import ReducedStore
from node.joining import GENESIS_FILE, read_genesis
from node.ledger_cli import LEDGER_FILE
from protocol.errors import Code, NodeError


def export_node(folder: Path, to: Path) -> int:
    """Write the model after a node's last certified round as a Hugging Face folder.

    Nothing in the node's folder is changed: the newest good checkpoint is read and the reduced bytes since replayed.

    Args:
        folder: The node's data directory.
        to: The folder to write.

    Returns:
        Exit status.

    Raises:
        NodeError: ``STO_CORRUPT`` when the state cannot be rebuilt from what is on disk.
    """
    if not (folder / GENESIS_FILE).exists() or not (folder / LEDGER_FILE).exists():
        raise NodeError(
            Code.CFG_USAGE,
            f"{folder} is not a node's data directory.",
            fix="Name the --dir of a node that took part.",
        )
    genesis = read_genesis(folder)
    round_number, params = committed_parameters(folder, genesis)
    export(to, genesis, params)
    print(f"Wrote the model after {round_number} rounds to {to}.")
    return 0


def committed_parameters(folder: Path, genesis: Genesis) -> tuple[int, Floats]:
    """Rounds decided, and the outer parameters after them, fp32 of shape (parameters,).

    Raises:
        NodeError: ``STO_CORRUPT`` when the state cannot be rebuilt from what is on disk.
    """
    ledger = Ledger(folder / LEDGER_FILE, read_only=True)
    tip = ledger.tip()
    target = tip.value.round + 1 if tip is not None else 0
    grid, one = grid_of(genesis), codec(genesis.sections.round.codec)
    reduced = ReducedStore(folder / "reduced", [one.nbytes(part.stop - part.start) for part in grid.slices()])
    start, params, momentum = _newest(folder, genesis, target, ledger)
    for number in range(start, target):
        certified = ledger.get(number)
        if certified is None:
            raise NodeError(Code.STO_CORRUPT, f"The ledger in {folder} has no value of round {number}.")
        outer = in_force(genesis.sections, ledger, number).outer
        replay(
            params, momentum, reduced.read(certified.value), grid=grid, codec=one,
            lr=outer.lr, mu=outer.momentum, params_out=params, momentum_out=momentum,
        )  # fmt: skip
    ledger.close()
    return target, params


def _newest(folder: Path, genesis: Genesis, target: int, ledger: Ledger) -> tuple[int, Floats, Floats]:
    checkpoints = Checkpoints(folder / "checkpoints", genesis.run_id, grid_of(genesis))
    for number in checkpoints.rounds():
        certified = ledger.get(number)
        try:
            base = certified.value.base if certified is not None else None
            params, momentum = checkpoints.read(checkpoints.path(number), number, base)
        except NodeError:
            continue
        if number <= target:
            return number, params, momentum
    state = initial_state(genesis, corpus_of(genesis, folder, None))
    return 0, state.params.copy(), state.momentum.copy()
