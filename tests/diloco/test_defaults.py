"""What the defaults promise: simulated members, one after the other, with everything else real."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from diloco.codec import codec
from diloco.config import RunSections
from diloco.creation import create_genesis, grid_of, initial_state
from diloco.data.corpus import corpus_of
from diloco.data.samples import Samples, load_tokens
from diloco.outer_step import outer_step
from diloco.worker.text import Text
from diloco.worker.trainer import Trainer
from tests.diloco.small_run import OPERATOR

MEMBERS = 2


@pytest.mark.soak
def test_the_default_run_lowers_the_validation_loss_by_two_nats_and_steadily(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    sections = RunSections()
    genesis = create_genesis(sections, OPERATOR, tmp_path)
    state, grid = initial_state(genesis), grid_of(genesis)
    tokens = load_tokens(genesis, corpus_of(genesis, tmp_path, tmp_path), tmp_path)
    samples = Samples(tokens, sections.model.context, sections.run.seed)
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        members = [
            Trainer(genesis, state, Text(sections, samples), mesh, torch.device("cpu"))
            for _ in range(MEMBERS)
        ]
        int8, lease = (
            codec(sections.round.codec),
            sections.round.inner_steps * sections.inner.samples_per_step,
        )
        losses, position = [members[0].evaluate()], 0
        for round in range(sections.run.rounds):
            mean = np.zeros(grid.size, np.float32)
            for member in members:
                done = member.train(
                    {"spans": [[position, lease]]}, round, 0, False, lambda: False, lambda *told: None
                )
                position += lease
                for part in grid.slices():
                    values = np.ascontiguousarray(state.gradient[part])
                    mean[part] += int8.decode(int8.encode(values), len(values)) / MEMBERS
            params, momentum = state.back()
            outer_step(
                state.params,
                state.momentum,
                mean,
                sections.outer.lr,
                sections.outer.momentum,
                params,
                momentum,
            )
            state.flip(round + 1)
            losses.append(members[0].evaluate())
            print(f"round {round}: inner {done.loss:.3f}, validation {losses[-1]:.3f}", flush=True)
    finally:
        dist.destroy_process_group()
    assert losses[0] - losses[-1] > 2.0
    assert all(after < before + 0.05 for before, after in itertools.pairwise(losses))
