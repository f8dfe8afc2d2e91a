"""The objective of reinforcement learning, in a worker: sampled tokens of packed rows, weighed by their advantages.

The log-probabilities that rollouts came with are not believed: before a step each policy version that sampled a token
of it is loaded once, and one forward pass of the rows that hold such tokens gives their log-probabilities. Both sides
of a ratio thereby come from the same code on the same machine. Where top-k or top-p cut, that pass also says what was
kept, and all log-probabilities are of the distribution over those tokens of the vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from diloco.config import ModelSection
from diloco.layout import Layout
from diloco.weights import read_weights
from diloco.worker.objective import Passed, Place, Step
from protocol.errors import Code, NodeError
from rl.training.batches import read_batch
from rl.training.losses import PEAKS, SUMS, measure
from rl.training.packing import REPORTED, Rows, select
from rl.training.settings import ObjectiveSection
from rl.training.truncation import Bits, all_kept, cut, kept, packed
from rl.training.work import parse_work


@dataclass(frozen=True, eq=False)
class Pass:
    """This rank's rows of one forward pass; the N sampled tokens of these are in row-major order.

    Attributes:
        tokens: int64[B, L].
        positions: int64[B, L].
        mask: bool[B, 1, L, L], which tokens each one sees: those before it in its own sequence, and itself.
        chosen: bool[B, L - 1], whether the *next* token was sampled.
        targets: int64[N], the sampled tokens.
        advantages: float32[N].
        behaviour: float32[N], completed before the first step.
        reference: float32[N], completed as well; None without a reference policy.
        kept: Of what each token was drawn, completed with `behaviour`; None where nothing is cut.
        versions: int64[N] on the CPU.
        policies: The versions of the tokens of this pass on any rank, in ascending order.
    """

    tokens: Tensor
    positions: Tensor
    mask: Tensor
    chosen: Tensor
    targets: Tensor
    advantages: Tensor
    behaviour: Tensor
    reference: Tensor | None
    kept: Bits | None
    versions: Tensor
    policies: tuple[int, ...]


class PolicyObjective:
    """See `Objective`. The work is `rl.training.work`'s.

    Args:
        model: Shape of the model.
        layout: Its layout.
        settings: Loss, coefficients, temperature, cuts.
    """

    sums: tuple[str, ...] = SUMS
    peaks: tuple[str, ...] = PEAKS

    def __init__(self, model: ModelSection, layout: Layout, settings: ObjectiveSection) -> None:
        self._model, self._layout, self._settings = model, layout, settings

    def steps(self, work: dict[str, Any], place: Place) -> Sequence[Step]:
        """See `Objective`: all batches are read, and each policy version makes its one forward pass.

        Raises:
            NodeError: ``RL_BATCH`` or ``RL_POLICY`` for work that cannot be used; ``TRN_MODEL`` for weights.
        """
        asked = parse_work(work)
        with_reference = bool(self._settings.kl_coefficient)
        steps: list[Step] = []
        for batch in asked.batches:
            if batch.path is None:
                steps.append(Step(batch.positions, 0, ()))
                continue
            rows = read_batch(batch.path, self._model.vocab, self._model.context)
            if self._cuts and (rows.versions[rows.sampled] == REPORTED).any():
                raise NodeError(
                    Code.RL_BATCH,
                    "A batch has tokens of no policy version: what top-k and top-p had left to draw is not known.",
                )
            passes = tuple(self._passes(rows, place)) if rows.count else ()
            steps.append(Step(batch.positions, rows.count, passes))
        passes = tuple(part for step in steps for part in step.parts)
        for version in sorted({version for part in passes for version in part.policies}):
            if version not in asked.policies:
                raise NodeError(
                    Code.RL_POLICY,
                    f"A batch has tokens of policy version {version}, whose weights are not at hand.",
                )
            place.load(read_weights(asked.policies[version], self._layout))
            for part in passes:
                if version in part.policies:
                    self._behaviour(part, version, place)
        if with_reference and passes:
            if asked.reference is None:
                raise NodeError(
                    Code.RL_POLICY, "The loss has a divergence from a reference policy, and there is none."
                )
            place.load(read_weights(asked.reference, self._layout))
            for part in passes:
                assert part.reference is not None
                part.reference[:] = self._logprobs(part, place)
        return steps

    def loss(self, part: Pass, place: Place) -> Passed:
        """The loss of this rank's sampled tokens."""
        logs = self._distributions(part, self._tempered(part, place))
        chosen = _chosen(logs, part)
        entropy = -(logs.exp() * logs).sum(1)
        measured = measure(
            chosen, entropy, part.behaviour, part.advantages, part.reference, self._settings
        )  # fmt: skip
        return Passed(measured.loss, measured.sums, measured.peaks)

    def held_out(self, place: Place) -> Step:
        """Nothing: a policy is evaluated by its rewards."""
        return Step(0, 0, ())

    @property
    def _cuts(self) -> bool:
        """Whether less than the whole vocabulary is drawn from."""
        return self._settings.top_p < 1 or 0 < self._settings.top_k < self._model.vocab

    def _behaviour(self, part: Pass, version: int, place: Place) -> None:
        """Complete what the loaded policy sampled: its log-probabilities, and what it kept of the vocabulary."""
        mine = part.versions == version
        with torch.no_grad():
            tempered = self._tempered(part, place)
            if part.kept is not None:
                found = kept(tempered, self._settings.top_k, self._settings.top_p)
                found.scatter_(1, part.targets[:, None], True)  # one at the cut may be cut here
                part.kept[mine.numpy()] = packed(found)[mine.numpy()]
            there = mine.to(place.device)
            part.behaviour[there] = _chosen(self._distributions(part, tempered), part)[there]

    def _logprobs(self, part: Pass, place: Place) -> Tensor:
        """Log-probabilities of the sampled tokens under the weights that are loaded, without a gradient."""
        with torch.no_grad():
            return _chosen(self._distributions(part, self._tempered(part, place)), part)

    def _tempered(self, part: Pass, place: Place) -> Tensor:
        """float32[N, vocab]: logits that predict the sampled tokens, at the run's temperature."""
        logits = place.logits(
            input_ids=part.tokens, position_ids=part.positions, attention_mask=part.mask
        )  # fmt: skip
        return logits[:, :-1][part.chosen].float() / self._settings.temperature

    def _distributions(self, part: Pass, tempered: Tensor) -> Tensor:
        """float32[N, vocab]: logarithms of what each sampled token was drawn from."""
        return torch.log_softmax(tempered if part.kept is None else cut(tempered, part.kept), -1)

    def _passes(self, rows: Rows, place: Place) -> Iterator[Pass]:
        """This rank's passes; every rank has as many, the last ones perhaps of nothing but padding."""
        fits = self._settings.pass_tokens // rows.tokens.shape[1]
        share = max(1, min(fits, -(-len(rows.tokens) // place.world)))
        for first in range(0, len(rows.tokens), share * place.world):
            together = rows.versions[first : first + share * place.world]
            policies = tuple(int(each) for each in np.unique(together) if each != REPORTED)
            yield self._pass(select(rows, first + place.rank * share, share), policies, place)

    def _pass(self, rows: Rows, policies: tuple[int, ...], place: Place) -> Pass:
        device = place.device
        segments = torch.from_numpy(rows.segments).to(device)
        length = segments.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        tokens = torch.from_numpy(rows.tokens).to(device).long()
        chosen = torch.from_numpy(rows.sampled[:, 1:].copy())

        def picked(values: Any) -> Tensor:
            return torch.from_numpy(values[:, 1:].copy())[chosen]

        behaviour = picked(rows.behaviour).to(device)
        return Pass(
            tokens=tokens,
            positions=torch.from_numpy(rows.positions).to(device).long(),
            mask=((segments[:, :, None] == segments[:, None, :]) & causal)[:, None],
            chosen=chosen.to(device),
            targets=picked(rows.tokens).to(device).long(),
            advantages=picked(rows.advantages).to(device),
            behaviour=behaviour,
            reference=torch.zeros_like(behaviour) if self._settings.kl_coefficient else None,
            kept=all_kept(len(behaviour), self._model.vocab) if self._cuts else None,
            versions=picked(rows.versions).long(),
            policies=policies,
        )


def _chosen(logs: Tensor, part: Pass) -> Tensor:
    return logs.gather(1, part.targets[:, None])[:, 0]
