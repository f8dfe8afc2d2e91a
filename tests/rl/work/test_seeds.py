from hypothesis import given
from hypothesis import strategies as st

from protocol.identity import Identity
from protocol.units import Digest
from rl.work.seeds import task_seed, token_seed

ANA, BEN = (Identity.ephemeral(letter * 32).peer_id for letter in (b"a", b"b"))
beacons = st.binary(min_size=32, max_size=32).map(Digest)
positions = st.integers(0, 2**63 - 1)


@given(beacons, positions)
def test_a_task_seed_depends_on_beacon_and_position_alone_and_has_63_bits(
    beacon: Digest, position: int
) -> None:
    seed = task_seed(beacon, position)
    assert 0 <= seed < 2**63
    assert seed == task_seed(beacon, position)
    assert seed != task_seed(beacon, position ^ 1)
    assert seed != task_seed(Digest(bytes(31) + b"\1" if beacon == bytes(32) else bytes(32)), position)


@given(beacons, positions, st.integers(0, 255))
def test_a_token_seed_differs_by_whatever_it_is_made_of(beacon: Digest, position: int, index: int) -> None:
    seeds = {
        token_seed(beacon, position, ANA, index),
        token_seed(beacon, position, BEN, index),
        token_seed(beacon, position ^ 1, ANA, index),
        token_seed(beacon, position, ANA, index + 1),
        token_seed(Digest(bytes(byte ^ 1 for byte in beacon)), position, ANA, index),
    }
    assert len(seeds) == 5
    assert {len(seed) for seed in seeds} == {32}


def test_the_seeds_are_the_same_on_every_machine_and_in_every_release() -> None:
    beacon = Digest(bytes(range(32)))
    assert task_seed(beacon, 7) == TASK
    assert token_seed(beacon, 7, ANA, 3).hex() == TOKENS


TASK = 4829566529135125391
TOKENS = "f3682ec60dee9df08caa072c17aa2e43e879afd286cba54d00eefa5ab9a59f58"
