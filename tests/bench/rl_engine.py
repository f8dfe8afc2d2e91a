"""The engine on SmolLM2-135M: continuous batching, static batches, one request at a time, proofs, verification.

One thread everywhere, and seconds of the processor, so that a busy machine changes all sides alike.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import GenerationConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

from rl.engine.generator import Generator
from rl.engine.interface import CHUNK, Request
from rl.engine.limits import Limits
from rl.engine.prefill import forward
from rl.engine.proving import TOPK, Prover
from rl.engine.shape import Shape
from rl.engine.weights import Weights, assemble
from rl.sampling import Sampling, noise
from tests.bench.measurement import Measurement
from tests.eval.toploc.model import Source
from tests.eval.toploc.model import assemble as peer
from toploc import verify_proofs_bytes

REQUESTS, CONCURRENT = 64, 16
ALONE = slice(0, REQUESTS, 13)
"""Requests that are also run one at a time; a step alone costs the same for all."""


@dataclass
class Run:
    """What came of some requests: processor seconds, sampled tokens, lengths of prompts, transcripts, proofs."""

    seconds: float
    tokens: int
    prompts: dict[str, int]
    transcripts: dict[str, tuple[int, ...]]
    proofs: dict[str, tuple[bytes, ...]]

    @property
    def speed(self) -> float:
        """Tokens by second of the processor."""
        return self.tokens / self.seconds


def run() -> Measurement:
    """Measure."""
    torch.set_num_threads(1)
    source = Source()
    config, found = source.config(), source.weights()
    shape = Shape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head=config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        context=512,
        tie=True,
        theta=config.rope_parameters["rope_theta"],
        epsilon=config.rms_norm_eps,
    )
    weights = assemble(shape, found.__getitem__, "bfloat16")
    module = peer(config, found, torch.bfloat16, "sdpa")
    asked = requests(shape.vocab)
    _generate(weights, asked[:2], 2)
    continuous = [_generate(weights, asked, CONCURRENT)]
    reading = [_read(weights, continuous[0])]
    static = [
        _generate(weights, asked[at : at + CONCURRENT], CONCURRENT) for at in range(0, REQUESTS, CONCURRENT)
    ]
    alone = _generate(weights, asked[ALONE], 1)
    theirs = _transformers(module, asked[ALONE])
    continuous.append(_generate(weights, asked, CONCURRENT))
    reading.append(_read(weights, continuous[0]))

    speed = statistics.mean(each.speed for each in continuous)
    seconds = statistics.mean(each.seconds for each in continuous)
    read = statistics.mean(reading)
    transcripts = sum(map(len, continuous[0].transcripts.values()))
    static_speed = sum(each.tokens for each in static) / sum(each.seconds for each in static)
    alone_seconds = seconds * speed / alone.speed
    return Measurement(
        {
            "tokens_per_s": speed,
            "static_batches_tokens_per_s": static_speed,
            "one_by_one_tokens_per_s": alone.speed,
            "verified_transcript_tokens_per_s": transcripts / read,
            "proofs_of_generation": _proving(weights, continuous[0]) / seconds,
        },
        {"transformers_one_by_one_tokens_per_s": theirs.speed},
        {
            "speed_vs_transformers": speed / theirs.speed,
            "speed_vs_static_batches": speed / static_speed,
            "verification_vs_engine": seconds / read,
            "verification_vs_one_by_one": alone_seconds / read,
        },
    )


def requests(vocab: int) -> list[Request]:
    """Prompts of 16 to 128 tokens, outputs of 16 to 256 with a geometric law."""
    draw = np.random.default_rng(7)
    made = []
    for number in range(REQUESTS):
        prompt = tuple(int(token) for token in draw.integers(3, vocab, int(draw.integers(16, 129))))
        count = int(np.clip(draw.geometric(1 / 96), 16, 256))
        made.append(Request(f"r{number}", prompt, draw.bytes(32), Sampling(max_tokens=count), proofs=True))
    return made


def _seconds(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def _generate(weights: Weights, asked: Sequence[Request], slots: int) -> Run:
    made = Run(
        0.0, 0, {each.id: len(each.tokens) for each in asked}, {each.id: each.tokens for each in asked}, {}
    )
    generator = Generator(weights, limits=Limits(slots=slots))

    def drain() -> None:
        for each in asked:
            generator.add(each)
        while generator.busy:
            for name, piece in generator.step():
                made.transcripts[name] += piece.tokens
                made.tokens += len(piece.tokens)
                if piece.finish:
                    made.proofs[name] = piece.proofs

    made.seconds = _seconds(drain)
    generator.close()
    return made


class _Noise(LogitsProcessor):
    """Makes the largest logit the token that the engine's law draws."""

    def __init__(self, asked: Request) -> None:
        self._asked = asked

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        drawn = noise(self._asked.seed, input_ids.shape[1] - len(self._asked.tokens), scores.shape[1])
        return torch.log_softmax(scores.float(), -1) + torch.from_numpy(drawn)


def _transformers(module: LlamaForCausalLM, asked: Sequence[Request]) -> Run:
    def one(each: Request) -> tuple[int, ...]:
        config = GenerationConfig(
            max_new_tokens=each.sampling.max_tokens, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        with torch.inference_mode():
            ids = torch.tensor([each.tokens])
            found = module.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=config,
                logits_processor=LogitsProcessorList([_Noise(each)]),
            )
        return tuple(found[0].tolist())

    one(asked[0])
    made = Run(0.0, sum(each.sampling.max_tokens for each in asked), {}, {}, {})
    made.seconds = _seconds(lambda: made.transcripts.update({each.id: one(each) for each in asked}))
    return made


def _read(weights: Weights, made: Run) -> float:
    """Seconds to compute the states of all transcripts again and to check the proofs of them."""

    def check() -> None:
        read = forward(weights, list(made.transcripts.values()))
        for (name, prompt), states in zip(made.prompts.items(), read, strict=True):
            proofs = made.proofs[name]
            results = verify_proofs_bytes(
                states[prompt - 1 : -1], list(proofs), CHUNK, TOPK, skip_prefill=True
            )
            if len(results) != len(proofs) or any(each.exp_mismatches > TOPK // 4 for each in results):
                raise AssertionError(f"the proofs of {name} do not hold: {results}")

    return _seconds(check)


def _proving(weights: Weights, made: Run) -> float:
    """Seconds that the proofs of a run cost: its states handed over again, a row of each request by turns."""
    read = forward(weights, list(made.transcripts.values()))
    rows = {
        name: states[prompt - 1 : -1].unbind()
        for (name, prompt), states in zip(made.prompts.items(), read, strict=True)
    }
    prover = Prover()

    def prove() -> None:
        for name in rows:
            prover.begin(name)
        for number in range(max(map(len, rows.values()))):
            for name, mine in rows.items():
                if number < len(mine):
                    prover.add(name, mine[number])
        for name in rows:
            proofs, _ = prover.finish(name)
            if len(proofs) != len(made.proofs[name]):
                raise AssertionError(f"{name} has other proofs")

    with torch.inference_mode():
        seconds = _seconds(prove)
    prover.close()
    return seconds
