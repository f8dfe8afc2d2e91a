"""A small model, honest files drawn from it with a cache, and the ways to cheat.

Provers decode token by token with keys and values kept; the validator reads whole transcripts: two computations of the
same numbers, as on two machines.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import DynamicCache
from transformers.models.llama.modeling_llama import LlamaForCausalLM

import toploc
from diloco.config import ModelSection
from diloco.data.tokenizer import train_tokenizer
from diloco.model import llama_config
from protocol.identity import Identity
from protocol.units import Digest, PeerId, RunId
from rl.environments import Renderer
from rl.environments.interface import Environment, Message, Messages, Remote, Task
from rl.environments.reverse_text import ReverseText
from rl.rollouts.record import CHUNK, SCHEMA, Group, Int32s, Provenance, Rollout
from rl.sampling import Sampling, choose, finish, noise, processed
from rl.validation.terms import Lease, Terms
from rl.work.seeds import task_seed, token_seed

ANA, BEN, EVE, TOM, VAL, VIC = (
    Identity.ephemeral(letter * 32) for letter in (b"a", b"b", b"e", b"t", b"v", b"w")
)
MODEL = ModelSection(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocab=260, context=128)
WINDOW = 2
NEWEST = 6


def beacon_of(version: int) -> Digest:
    return Digest(bytes((version,)) * 32)


def weights_of(version: int) -> Digest:
    return Digest(bytes((version, 1)) * 16)


class TorchPolicy:
    """A policy version as the validator reads it."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model = model

    @torch.inference_mode()
    def states(self, sequences: Sequence[Int32s]) -> list[torch.Tensor]:
        longest = max(len(tokens) for tokens in sequences)
        rows = torch.zeros(len(sequences), longest, dtype=torch.int64)
        for row, tokens in zip(rows, sequences, strict=True):
            row[: len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
        read = self.model.model(rows, use_cache=False).last_hidden_state
        return [states[: len(tokens)] for states, tokens in zip(read, sequences, strict=True)]

    @torch.inference_mode()
    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.model.lm_head(states).float()


def drifting(model: LlamaForCausalLM, drift: float) -> Mapping[int, TorchPolicy]:
    """Versions 0 to NEWEST, each a little away from the one before, as a step of training makes them."""
    held: dict[int, TorchPolicy] = {}
    for version in range(NEWEST + 1):
        held[version] = TorchPolicy(deepcopy(model))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.dim() == 2:
                    weight.add_(torch.randn_like(weight) * weight.std() * drift)
    return held


class _Here:
    """An environment of this process behind the border of another."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.version = environment.version

    async def task(self, seed: int) -> Task:
        return self._environment.task(seed)

    async def reply(self, task: Task, transcript: Messages) -> Message | None:
        return await self._environment.reply(task, transcript)

    async def score(self, task: Task, transcripts: Sequence[Messages]) -> tuple[float, ...]:
        return await self._environment.score(task, transcripts)


SeedOf = Callable[[Lease, int, int], bytes]


def own_seed(lease: Lease, position: int, index: int) -> bytes:
    return token_seed(lease.beacon, position, lease.worker, index)


@dataclass(frozen=True)
class Drawing:
    """How a worker draws; the defaults are honest.

    Attributes:
        versions: The policy version of each chunk; the last one goes on. Empty: the lease's.
        claimed: What it says they are.
        seed_of: The seed of a rollout's noise.
        prompt: What it reads instead of the task's words, if anything.
    """

    versions: tuple[int, ...] = ()
    claimed: tuple[int, ...] = ()
    seed_of: SeedOf = own_seed
    prompt: str | None = None


class World:
    """One run: its terms, its policies, and who works for it."""

    def __init__(
        self,
        sampling: Sampling | None = None,
        *,
        model: ModelSection = MODEL,
        group_size: int = 4,
        environment: Environment | None = None,
        turns: int = 1,
        drift: float = 0.01,
    ) -> None:
        self.model = model
        self.drift = drift
        self.tokenizer = Tokenizer.from_str(train_tokenizer(["<t>abc</t>"], 257))
        self.renderer = Renderer(self.tokenizer)
        self.environment: Environment = environment or ReverseText(3, 6)
        sampling = sampling or Sampling(max_tokens=40)
        self.terms = Terms(
            run=RunId("ab" * 32),
            environment=self.environment.name,
            environment_version=self.environment.version,
            tokenizer=Digest(b"t" * 32),
            sampling=replace(sampling, eos=(self.renderer.end,)),
            vocab=model.vocab,
            context=model.context,
            group_size=group_size,
            turns=turns,
            window=WINDOW,
        )

    @cached_property
    def policies(self) -> Mapping[int, TorchPolicy]:
        """Random weights, of which some tokens are likely, and what comes of them."""
        torch.manual_seed(1)
        model = LlamaForCausalLM(llama_config(self.model)).eval()
        with torch.no_grad():
            model.model.norm.weight.fill_(7.0)
        return drifting(model, self.drift)

    @property
    def remote(self) -> Remote:
        """The environment as validators have it."""
        return _Here(self.environment)

    async def policy_of(self, version: int) -> TorchPolicy:
        return self.policies[version]

    def lease(
        self,
        worker: PeerId = ANA.peer_id,
        counter: int = 0,
        version: int = 5,
        positions: Sequence[int] = (7, 8),
    ) -> Lease:
        return Lease(
            worker,
            TOM.peer_id,
            counter,
            version,
            weights_of(version),
            beacon_of(version),
            tuple(positions),
            NEWEST,
        )

    def provenance(self, lease: Lease, **changes: Any) -> Provenance:
        held = Provenance(
            SCHEMA, self.terms.run, lease.worker, lease.trainer, lease.counter, lease.version, lease.weights,
            lease.beacon, self.terms.environment, self.terms.environment_version, self.terms.tokenizer,
            self.terms.sampling,
        )  # fmt: skip
        return replace(held, **changes)

    def draw(self, lease: Lease, drawing: Drawing = Drawing()) -> tuple[Group, ...]:
        return tuple(self._group(lease, position, drawing) for position in lease.positions)

    def _group(self, lease: Lease, position: int, drawing: Drawing) -> Group:
        task = self.environment.task(task_seed(lease.beacon, position))
        shown = self.renderer.prompt(task.messages)
        read = shown if drawing.prompt is None else self.renderer.prompt((Message("user", drawing.prompt),))
        seeds = [drawing.seed_of(lease, position, index) for index in range(self.terms.group_size)]
        drawn = self._sample(read, seeds, drawing.versions or (lease.version,))
        claimed = drawing.claimed or drawing.versions or (lease.version,)
        rollouts = []
        for index, (tokens, logprobs, states, end) in enumerate(drawn):
            chunks = -(-len(tokens) // CHUNK)
            versions = tuple(claimed[min(chunk, len(claimed) - 1)] for chunk in range(chunks))
            of_tokens = np.repeat(versions, CHUNK)[: len(tokens)]
            rollouts.append(
                Rollout(
                    position=position,
                    index=index,
                    tokens=np.array([*shown, *tokens], np.int32),
                    sampled=np.arange(len(shown) + len(tokens)) >= len(shown),
                    logprobs=np.array([*([0.0] * len(shown)), *logprobs], np.float32),
                    versions=np.array([*([-1] * len(shown)), *of_tokens], np.int32),
                    proofs=prove(states),
                    proof_versions=versions,
                    reward=0.0,
                    finish=end,
                )
            )
        return self.rewarded(Group(position, lease.version, tuple(rollouts)), task)

    def rewarded(self, group: Group, task: Task | None = None) -> Group:
        """The group with the rewards that the environment gives."""
        task = task or self.environment.task(task_seed(beacon_of(group.version), group.position))
        transcripts = [
            (
                *task.messages,
                Message("assistant", self.renderer.text(rollout.tokens[rollout.sampled].tolist())),
            )
            for rollout in group.rollouts
        ]
        rewards = asyncio.run(_score(self.environment, task, transcripts))
        pairs = zip(group.rollouts, rewards, strict=True)
        return replace(group, rollouts=tuple(replace(rollout, reward=reward) for rollout, reward in pairs))

    def recomputed(self, rollout: Rollout, version: int) -> Rollout:
        """The rollout with the log-probabilities and proofs that a version gives to its tokens, whoever drew them."""
        policy = self.policies[version]
        states = policy.states([rollout.tokens[: rollout.end - 1]])[0][rollout.prompt - 1 :]
        rows = policy.logits(states).numpy()
        logprobs = np.zeros(len(rollout.tokens), np.float32)
        for place in np.flatnonzero(rollout.sampled):
            logprobs[place] = processed(rows[place - rollout.prompt], self.terms.sampling)[
                rollout.tokens[place]
            ]
        proofs = prove(states)
        return replace(rollout, logprobs=logprobs, proofs=proofs, proof_versions=(version,) * len(proofs))

    @torch.inference_mode()
    def _sample(self, prompt: Sequence[int], seeds: Sequence[bytes], versions: Sequence[int]) -> list[Any]:
        """For each seed its tokens, log-probabilities, states and ending; decoded together, with a cache."""
        sampling, count = self.terms.sampling, len(seeds)
        rows = [list(prompt) for _ in seeds]
        drawn: list[list[float]] = [[] for _ in seeds]
        states: list[list[torch.Tensor]] = [[] for _ in seeds]
        ends: list[str | None] = [None] * count
        cache, version = DynamicCache(), versions[0]
        new = torch.tensor(rows)
        for t in range(sampling.max_tokens):
            wanted = versions[min(t // CHUNK, len(versions) - 1)]
            if wanted != version:  # all is read again with other weights
                cache, version, new = DynamicCache(), wanted, torch.tensor(rows)
            model = self.policies[version].model
            read = model.model(new, cache=cache, use_cache=True).last_hidden_state[:, -1]
            logits = model.lm_head(read).float().numpy()
            chosen = []
            for row in range(count):
                logprobs = processed(logits[row], sampling)
                token = choose(logprobs, noise(seeds[row], t, self.model.vocab))
                chosen.append([token])
                rows[row].append(token)
                if ends[row] is None:
                    states[row].append(read[row])
                    drawn[row].append(float(logprobs[token]))
                    said = rows[row][len(prompt) :]
                    ends[row] = finish(
                        sampling, said, self.renderer.text, 0, self.model.context - len(rows[row])
                    )
            if all(ends):
                break
            new = torch.tensor(chosen)
        return [
            (rows[row][len(prompt) :][: len(drawn[row])], drawn[row], torch.stack(states[row]), ends[row])
            for row in range(count)
        ]


async def _score(environment: Environment, task: Task, transcripts: Any) -> tuple[float, ...]:
    return await environment.score(task, transcripts)


def prove(states: torch.Tensor) -> tuple[bytes, ...]:
    return tuple(toploc.build_proofs_bytes(states, CHUNK, 128, skip_prefill=True))


def edited(
    groups: tuple[Group, ...], change: Callable[[Rollout], Rollout], place: int = 0
) -> tuple[Group, ...]:
    """The groups with one rollout of the first of them changed."""
    first, *rest = groups
    rollouts = list(first.rollouts)
    rollouts[place] = change(rollouts[place])
    return (replace(first, rollouts=tuple(rollouts)), *rest)
