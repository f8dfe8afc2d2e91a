"""What a simulated world keeps for all its members together."""

from tests.sim.judge import Judge
from tests.sim.setting import Shape
from tests.sim.world import World


def test_a_certificate_that_many_are_shown_is_verified_and_kept_once() -> None:
    world = World(Shape(voters=5, others=0), 0, Judge())
    assert world.run(until=600.0, when=lambda: world.newest[1] >= 5)
    joined = [world.add(f"w{number:03}", seated=False) for number in range(6)]
    assert world.run(until=world.now + 60.0, when=lambda: all(p.state is not None for p in joined))
    oldest = [process.disk.chain[1] for process in joined]
    assert all(certified is oldest[0] for certified in oldest)
