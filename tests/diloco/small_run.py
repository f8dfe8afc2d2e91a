"""A run so small that its workers answer at once: five thousand values, a corpus of counting sentences."""

from pathlib import Path

from diloco.config import RunSections
from diloco.creation import create_genesis
from diloco.genesis import Genesis
from protocol.units import PeerId

OPERATOR = PeerId("12D3KooW" + "A" * 44)

# With two workers the rows of the embedding (301) and of the feed-forward layers (35) do not divide.
MODEL = {
    "hidden": 12,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "intermediate": 35,
    "vocab": 301,
    "context": 16,
}


def small_sections(**changes: dict[str, object]) -> RunSections:
    sections: dict[str, dict[str, object]] = {
        "run": {"rounds": 4},
        "model": dict(MODEL),
        "data": {"source": "text", "paths": ["text"], "max_bytes": 20_000},
        "inner": {"batch": 5, "lr": 1e-2, "warmup_steps": 0},
        "round": {"chunk": 1024, "inner_steps": 4, "evaluation_batches": 2},
    }
    for section, keys in changes.items():
        sections.setdefault(section, {}).update(keys)
    return RunSections.model_validate(sections)


def write_text(folder: Path) -> None:
    (folder / "text").mkdir(parents=True, exist_ok=True)
    for file in range(10):
        lines = [f"{number} and {file} are {number + file}.\n" for number in range(file, 120 + file)]
        (folder / "text" / f"{file}.txt").write_text("".join(lines))


def small_genesis(folder: Path, **changes: dict[str, object]) -> Genesis:
    write_text(folder)
    return create_genesis(small_sections(**changes), OPERATOR, folder)
