"""The most memory that an origin, a relay and a client have resident while a file passes, small and large.

A child's peak is read by itself. What its in-flight shards may take is not part of the target: four connections of
4 MiB at a client, and as much again at a relay, which passes on what is coming.
"""

from contextlib import ExitStack

from tests.bench import casting
from tests.bench.measurement import Measurement

SIZES = {"64_mib": 64 << 20, "2_gib": 2 << 30}


def run() -> Measurement:
    """Measure, with fresh processes for each size."""
    figures = {}
    for label, size in SIZES.items():
        with casting.folder() as folder, ExitStack() as stack:
            casting.write_random(folder / "file", size)
            origin = stack.enter_context(casting.origin(folder / "origin"))
            relay = stack.enter_context(casting.relay(folder / "relay", origin.answer()))
            client = stack.enter_context(casting.client(folder / "copy", relay.answer()))
            assert client.answer() == "ready"
            origin.ask(str(folder / "file"))
            client.ask("0")
            for name, process in (("origin", origin), ("relay", relay), ("client", client)):
                figures[f"{name}_of_{label}_mb"] = process.ask("memory")
    return Measurement(
        figures,
        ratios={
            f"{name}_2_gib_vs_64_mib": figures[f"{name}_of_2_gib_mb"] / figures[f"{name}_of_64_mib_mb"]
            for name in ("origin", "relay", "client")
        },
    )
