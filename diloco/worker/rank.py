"""One worker process from the inside: joins its fellow ranks, then turns commands into calls of the trainer."""

import argparse
import os
import resource
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from diloco.architecture import layout_of
from diloco.data.tokenizer import load_tokenizer
from diloco.genesis import Genesis
from diloco.outer_state import OuterState
from diloco.worker.channel import Channel, Line
from diloco.worker.objective import Kind
from diloco.worker.trainer import StopClock, Trainer

JOIN_WITHIN = timedelta(seconds=120)


class Rank:
    """What a worker process holds.

    Args:
        options: The command line.
        genesis: The run.
        channel: To the daemon.
        kind: What is learnt.

    Raises:
        NodeError: As the kind raises it.
    """

    def __init__(self, options: argparse.Namespace, genesis: Genesis, channel: Channel, kind: Kind) -> None:
        self._channel = channel
        self._leads = options.rank == 0
        torch.set_num_threads(options.threads)
        cuda = options.device == "cuda"
        device = torch.device("cuda", options.rank) if cuda else torch.device("cpu")
        if cuda:
            torch.cuda.set_device(device)
        # The ranks of one node talk on its own loopback; gloo would else look up the host's name.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=dist.FileStore(str(options.store), options.world),
            rank=options.rank,
            world_size=options.world,
            timeout=JOIN_WITHIN,
        )
        mesh = init_device_mesh(options.device, (options.world,), mesh_dim_names=("worker",))
        model = genesis.sections.model
        if options.world > 1:
            dist.barrier()  # the first rank has prepared before it came here
        state = OuterState.attach(options.state, layout_of(model))
        self._tokenizer = load_tokenizer(genesis.tokenizer, model.vocab)
        self._trainer = Trainer(genesis, state, kind.objective(genesis, options), mesh, device)

    def train(self, command: Line) -> dict[str, Any]:
        """`work`, `round`, `first_step`, `go_on`, `budget` (seconds or null), `lr` (or null)."""
        number = command["id"]

        def on_step(step: int, loss: float, tokens: int, metrics: Mapping[str, float]) -> None:
            if self._leads:
                said = {"step": step, "loss": loss, "tokens": tokens, "metrics": dict(metrics)}
                self._channel.send({"event": "step", "id": number, **said})

        clock = StopClock(command["budget"], lambda: self._asked_to_stop(number))
        done = self._trainer.train(
            command["work"],
            command["round"],
            command["first_step"],
            command["go_on"],
            clock if self._leads else (lambda: False),
            on_step,
            command["lr"],
        )
        return {
            "samples": done.samples,
            "tokens": done.tokens,
            "steps": done.steps,
            "loss": done.loss,
            "finite": done.finite,
            "memory": _peak_memory(),
        }

    def evaluate(self, command: Line) -> dict[str, Any]:
        """Validation loss of the outer parameters."""
        return {"loss": self._trainer.evaluate()}

    def generate(self, command: Line) -> dict[str, Any]:
        """`prompt`, `count`, `temperature`, `seed`."""
        ids = self._tokenizer.encode(command["prompt"], add_special_tokens=False).ids or [0]
        drawn = self._trainer.generate(ids, command["count"], command["temperature"], command["seed"])
        return {"text": self._tokenizer.decode(drawn)}

    def close(self) -> None:
        """Leave the group of ranks."""
        dist.destroy_process_group()

    def _asked_to_stop(self, number: int) -> bool:
        asked = False
        while (line := self._channel.poll()) is not None:
            asked = asked or (line["do"] == "stop" and line["id"] == number)
        return asked


def _peak_memory() -> int:
    """Bytes: the most that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
