"""The same seed does the same; a recording makes it happen again, and notices when something else happens."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from protocol.errors import NodeError
from protocol.testing import Conditions, Diverged, Recording, Swarm
from tests.protocol.testing.words import Ask, Ear, Word

ROUGH = Conditions(
    jitter=timedelta(milliseconds=20), loss=0.1, duplication=0.1, reordering=0.2, corruption=0.1
)


def talk(swarm: Swarm, words: int = 20) -> list[list[str]]:
    """Three nodes that all talk to one another; what each heard."""
    nodes = swarm.nodes(3)
    ears = [Ear(node) for node in nodes]

    async def chat(number: int) -> None:
        for word in range(words):
            for other in nodes:
                if other is not nodes[number]:
                    with suppress(NodeError):
                        await nodes[number].request(other.peer_id, Ask(f"{number}-{word}"))

    async def scene() -> None:
        await asyncio.gather(*(nodes[i].spawn(chat(i)) for i in range(3)))

    swarm.run(scene())
    return [ear.heard for ear in ears]


def recorded(seed: int) -> tuple[list[list[str]], Recording]:
    with Swarm(seed=seed, keyed=True, conditions=ROUGH, record=True) as swarm:
        return talk(swarm), swarm.recording


def test_the_same_seed_does_the_same_and_another_something_else() -> None:
    heard, recording = recorded(5)
    assert recorded(5) == (heard, recording)
    assert recorded(6)[0] != heard


def test_a_recording_is_replayed_from_its_file(tmp_path: Path) -> None:
    heard, recording = recorded(5)
    recording.save(tmp_path / "scene.jsonl")
    read = Recording.load(tmp_path / "scene.jsonl")
    assert read.seed == 5 and len(read.entries) == len(recording.entries)
    with Swarm(
        keyed=True, replay=read
    ) as swarm:  # the conditions are perfect; the faults are in the recording
        assert talk(swarm) == heard


def test_a_replay_that_sends_something_else_ends_with_the_first_difference() -> None:
    _, recording = recorded(5)
    with Swarm(keyed=True, replay=recording) as swarm:
        alice, bob = swarm.nodes(2)
        Ear(bob)
        with pytest.raises(
            Diverged, match=r"Entry 0 is call swarm-test\.ask .* here came call swarm-test\.word"
        ):
            swarm.run(alice.send(bob.peer_id, Word("something else")))


def test_a_replay_that_goes_on_too_long_says_where_the_recording_ends() -> None:
    with Swarm(seed=5, keyed=True, conditions=ROUGH, record=True) as swarm:
        talk(swarm, words=2)
        recording = swarm.recording
    with Swarm(keyed=True, replay=recording) as swarm, pytest.raises(Diverged):
        talk(swarm, words=3)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scene.jsonl"
    for text in ("", "[]\n", '{"schema":99}\n', '{"schema":1,"seed":0}\n{"at":1}\n', "nonsense"):
        path.write_text(text)
        with pytest.raises(ValueError, match="not a recording"):
            Recording.load(path)
