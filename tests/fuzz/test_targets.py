"""Every entry point takes its seeds and some hundred changes of them: the short form of `make fuzz`."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.messages import REGISTRY, Role
from protocol.testing.fuzzing import TARGETS, Fuzzed, load_target, mutated, target
from tests.fuzz.decoders import declare_messages

declare_messages()
CHANGES = 150


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_decoder_takes_or_refuses_whatever_comes(name: str) -> None:
    fuzzed = load_target(name)
    assert fuzzed.seeds or name == "topic"
    chance = random.Random(name)
    for seed in fuzzed.seeds:
        fuzzed.run(seed)
    for data in (b"", b"\x00", b"\xff" * 64, bytes(4096)):
        fuzzed.run(data)
    for _ in range(CHANGES if fuzzed.seeds else 0):
        fuzzed.run(mutated(chance.choice(fuzzed.seeds), chance))


def test_every_message_has_an_entry_point() -> None:
    for spec in REGISTRY.all():
        if spec.role is not Role.PART and not spec.cls.__module__.startswith("tests."):
            fuzzed = load_target(f"message:{spec.name}")
            assert fuzzed.seeds, spec.name
            fuzzed.run(fuzzed.seeds[0])


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="named 'envelope'"):
        target("envelope")(lambda: Fuzzed(lambda data: None, ()))


def test_the_command_fuzzes_one_target(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "texts"], capture_output=True, text=True, timeout=200
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "texts" in done.stdout and "inputs" in done.stdout
