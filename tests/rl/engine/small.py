"""A small model with random weights, as the engine and as transformers know it, and the plainest way to generate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from rl.engine.generator import Generator
from rl.engine.interface import Piece, Request
from rl.engine.limits import Limits
from rl.engine.shape import Shape
from rl.engine.weights import Kind, Weights, assemble
from rl.sampling import Sampling, choose, noise, processed

SHAPE = Shape(48, 3, 6, 3, 8, 96, 260, 512, True, theta=5000.0, epsilon=1e-5)
SEED = bytes(range(32))


def as_text(tokens: Sequence[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode("latin-1")


@cache
def reference(seed: int = 0, shape: Shape = SHAPE) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        max_position_embeddings=shape.context,
        tie_word_embeddings=shape.tie,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        rms_norm_eps=shape.epsilon,
    )
    module = LlamaForCausalLM(config).eval()
    with torch.no_grad():  # so that what a token is follows from what came before it
        for name, each in module.named_parameters():
            each.normal_(1.0 if "norm" in name else 0.0, 0.2)
    return module


@cache
def weights(seed: int = 0, kind: Kind = "float32", shape: Shape = SHAPE) -> Weights:
    return assemble(shape, reference(seed, shape).state_dict().__getitem__, kind)


def generator(limits: Limits | None = None, kind: Kind = "float32") -> Generator:
    return Generator(weights(0, kind), 0, limits, as_text)


def request(name: str = "a", length: int = 9, **settings: object) -> Request:
    """A prompt that its length gives, 40 tokens and a seed that its name gives."""
    tokens = tuple(int(each) for each in np.random.default_rng(length).integers(0, 256, length))
    asked = Request(name, tokens, name.encode().ljust(32, b"."), Sampling(max_tokens=40))
    return replace(asked, **settings)  # type: ignore[arg-type]


@dataclass
class Out:
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    last: Piece | None = None

    def take(self, piece: Piece) -> None:
        self.tokens += piece.tokens
        self.logprobs += piece.logprobs
        self.versions += piece.versions
        self.last = piece if piece.finish else None


def run(engine: Generator, *requests: Request) -> dict[str, Out]:
    """All requests at once, to their end."""
    for each in requests:
        engine.add(each)
    return drain(engine, {each.id: Out() for each in requests})


def drain(engine: Generator, outs: dict[str, Out]) -> dict[str, Out]:
    while engine.busy:
        for name, piece in engine.step():
            outs[name].take(piece)
    return outs


def plainly(asked: Request, seed: int = 0) -> tuple[list[int], list[float]]:
    """Tokens and log-probabilities of transformers' model, the whole transcript computed for each token."""
    module = reference(seed)
    tokens, logprobs = list(asked.tokens), []
    for number in range(asked.sampling.max_tokens - asked.first):
        with torch.no_grad():
            row = module(torch.tensor([tokens])).logits[0, -1].numpy()
        law = processed(row, asked.sampling)
        tokens.append(choose(law, noise(asked.seed, asked.first + number, len(row))))
        logprobs.append(float(law[tokens[-1]]))
        if tokens[-1] in asked.sampling.eos:
            break
    return tokens[len(asked.tokens) :], logprobs
