"""``make sim SEEDS=200`` plays so many seeds, ``make sim SEED=17`` one with its story. One that fails is shrunk."""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from tests.sim.play import Played, play
from tests.sim.schedule import draw
from tests.sim.shrink import shrink
from tests.sim.trace import Storyteller


def report(played: Played) -> str:
    """What a failing seed was, how it replays, and the smallest schedule found that still fails."""
    small = shrink(played.schedule, lambda schedule: bool(play(schedule).broken))
    lines = [
        f"Seed {played.schedule.seed} broke: {played.broken}",
        f"It replays with: make sim SEED={played.schedule.seed}",
        f"{small.shape.voters} voters, {small.shape.others} others. "
        f"Of {len(played.schedule.faults)} faults these are enough:",
        *(f"  {fault}" for fault in small.faults),
        f"They break: {play(small).broken}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """``python -m tests.sim``; 0 when every invariant held."""
    parser = argparse.ArgumentParser(prog="make sim", description="Random fault schedules on simulated runs.")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="one seed alone, told as a story")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        schedule = draw(chosen.seed)
        print(f"{schedule.shape.voters} voters, {schedule.shape.others} others")
        for fault in schedule.faults:
            print(f"  {fault}")
        played = play(schedule, Storyteller())
        print(
            report(played) if played.broken else f"Seed {chosen.seed} holds: {played.rounds} rounds decided."
        )
        return 1 if played.broken else 0
    began, totals, failed = time.process_time(), {"events": 0, "rounds": 0, "attempts": 0}, 0
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        played = play(draw(seed))
        for name in totals:
            totals[name] += getattr(played, name)
        if played.broken:
            failed += 1
            print(report(played), flush=True)
    seconds = time.process_time() - began
    told = {
        "seeds": chosen.seeds,
        "failed": failed,
        **totals,
        "events_per_second": round(totals["events"] / seconds),
    }
    print(json.dumps(told))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
