"""What a node needs of its machine, by arithmetic from the run file (docs/architecture.md, what a node holds)."""

from dataclasses import dataclass

from diloco.config import ModelSection
from node.runfile import RunFile
from protocol.units import Bytes

OUTER_BYTES = 8
"""Per parameter in memory: the outer parameters and the outer momentum, fp32."""
DOUBLE_BUFFER_BYTES = 8
"""Per parameter: the next outer state, while it is computed."""
GRADIENT_BYTES = 4
"""Per parameter: the pseudo-gradient, fp32."""
FROZEN_BYTES = 1
"""Per parameter: the frozen contribution, int8."""
WORKER_BYTES = 16
"""Per parameter in the workers together: weights, gradients and AdamW's two moments, fp32."""

CHECKPOINT_BYTES = 8 * 3
"""Per parameter on disk: the newest checkpoint, the one before, and one that is being written."""
REDUCED_BYTES = 8 + 3 + 2
"""Per parameter on disk: up to 8 rounds of reduced bytes, what was averaged in three, which audits ask for, and the
frozen contribution, beside one that is being written."""

PROCESSES_BYTES = Bytes(480 * 10**6)
"""Daemon, directory process and its helper, as measured."""
WORKER_PROCESS_BYTES = Bytes(450 * 10**6)
"""One worker process with its libraries, as measured."""
LOGS_BYTES = Bytes(200 * 10**6)
"""Event logs, worker logs, small stores."""


@dataclass(frozen=True)
class Needs:
    """What a node needs.

    Attributes:
        parameters: Of the model.
        memory: In the machine's memory.
        device_memory: On each accelerator; 0 without one.
        disk: Under the data directory.
    """

    parameters: int
    memory: Bytes
    device_memory: Bytes
    disk: Bytes


def parameter_count(model: ModelSection) -> int:
    """Parameters of a Llama of this shape, tied ones once. A test holds it equal to the layout's own count."""
    head = model.hidden // model.heads
    attention = 2 * model.hidden * model.hidden + 2 * model.hidden * model.kv_heads * head
    layer = attention + 3 * model.hidden * model.intermediate + 2 * model.hidden
    embedding = model.vocab * model.hidden * (1 if model.tie else 2)
    return embedding + model.layers * layer + model.hidden


def needs_of(runfile: RunFile, device: str) -> Needs:
    """What the node of a run file needs on `device` ("cpu" or "cuda").

    Activations are estimated: per token and layer what the backward pass needs, and the logits three times.
    """
    model, node = runfile.model, runfile.node
    parameters = parameter_count(model)
    trains = "trainer" in node.roles
    per_token = (
        model.layers * (16 * model.hidden + 4 * model.intermediate + 2 * model.heads * model.context)
        + 3 * model.vocab
    )
    training = (
        (WORKER_BYTES * parameters + 4 * runfile.inner.batch * model.context * per_token) if trains else 0
    )
    memory = (
        OUTER_BYTES + DOUBLE_BUFFER_BYTES + GRADIENT_BYTES + FROZEN_BYTES
    ) * parameters + PROCESSES_BYTES
    memory += node.workers * WORKER_PROCESS_BYTES if trains else 0
    on_device = device == "cuda"
    return Needs(
        parameters=parameters,
        memory=Bytes(memory if on_device else memory + training),
        device_memory=Bytes(training // node.workers if on_device else 0),
        disk=Bytes((CHECKPOINT_BYTES + REDUCED_BYTES) * parameters + runfile.data.max_bytes + LOGS_BYTES),
    )
