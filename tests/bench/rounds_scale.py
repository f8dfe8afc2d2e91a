"""Simulated runs of 10, 100 and 1,000 members: events, processor seconds, control bytes of a member in a round.

The round machine, the routing and all encoded sizes are real; signatures are a keyed hash, an envelope is
verified once, and the reduce is flows. Up to 31 members have a seat. At constant churn one member is lost and replaced
in each round, whatever the size. ``busy`` is 1,000 members of which 20 are replaced in each of 50 rounds.
"""

from tests.bench.measurement import Measurement
from tests.sim.crowd import grow

ROUNDS_EACH = 20


def run() -> Measurement:
    """Measure; takes about three minutes."""
    figures: dict[str, float] = {}
    for members in (10, 100, 1000):
        grown = grow(members, rounds=ROUNDS_EACH, replaced=1)
        figures[f"bytes_per_member_and_round_{members}"] = grown.bytes_per_member_round
        figures[f"signs_of_life_bytes_{members}"] = grown.signs_of_life
        figures[f"contributions_in_time_{members}"] = grown.everyone
    busy = grow(1000, rounds=50, replaced=20)
    figures["busy_seconds"] = busy.seconds
    figures["busy_events"] = busy.events
    figures["busy_bytes_per_member_and_round"] = busy.bytes_per_member_round
    growth = figures["bytes_per_member_and_round_1000"] / figures["bytes_per_member_and_round_10"]
    return Measurement(figures=figures, ratios={"bytes_1000_vs_10": growth})
