"""What the demo of reinforcement learning consists of: who takes part, and the run file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TRAINER, RELAY, VALIDATOR, CHEAT = "trainer", "relay", "validator", "cheat"
HONEST = ("worker-1", "worker-2")
NODES = (TRAINER, VALIDATOR, *HONEST, CHEAT)
"""Those with an event log; the relay has none."""

CHEAT_FROM = 5
"""The cheat joins once there is this policy version: then there is one that is four versions older."""

STEADY_FROM = 8
"""From this step on, counted from 0, workers are known and their files audited by share."""

GROUPS, GROUP_SIZE, WINDOW, LONGEST = 16, 8, 2, 4


@dataclass(frozen=True)
class RlOptions:
    """The command line's options.

    Attributes:
        steps: GRPO steps.
        seed: Of the run.
    """

    steps: int
    seed: int

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def run_file(options: RlOptions, weights: Path, validator: str) -> str:
    """The text of the run file; all that it leaves out has its default.

    Args:
        options: What a person chose.
        weights: The warm start.
        validator: Peer id of the validator.
    """
    return f"""\
# Written by `intellect-node demo --rl`. docs/run.example.toml explains every key.

[run]
name = "demo-rl"
seed = {options.seed}
rounds = {options.steps}

[model]
hidden = 160
layers = 4
heads = 4
kv_heads = 2
intermediate = 448
vocab = 260
context = 64
weights = "{weights.name}"

[data]
source = "none"

# One GRPO step is one inner step, and the outer step takes it as it is.
[inner]
lr = 5e-4
batch = {GROUPS}
warmup_steps = 5
schedule = "constant"
weight_decay = 0.0

[round]
inner_steps = 1
codec = "fp32"

[outer]
lr = 1.0
momentum = 0.0

[rl]
environment = "reverse-text"
config = {{ shortest = 2, longest = {LONGEST} }}
group_size = {GROUP_SIZE}
window = {WINDOW}
max_tokens = 12
twice = 0.0
patience = "60 s"
validators = ["{validator}"]

[network]
gossip = false

[node]
threads = 1
"""


def worker_file(source: str) -> str:
    """The run file of workers and the validator: the run itself comes from its genesis.

    Args:
        source: The relay.
    """
    return f"""\
# Written by `intellect-node demo --rl`.

[run]
name = "demo-rl"

[policy]
sources = ["{source}"]

[network]
gossip = false

[node]
threads = 1
"""
