"""Did the demo show all that it promises?"""

from node.demo.verdict import Check
from node.demo_rl.facts import Facts
from node.demo_rl.plan import CHEAT, HONEST, TRAINER, VALIDATOR, WINDOW

LEAST_STEPS = 20
LEAST_GAIN = 2.0
"""Times as many held-out tasks are solved at the end, at least."""


def judge(facts: Facts) -> tuple[Check, ...]:
    """All promises."""
    return (
        Check("nothing went wrong", tuple(facts.trouble)),
        Check("the policy learns", tuple(_learns(facts))),
        Check("rollouts are up to two steps old, and no older", tuple(_stale(facts))),
        Check("the cheat is found, banned and told why", tuple(_cheat(facts))),
        Check("nobody honest is refused", tuple(_honest(facts))),
        Check("policies come by the relay", tuple(_relayed(facts))),
    )


def _learns(facts: Facts) -> list[str]:
    wrong = []
    if not facts.finished:
        wrong.append("The run did not come to its end.")
    if len(facts.steps) < min(LEAST_STEPS, facts.options.steps):
        wrong.append(f"{len(facts.steps)} GRPO steps were taken, and {LEAST_STEPS} are promised.")
    if len(facts.solved) < 2:
        wrong.append("The policy was not measured before and after.")
    else:
        before, after = facts.solved[min(facts.solved)], facts.solved[max(facts.solved)]
        if after < LEAST_GAIN * before:
            wrong.append(
                f"Held-out tasks solved went from {before:.1%} to {after:.1%}: that is not twice as many."
            )
    return wrong


def _stale(facts: Facts) -> list[str]:
    ages = facts.staleness()
    wrong = []
    if not ages or max(ages) > WINDOW:
        wrong.append(f"Groups that were trained on were {sorted(ages)} versions old.")
    if ages and max(ages) < WINDOW:
        wrong.append(f"No group was {WINDOW} versions old when it was trained on: nothing was asynchronous.")
    return wrong


def _cheat(facts: Facts) -> list[str]:
    verdicts = facts.verdicts(CHEAT)
    wrong = []
    accepted = sum(bool(event["accepted"]) for event in verdicts)
    if not verdicts:
        wrong.append("The cheat handed in nothing that was judged.")
    if accepted:
        wrong.append(f"{accepted} files of the cheat were accepted.")
    ban, told = facts.ban(), facts.told()
    if ban is None:
        wrong.append("The cheat was not banned.")
    elif not ban["evidence"] or not facts.evidence:
        wrong.append("No file was kept as evidence against the cheat.")
    if told is None or not told["reason"]:
        wrong.append("The cheat was not told why it was banned.")
    if ban is not None and facts.exits.get(CHEAT) in (None, 0):
        wrong.append("The cheat's node did not end with an error.")
    if ban is not None and not any(
        event["peer"] == facts.peer(CHEAT)
        for event in facts.of(TRAINER, "order.given")
        if event["order"] == "ban"
    ):
        wrong.append("The operator did not order the ban of the cheat.")
    return wrong


def _honest(facts: Facts) -> list[str]:
    wrong = []
    for name in HONEST:
        verdicts = facts.verdicts(name)
        refused = [event for event in verdicts if not event["accepted"]]
        if refused:
            wrong.append(
                f"{len(refused)} files of {name} were refused: {refused[0]['code']} {refused[0]['sentence']}"
            )
        if len(verdicts) == len(refused):
            wrong.append(f"No file of {name} was accepted.")
    if not facts.of(VALIDATOR, "verdict.given"):
        wrong.append("The validator judged nothing.")
    return wrong


def _relayed(facts: Facts) -> list[str]:
    return [f"{name} brought no policy version." for name in HONEST if not facts.of(name, "policy.brought")]
