import pytest
import torch

from rl.validation.judging import Judge
from rl.validation.tolerances import Tolerances
from tests.rl.validation.world import VAL, World


@pytest.fixture(scope="session")
def world() -> World:
    torch.set_num_threads(1)
    return World()


@pytest.fixture
def judge(world: World) -> Judge:
    return judge_of(world)


def judge_of(world: World) -> Judge:
    return Judge(
        VAL.peer_id, world.terms, world.remote, world.renderer, world.policy_of, Tolerances.of("float32")
    )
