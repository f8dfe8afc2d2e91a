import numpy as np
import pytest
import torch

from protocol.errors import NodeError
from rl.engine import prefill
from rl.engine.prefill import forward, logprobs
from rl.sampling import Sampling
from tests.rl.engine.small import reference, weights


def test_whole_sequences_have_the_states_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "PACK", 128)  # so that some share a step and one needs several
    draw = np.random.default_rng(1)
    texts = [draw.integers(0, 260, length).astype(np.int32) for length in (5, 300, 64, 1, 128, 40)]
    for text, states in zip(texts, forward(weights(), texts), strict=True):
        with torch.no_grad():
            expected = reference().model(torch.from_numpy(text).long()[None]).last_hidden_state[0]
        assert torch.allclose(states, expected, atol=2e-5)


def test_log_probabilities_are_those_of_the_sampled_distribution() -> None:
    text = list(range(100))
    states = forward(weights(), [text])[0]
    with torch.no_grad():
        rows = reference()(torch.tensor([text])).logits[0]
    expected = torch.log_softmax(rows / 0.7, -1)[torch.arange(99), torch.tensor(text[1:])]
    found = logprobs(weights(), states[:-1], text[1:], Sampling(temperature=0.7))
    assert np.allclose(found, expected.numpy(), atol=1e-4)
    with pytest.raises(ValueError):
        logprobs(weights(), states, text[1:], Sampling())


@pytest.mark.parametrize("text", [[], [260], [-1], [1] * 513])
def test_what_is_no_sequence_of_the_model_is_refused(text: list[int]) -> None:
    with pytest.raises(NodeError):
        forward(weights(), [[1, 2], text])
