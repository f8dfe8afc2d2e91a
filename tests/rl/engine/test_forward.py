from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from rl.engine.cache import Cache
from rl.engine.forward import Stretch, logits, step
from rl.engine.shape import Shape
from rl.engine.weights import assemble
from tests.rl.engine.small import SHAPE, reference

NONE = torch.empty(0, dtype=torch.int64)
SHAPES = [
    SHAPE,
    replace(SHAPE, tie=False, theta=10_000.0, epsilon=1e-6),
    replace(SHAPE, heads=4, kv_heads=4, head=16),
]


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, SHAPE.vocab, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_read_or_decoded_the_states_are_those_of_transformers(shape: Shape) -> None:
    module = reference(3, shape)
    weights = assemble(shape, module.state_dict().__getitem__)
    cache = Cache(shape, 3, weights.kind, torch.device("cpu"))
    text = tokens(150)
    with torch.no_grad():
        expected = module.model(text[None]).last_hidden_state[0]
        rows = module(text[None]).logits[0]
    parts = [step(weights, cache, NONE, NONE, [Stretch(0, 0, text[:70])])]
    parts += [step(weights, cache, text[at : at + 1], torch.tensor([at])) for at in range(70, 80)]
    parts += [step(weights, cache, NONE, NONE, [Stretch(0, 80, text[80:])])]
    assert torch.allclose(torch.cat(parts), expected, atol=2e-5)
    assert torch.allclose(logits(weights, torch.cat(parts)), rows, atol=1e-4)


def test_in_bfloat16_the_states_differ_from_those_of_transformers_by_rounding_only() -> None:
    module = reference(3)
    exact = assemble(SHAPE, module.state_dict().__getitem__)
    rounded = assemble(SHAPE, module.state_dict().__getitem__, "bfloat16")
    text = tokens(100)
    states = [
        step(
            weights, Cache(SHAPE, 1, weights.kind, torch.device("cpu")), NONE, NONE, [Stretch(0, 0, text)]
        ).float()
        for weights in (exact, rounded)
    ]
    with torch.no_grad():
        theirs = deepcopy(reference(3)).to(torch.bfloat16).model(text[None]).last_hidden_state[0].float()
    ours, peers = ((each - states[0]).norm() / states[0].norm() for each in (states[1], theirs))
    assert ours < 1.2 * peers


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_a_row_does_not_depend_on_the_rows_beside_it(kind: str) -> None:
    weights = assemble(SHAPE, reference(3).state_dict().__getitem__, kind)  # type: ignore[arg-type]
    cache = Cache(SHAPE, 8, weights.kind, torch.device("cpu"))
    texts = [tokens(length, length) for length in (5, 70, 129, 33, 200, 1)]
    stretches = [Stretch(slot, 0, text) for slot, text in enumerate(texts)]
    together = step(weights, cache, NONE, NONE, stretches).split([len(text) for text in texts])
    newest = torch.arange(6)
    places = torch.tensor([len(text) for text in texts])
    decoded = step(weights, cache, newest, places, [Stretch(7, 0, tokens(90, 1))])
    for slot, text in enumerate(texts):
        alone = Cache(SHAPE, 1, weights.kind, torch.device("cpu"))
        assert torch.equal(step(weights, alone, NONE, NONE, [Stretch(0, 0, text)]), together[slot])
        one = step(weights, alone, newest[slot : slot + 1], places[slot : slot + 1])
        assert torch.equal(one[0], decoded[slot])


def test_the_cache_grows_without_losing_anything() -> None:
    weights = assemble(SHAPE, reference(3).state_dict().__getitem__)
    text = tokens(500)
    cache = Cache(SHAPE, 2, weights.kind, torch.device("cpu"))
    small = cache.room
    for at in range(0, 480, 96):
        step(weights, cache, NONE, NONE, [Stretch(1, at, text[at : at + 96])])
    state = step(weights, cache, NONE, NONE, [Stretch(1, 480, text[480:])])
    with torch.no_grad():
        expected = reference(3).model(text[None]).last_hidden_state[0, 480:]
    assert cache.room > small
    assert torch.allclose(state, expected, atol=2e-5)
