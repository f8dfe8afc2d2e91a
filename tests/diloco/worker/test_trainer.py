"""One rank in this process: precision, accumulation, what a learning rate of zero leaves."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from diloco.creation import initial_state
from diloco.data.corpus import corpus_of
from diloco.data.samples import Samples, load_tokens
from diloco.outer_state import OuterState
from diloco.worker.text import Text
from diloco.worker.trainer import Trained, Trainer
from tests.diloco.small_run import small_genesis


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceMesh]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def trainer(folder: Path, mesh: DeviceMesh, **inner: object) -> tuple[Trainer, OuterState]:
    genesis = small_genesis(folder, inner={"batch": 4, "weight_decay": 0.0, **inner})
    tokens = load_tokens(genesis, corpus_of(genesis, folder, folder), folder)
    state = initial_state(genesis)
    samples = Samples(tokens, genesis.sections.model.context, genesis.sections.run.seed)
    return Trainer(genesis, state, Text(genesis.sections, samples), mesh, torch.device("cpu")), state


def train(rank: Trainer, count: int) -> Trained:
    return rank.train({"spans": [[0, count]]}, 0, 0, False, lambda: False, lambda *told: None)


def test_one_worker_is_sharded_by_fsdp2_too(tmp_path: Path, mesh: DeviceMesh) -> None:
    rank, _ = trainer(tmp_path, mesh)
    assert isinstance(rank._model, FSDPModule)
    assert all(isinstance(layer, FSDPModule) for layer in rank._model.model.layers)
    assert all(isinstance(each, DTensor) for each in rank._model.parameters())


@pytest.mark.failure_mode(6)
def test_a_learning_rate_of_zero_leaves_a_pseudo_gradient_of_exact_zeros(
    tmp_path: Path, mesh: DeviceMesh
) -> None:
    rank, state = trainer(tmp_path, mesh, lr=0.0)
    state.gradient[:] = 7.0
    assert train(rank, 8).steps == 2
    assert not state.gradient.any()


def test_a_learning_rate_of_the_operator_takes_the_place_of_the_genesis_one(
    tmp_path: Path, mesh: DeviceMesh
) -> None:
    rank, state = trainer(tmp_path, mesh, lr=0.01)
    rank.train({"spans": [[0, 8]]}, 0, 0, False, lambda: False, lambda *told: None, lr=0.0)
    assert not state.gradient.any()
    train(rank, 8)
    assert state.gradient.any(), "and only for that call"


def test_accumulating_two_passes_is_one_step_over_all_their_samples(tmp_path: Path, mesh: DeviceMesh) -> None:
    whole, whole_state = trainer(tmp_path / "whole", mesh)
    parts, parts_state = trainer(tmp_path / "parts", mesh, batch=2, accumulation=2)
    expected, got = train(whole, 12), train(parts, 12)
    assert (got.steps, got.samples, got.tokens) == (expected.steps, expected.samples, expected.tokens)
    assert got.loss == pytest.approx(expected.loss, rel=1e-5)
    assert np.abs(whole_state.gradient - parts_state.gradient).mean() < 1e-4


def test_bf16_trains_close_to_fp32_and_keeps_fp32_parameters(tmp_path: Path, mesh: DeviceMesh) -> None:
    full, _ = trainer(tmp_path / "full", mesh)
    half, state = trainer(tmp_path / "half", mesh, precision="bf16")
    expected, got = train(full, 40), train(half, 40)
    assert got.loss == pytest.approx(expected.loss, rel=2e-2) and got.loss != expected.loss
    assert all(each.dtype == torch.float32 for each in half._model.parameters())
    assert np.isfinite(state.gradient).all()


def test_the_same_lease_gives_the_same_bits_on_one_machine(tmp_path: Path, mesh: DeviceMesh) -> None:
    states = [trainer(tmp_path / name, mesh) for name in "ab"]
    for rank, _ in states:
        train(rank, 16)
    assert np.array_equal(states[0][1].gradient, states[1][1].gradient)
