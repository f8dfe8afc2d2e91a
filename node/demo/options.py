"""What a person can choose, and the run file that it comes to."""

from dataclasses import asdict, dataclass
from typing import Any

from node.children import share_of_cores
from node.machine import Machine
from node.needs import needs_of
from node.runfile import RunFile, parse
from protocol.errors import Code, NodeError
from protocol.units import Bytes

UPLOAD = "20 Mb/s"
"""What a node may send: slow enough that an all-reduce lasts, so that a kill can come in the middle of one."""

NEEDED_SHARE = 0.8
"""Of the memory that the nodes need by arithmetic, which is on the safe side, so much must be free."""


@dataclass(frozen=True)
class DemoOptions:
    """The command line's options.

    Attributes:
        nodes: That begin together, at least 2.
        rounds: Of the run, at least 4.
        inner_steps: Of each round.
        workers_per_node: Worker processes that share a node's model.
        seed: Of the run.
    """

    nodes: int
    rounds: int
    inner_steps: int
    workers_per_node: int
    seed: int

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def run_file(options: DemoOptions, machine: Machine) -> str:
    """The text of the demo's run file; all that it leaves out has its default."""
    processes = (options.nodes + 1) * options.workers_per_node
    # Several nodes share an accelerator; the workers of one node do not.
    device = "cpu" if machine.gpus < options.workers_per_node else "auto"
    return f"""\
# Written by `intellect-node demo`. docs/run.example.toml explains every key.

[run]
name = "demo"
seed = {options.seed}
rounds = {options.rounds}

[round]
inner_steps = {options.inner_steps}
start_members = {options.nodes}
ghost_rounds = 0
checkpoint_every = 2

[limits]
upload = "{UPLOAD}"

[node]
workers = {options.workers_per_node}
device = "{device}"
threads = {share_of_cores(processes, machine.cores)}
"""


def require_memory(options: DemoOptions, text: str, machine: Machine) -> None:
    """Refuse before anything is started where the nodes would not fit.

    Raises:
        NodeError: SYS_MEMORY.
    """
    runfile: RunFile = parse(text, "run.toml")
    each = needs_of(runfile, machine.device(runfile.node.device)).memory
    needed = Bytes(each * (options.nodes + 1))
    if machine.memory_available < NEEDED_SHARE * needed:
        raise NodeError(
            Code.SYS_MEMORY,
            f"{options.nodes + 1} nodes need about {needed} of memory; {Bytes(machine.memory_available)} are free.",
            fix="Free memory, or use fewer --nodes or --workers-per-node.",
        )
