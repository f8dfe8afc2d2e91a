"""A task so small that a policy of eighty thousand values learns it within seconds, and a sampler for it."""

from collections.abc import Sequence
from random import Random

import numpy as np
import torch

from diloco.config import ModelSection
from diloco.data.tokenizer import load_tokenizer, train_tokenizer
from diloco.model import model_with
from rl.environments.interface import Message, Task
from rl.environments.reverse_text import ReverseText
from rl.environments.transcript import Conversation, Renderer
from rl.rollouts.record import Group, Rollout

MODEL = ModelSection(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocab=260, context=40)
RENDERER = Renderer(load_tokenizer(train_tokenizer([], MODEL.vocab), MODEL.vocab))
GROUP, MOST_TOKENS = 8, 12


class FewLetters(ReverseText):
    """Two letters of four are turned around: who knows the form alone is right one time in sixteen."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def task(self, seed: int) -> Task:
        word = "".join(Random(seed).choices("abcd", k=2))
        return Task(seed, (Message("user", f"<t>{word}</t>"),), {"text": f"<t>{word[::-1]}</t>"})


ENVIRONMENT = FewLetters()


async def groups(positions: Sequence[int], version: int, params: np.ndarray) -> tuple[Group, ...]:
    """A group of rollouts for each position, sampled and rewarded; a function of the arguments."""
    tasks = [ENVIRONMENT.task(position) for position in positions]
    talks = [Conversation(RENDERER, task.messages) for task in tasks for _ in range(GROUP)]
    _sample(talks, version, params, positions[0])
    made = []
    for number, (position, task) in enumerate(zip(positions, tasks, strict=True)):
        mine = talks[number * GROUP : (number + 1) * GROUP]
        rewards = await ENVIRONMENT.score(task, [talk.messages for talk in mine])
        rollouts = tuple(
            Rollout(
                position, index, np.array(talk.tokens, np.int32), np.array(talk.sampled),
                np.array(talk.logprobs, np.float32), np.array(talk.versions, np.int32), (), (), reward,
                "eos" if talk.tokens[-1] == RENDERER.end else "length",
            )
            for index, (talk, reward) in enumerate(zip(mine, rewards, strict=True))
        )  # fmt: skip
        made.append(Group(position, version, rollouts))
    return tuple(made)


def _sample(talks: Sequence[Conversation], version: int, params: np.ndarray, seed: int) -> None:
    """Let a policy answer in all conversations, whose prompts are of one length."""
    random = torch.Generator().manual_seed(seed)
    module = model_with(MODEL, params)
    tokens = torch.tensor([talk.tokens for talk in talks])
    drawn: list[list[tuple[int, float]]] = [[] for _ in talks]
    with torch.no_grad():
        for _ in range(MOST_TOKENS):
            logs = torch.log_softmax(module(input_ids=tokens, use_cache=False).logits[:, -1], -1)
            chosen = torch.multinomial(logs.exp(), 1, generator=random)
            for row, (token, log) in enumerate(
                zip(chosen[:, 0].tolist(), logs.gather(1, chosen)[:, 0].tolist(), strict=True)
            ):
                if not drawn[row] or drawn[row][-1][0] != RENDERER.end:
                    drawn[row].append((token, log))
            tokens = torch.cat([tokens, chosen], 1)
    for talk, turn in zip(talks, drawn, strict=True):
        ids, logs_ = zip(*turn, strict=True)
        talk.say(ids, logs_, [version] * len(ids))
