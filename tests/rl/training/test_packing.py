"""Packed rows, their files, and what the objective computes from them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from diloco.architecture import layout_of
from diloco.config import ModelSection
from diloco.creation import initial_state
from diloco.model import model_with
from diloco.outer_state import OuterState
from diloco.weights import write_weights
from diloco.worker.trainer import Trainer
from protocol.errors import Code, NodeError
from rl.rollouts.record import Group, Rollout
from rl.training.batches import read_batch, write_batch
from rl.training.losses import SUMS
from rl.training.objective import Pass, PolicyObjective
from rl.training.packing import Example, Rows, empty, examples_of, pack, select
from rl.training.settings import ObjectiveSection
from rl.training.work import Batch, work_of
from tests.diloco.small_run import MODEL, small_genesis

CONTEXT, VOCAB = 16, 301
SMALL = ModelSection.model_validate(MODEL)
LAYOUT = layout_of(SMALL)


def example(seed: int, length: int, prompt: int, version: int = 3, advantage: float = 1.0) -> Example:
    random = np.random.default_rng(seed)
    sampled = np.arange(length) >= prompt
    return Example(
        tokens=random.integers(1, VOCAB, length).astype(np.int32),
        sampled=sampled,
        advantage=advantage,
        logprobs=np.where(sampled, -random.random(length), 0).astype(np.float32),
        versions=np.where(sampled, version, -1).astype(np.int32),
    )


def several(*lengths: int) -> list[Example]:
    return [
        example(n, length, max(1, length // 3), advantage=(-1.0) ** n * (n + 1))
        for n, length in enumerate(lengths)
    ]


def fields(rows: Rows) -> dict[str, np.ndarray]:
    return {name: getattr(rows, name) for name in Rows.__dataclass_fields__}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, CONTEXT), max_size=24))
def test_every_token_of_every_sequence_lies_in_the_rows_once(lengths: list[int]) -> None:
    examples = several(*lengths)
    rows = pack(examples, CONTEXT)
    found = []
    for row in range(len(rows.tokens)):
        for segment in range(1, rows.segments[row].max() + 1):
            (where,) = np.nonzero(rows.segments[row] == segment)
            assert np.array_equal(rows.positions[row, where], np.arange(len(where)))
            found.append(
                tuple(fields(rows)[name][row, where].tobytes() for name in ("tokens", "sampled", "versions"))
            )
    wanted = [(each.tokens.tobytes(), each.sampled.tobytes(), each.versions.tobytes()) for each in examples]
    assert sorted(found) == sorted(wanted)
    assert rows.count == sum(int(each.sampled.sum()) for each in examples)
    assert not rows.sampled[rows.segments == 0].any() and not rows.advantages[~rows.sampled].any()
    assert len(rows.tokens) <= max(1, 2 * sum(lengths) / CONTEXT + 1)


def test_a_row_is_as_long_as_the_fullest_needs_and_order_does_not_hang_on_chance() -> None:
    rows = pack(several(5, 9, 4, 3), CONTEXT)
    assert rows.tokens.shape == (2, 14), "9 and 5, then 4 and 3"
    again = pack(several(5, 9, 4, 3), CONTEXT)
    assert all(np.array_equal(value, fields(again)[name]) for name, value in fields(rows).items())
    assert pack([], CONTEXT).tokens.shape[0] == 0


@pytest.mark.parametrize("bad", [example(1, CONTEXT + 1, 3), example(1, 4, 0)])
def test_a_sequence_that_does_not_fit_or_begins_with_a_sampled_token_is_refused(bad: Example) -> None:
    with pytest.raises(NodeError) as caught:
        pack([bad], CONTEXT)
    assert caught.value.code is Code.RL_BATCH


def test_groups_become_examples_with_the_advantages_of_their_rewards() -> None:
    def rollout(index: int, reward: float, sampled: bool) -> Rollout:
        one = example(index, 6, 2 if sampled else 6)
        return Rollout(7, index, one.tokens, one.sampled, one.logprobs, one.versions, (), (), reward, "eos")

    group = Group(7, 3, tuple(rollout(i, float(i == 0), i != 3) for i in range(4)))
    assert [each.advantage for each in examples_of([group])] == [1.5, -0.5, -0.5], "the last sampled nothing"
    assert [each.advantage for each in examples_of([group], "centred")] == [0.75, -0.25, -0.25]


def test_a_file_gives_back_its_rows(tmp_path: Path) -> None:
    rows = pack(several(5, 9, 4, 16, 3), CONTEXT)
    write_batch(tmp_path / "b", rows)
    read = read_batch(tmp_path / "b", VOCAB, CONTEXT)
    for name, value in fields(rows).items():
        assert np.array_equal(value, fields(read)[name]) and value.dtype == fields(read)[name].dtype, name


def spoilt(case: str) -> bytes:
    rows = fields(pack(several(5, 9, 4, 3), CONTEXT))
    rows = {name: value.copy() for name, value in rows.items()}
    if case == "a token outside of the vocabulary":
        rows["tokens"][0, 0] = VOCAB
    elif case == "a negative token":
        rows["tokens"][0, 0] = -1
    elif case == "an advantage that is no number":
        rows["advantages"][0, 5] = np.nan
    elif case == "a log-probability that is infinite":
        rows["behaviour"][0, 5] = -np.inf
    elif case == "positions that do not restart":
        rows["positions"][0] = np.arange(len(rows["positions"][0]))
    elif case == "a sampled first token":
        rows["sampled"][0, 0] = True
    elif case == "a sampled token in padding":
        rows["sampled"][rows["segments"] == 0] = True
    elif case == "a negative version":
        rows["versions"][rows["sampled"]] = -2
    elif case == "another type":
        rows["tokens"] = rows["tokens"].astype(np.int64)
    elif case == "a tensor missing":
        del rows["versions"]
    elif case == "tensors of other shapes":
        rows["versions"] = rows["versions"][:, 1:].copy()
    data = save(rows)
    if case == "a truth value of 2":
        return data.replace(b"\x00\x01\x01", b"\x00\x02\x01", 1)
    return {"cut": data[:-1], "empty": b"", "noise": b"\xff" * 100}.get(case, data)


@pytest.mark.parametrize(
    "case",
    [
        "a token outside of the vocabulary", "a negative token", "an advantage that is no number",
        "a log-probability that is infinite", "positions that do not restart", "a sampled first token",
        "a sampled token in padding", "a negative version", "another type", "a tensor missing",
        "tensors of other shapes", "cut", "empty", "noise",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_trained_on_is_refused(tmp_path: Path, case: str) -> None:
    (tmp_path / "b").write_bytes(spoilt(case))
    with pytest.raises(NodeError) as caught:
        read_batch(tmp_path / "b", VOCAB, CONTEXT)
    assert caught.value.code is Code.RL_BATCH and str(tmp_path) in caught.value.sentence


def test_a_sequence_longer_than_the_context_is_refused_by_the_reader(tmp_path: Path) -> None:
    write_batch(tmp_path / "b", pack([example(1, 12, 3)], CONTEXT))
    with pytest.raises(NodeError, match="longer than 11"):
        read_batch(tmp_path / "b", VOCAB, 11)


# ---- the objective


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceMesh]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


class Bench:
    """A trainer of one rank with policies on disk."""

    def __init__(self, folder: Path, mesh: DeviceMesh, **keys: object) -> None:
        genesis = small_genesis(folder, inner={"weight_decay": 0.0, "lr": 1e-3})
        self.folder, self.state = folder, initial_state(genesis)
        self.objective = PolicyObjective(SMALL, LAYOUT, ObjectiveSection.model_validate(keys))
        self.trainer = Trainer(genesis, self.state, self.objective, mesh, torch.device("cpu"))
        self.place = self.trainer._place
        self.policies = {3: self.weights(3, self.state.params)}
        self.told: list[tuple[float, int, dict[str, float]]] = []

    def weights(self, version: int, params: np.ndarray) -> Path:
        write_weights(self.folder / f"policy-{version}", LAYOUT, params)
        return self.folder / f"policy-{version}"

    def work(self, *batches: Sequence[Example], reference: Path | None = None) -> dict[str, object]:
        paths = []
        for number, examples in enumerate(batches):
            paths.append(self.folder / f"batch-{number}")
            write_batch(paths[-1], pack(examples, CONTEXT))
        return work_of([Batch(path, 2) for path in paths], self.policies, reference)

    def train(self, work: dict[str, object]) -> OuterState:
        self.told.clear()
        self.done = self.trainer.train(
            work, 0, 0, False, lambda: False,
            lambda step, loss, tokens, metrics: self.told.append((loss, tokens, dict(metrics))),
        )  # fmt: skip
        return self.state


def alone(params: np.ndarray, one: Example) -> np.ndarray:
    """Log-probabilities of an unpacked sequence, by a model of its own."""
    with torch.no_grad():
        logits = model_with(SMALL, params)(input_ids=torch.tensor(one.tokens)[None].long()).logits[0]
    logs = torch.log_softmax(logits[:-1], -1)
    return logs.gather(1, torch.tensor(one.tokens[1:]).long()[:, None])[:, 0].numpy()[one.sampled[1:]]


@pytest.mark.failure_mode(42)
def test_packed_log_probabilities_are_those_of_each_sequence_alone(tmp_path: Path, mesh: DeviceMesh) -> None:
    bench = Bench(tmp_path, mesh)
    examples = several(5, 9, 4, 16, 3, 7)
    (step,) = bench.objective.steps(bench.work(examples), bench.place)
    wanted = {tuple(one.tokens[one.sampled]): alone(bench.state.params, one) for one in examples}
    got = torch.cat([part.behaviour for part in step.parts]).numpy()
    targets = torch.cat([part.targets for part in step.parts]).numpy()
    assert len(got) == step.tokens == sum(len(values) for values in wanted.values())
    for ids, values in wanted.items():
        at = next(i for i in range(len(targets)) if tuple(targets[i : i + len(ids)]) == ids)
        np.testing.assert_allclose(got[at : at + len(ids)], values, atol=1e-5)


@pytest.mark.failure_mode(42)
def test_two_packed_samples_under_equal_policies_have_ratios_of_one(tmp_path: Path, mesh: DeviceMesh) -> None:
    bench = Bench(tmp_path, mesh)
    bench.train(bench.work(several(7, 9)))
    ((_, tokens, metrics),) = bench.told
    assert tokens == 5 + 6
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-6)
    assert metrics["kl"] == pytest.approx(0.0, abs=1e-6) and metrics["clipped"] == 0


def test_reported_log_probabilities_are_used_only_where_they_are_believed(
    tmp_path: Path, mesh: DeviceMesh
) -> None:
    bench = Bench(tmp_path, mesh)
    doubted, believed = example(1, 9, 3), example(1, 9, 3, version=-1)
    for one in (doubted, believed):
        (step,) = bench.objective.steps(bench.work([one]), bench.place)
        (part,) = step.parts
        truth = alone(bench.state.params, one)
        wanted = one.logprobs[one.sampled] if one is believed else truth
        np.testing.assert_allclose(part.behaviour.numpy(), wanted, atol=1e-5)
        assert not np.allclose(truth, one.logprobs[one.sampled], atol=1e-2)


def test_each_token_is_judged_by_the_version_that_sampled_it(
    tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, mesh)
    other = bench.state.params * np.float32(1.3)
    bench.policies[4] = bench.weights(4, other)
    mixed = example(5, 12, 4, version=3)
    mixed.versions[8:] = 4
    passes: list[torch.Tensor] = []
    forward = bench.trainer._model.forward
    monkeypatch.setattr(
        bench.trainer._model, "forward", lambda **keys: (passes.append(keys["input_ids"]), forward(**keys))[1]
    )
    batch = [mixed, example(6, 10, 3, version=3)]
    steps = bench.objective.steps(bench.work(batch, [example(7, 10, 3, version=4)]), bench.place)
    assert len(passes) == 3, "one pass of the first batch for each of its versions, and one of the second"
    first = next(part for part in steps[0].parts)
    old, new = alone(bench.state.params, mixed), alone(other, mixed)
    at = first.targets.tolist().index(int(mixed.tokens[4]))
    np.testing.assert_allclose(first.behaviour[at : at + 8], np.r_[old[:4], new[4:]], atol=1e-5)


def test_a_policy_version_that_is_not_at_hand_is_refused(tmp_path: Path, mesh: DeviceMesh) -> None:
    bench = Bench(tmp_path, mesh)
    with pytest.raises(NodeError, match="version 9") as caught:
        bench.train(bench.work([example(1, 9, 3, version=9)]))
    assert caught.value.code is Code.RL_POLICY
    with_reference = Bench(tmp_path / "other", mesh, kl_coefficient=0.1)
    with pytest.raises(NodeError, match="reference"):
        with_reference.train(with_reference.work([example(1, 9, 3)]))
    with pytest.raises(NodeError, match="more than"):
        work_of([], {version: tmp_path for version in range(65)})


def test_a_step_makes_good_tokens_likelier_and_bad_ones_less(tmp_path: Path, mesh: DeviceMesh) -> None:
    bench = Bench(tmp_path, mesh)
    good, bad = example(1, 9, 3, advantage=1.0), example(2, 12, 3, advantage=-1.0)
    before = [alone(bench.state.params, one).sum() for one in (good, bad)]
    state = bench.train(bench.work([good, bad]))
    after = [alone(state.params - state.gradient, one).sum() for one in (good, bad)]
    assert after[0] > before[0] and after[1] < before[1]
    ((loss, tokens, metrics),) = bench.told
    assert (tokens, bench.done.samples, bench.done.steps) == (15, 2, 1)
    assert loss == pytest.approx((-6 + 9) / 15) and metrics["norm"] > 0
    assert metrics["entropy"] == pytest.approx(np.log(VOCAB), rel=0.1)


def test_the_divergence_from_a_reference_pulls_towards_it(tmp_path: Path, mesh: DeviceMesh) -> None:
    gradients = []
    for coefficient in (0.0, 0.5):
        bench = Bench(tmp_path / str(coefficient), mesh, kl_coefficient=coefficient, kl="k2")
        reference = bench.weights(0, bench.state.params * np.float32(1.2))
        state = bench.train(bench.work([example(1, 9, 3, advantage=0.0)], reference=reference))
        gradients.append(state.gradient.copy())
        ((_, _, metrics),) = bench.told
        assert (metrics["reference_kl"] > 0) == bool(coefficient)
    assert not gradients[0].any() and gradients[1].any()


@pytest.mark.failure_mode(41)
@pytest.mark.parametrize("name", ["two-sided-clip", "icepop", "policy-gradient"])
def test_a_pass_of_padding_alone_has_loss_zero_and_finite_gradients(
    tmp_path: Path, mesh: DeviceMesh, name: str
) -> None:
    bench = Bench(tmp_path, mesh, loss=name, kl_coefficient=0.1, entropy_coefficient=0.1)
    rows = select(empty(0, 8), 0, 3)
    write_batch(tmp_path / "real", pack([example(1, 8, 3)], 8))
    reference = bench.policies[3]
    work = work_of([Batch(tmp_path / "real", 1)], bench.policies, reference)
    (step,) = bench.objective.steps(work, bench.place)
    padding: Pass = bench.objective._pass(rows, (), bench.place)
    passed = bench.objective.loss(padding, bench.place)
    passed.loss.backward()
    assert passed.loss.item() == 0.0 and not passed.sums.any() and len(passed.sums) == len(SUMS)
    for parameter in bench.trainer._model.parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.to_local()  # type: ignore[attr-defined]
        assert torch.isfinite(gradient).all() and not gradient.any()
    assert torch.isfinite(bench.objective.loss(step.parts[0], bench.place).loss)


def test_without_anything_to_learn_positions_are_used_up_and_the_optimizer_rests(
    tmp_path: Path, mesh: DeviceMesh
) -> None:
    bench = Bench(tmp_path, mesh)
    bench.state.gradient[:] = 7.0
    work = bench.work([], [example(1, 4, 4)])
    work["batches"].append([None, 5])  # type: ignore[attr-defined]
    state = bench.train(work)
    assert not state.gradient.any() and not bench.told
    assert (bench.done.samples, bench.done.steps, bench.done.tokens, bench.done.finite) == (9, 0, 0, True)


def test_a_second_step_is_off_policy_by_the_first(tmp_path: Path, mesh: DeviceMesh) -> None:
    bench = Bench(tmp_path, mesh)
    examples = several(7, 9, 12)
    bench.train(bench.work(examples, examples))
    first, second = (metrics for _, _, metrics in bench.told)
    assert first["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert second["ratio_max"] > 1.001 and second["kl"] > 0
