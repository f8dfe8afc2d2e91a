"""Fuzzes every decoder for a bounded time: ``python -m tests.fuzz [--seconds N] [--list] [TARGET …]``.

Each target runs in a process of its own, with atheris where it is installed (the extra ``fuzz``), else with plain
random changes to the seeds. What it finds lies in ``runs/fuzz/TARGET``: the corpus, which the next run goes on from,
and an input for each defect.
"""

import argparse
import importlib.util
import random
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "runs" / "fuzz"
PACKAGES = ("protocol", "diloco", "shardcast", "node", "toploc", "rl")
COMPILED = (
    "diloco.codec.kernels", "diloco.compiled", "diloco.outer_step", "diloco.norm", "diloco.golden", "toploc.field",
    "toploc.kernels", "toploc.selection", "toploc.verification",
)  # fmt: skip
"""What numba compiles, which an instrumented function cannot be."""
_GRACE = 90.0  # seconds for imports and instrumentation
_LARGEST = 1 << 14
_MEMORY_MB = 4096


def main() -> int:
    """Runs the targets one after the other; 1 if any has a defect."""
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("targets", nargs="*", help="which; all unless given; message:NAME for one message")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all together, without imports")
    parser.add_argument("--list", action="store_true", help="only name the targets")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return fuzz_one(arguments.one, arguments.seconds)
    import tests.fuzz.decoders  # noqa: F401
    from protocol.testing.fuzzing import TARGETS

    if arguments.list:
        print("\n".join(sorted(TARGETS)))
        return 0
    names = arguments.targets or sorted(TARGETS)
    each = arguments.seconds / len(names)
    by = "atheris" if importlib.util.find_spec("atheris") else "plain changes, since atheris is not installed"
    print(f"{len(names)} decoders, {each:.1f} s each, with {by}.")
    defects = [name for name in names if not fuzz_apart(name, each)]
    if defects:
        print(f"Defects in {', '.join(defects)}; the inputs are in {RESULTS}.")
    return 1 if defects else 0


def fuzz_apart(name: str, seconds: float) -> bool:
    """Fuzzes one target in a process of its own; whether all went well."""
    command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(seconds)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=seconds + _GRACE, errors="replace"
        )
    except subprocess.TimeoutExpired:
        print(f"{name:18} does not end")
        return False
    tried = re.findall(r"(?:Done |tried )(\d+)", done.stdout + done.stderr)
    print(f"{name:18} {tried[-1] if tried else '?':>9} inputs  {time.monotonic() - began:5.1f} s", flush=True)
    if done.returncode != 0:
        print((done.stdout + done.stderr)[-4000:])
    return done.returncode == 0


def fuzz_one(name: str, seconds: float) -> int:
    """Fuzzes one target in this process."""
    folder = RESULTS / re.sub(r"[^a-z0-9.-]", "_", name)
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("atheris"):
        return _with_atheris(name, seconds, folder)
    return _with_plain_changes(name, seconds, folder)


def _with_atheris(name: str, seconds: float, folder: Path) -> int:
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=list(PACKAGES), exclude=list(COMPILED)):
        import tests.fuzz.decoders as decoders
        from protocol.testing.fuzzing import load_target

        decoders.declare_messages()
        fuzzed = load_target(name)
    for number, seed in enumerate(fuzzed.seeds):
        (folder / "corpus" / f"seed-{number}").write_bytes(seed)
    options = [
        f"-max_total_time={max(1, round(seconds))}", f"-max_len={_LARGEST}", "-timeout=20",
        f"-rss_limit_mb={_MEMORY_MB}", f"-artifact_prefix={folder}/defect-", "-print_final_stats=1", "-seed=1",
        "-use_value_profile=1",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], fuzzed.run)
    atheris.Fuzz()
    return 0


def _with_plain_changes(name: str, seconds: float, folder: Path) -> int:
    import tests.fuzz.decoders as decoders
    from protocol.testing.fuzzing import load_target, mutated

    decoders.declare_messages()
    fuzzed = load_target(name)
    chance, end, tried = random.Random(name), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutated(chance.choice(fuzzed.seeds), chance)
        try:
            fuzzed.run(data)
        except BaseException:
            (folder / f"defect-{tried}").write_bytes(data)
            raise
        tried += 1
    print(f"tried {tried}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
