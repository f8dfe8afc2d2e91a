"""What must hold of orchestrators, judged from outside: by what they feed, save and delete, never by their own word."""

from diloco.rounds.values import Value
from rl.orchestration.rows import File, Kept, Work
from rl.orchestration.rules import Rules


class Violation(AssertionError):
    """A property does not hold."""


def insist(holds: bool, sentence: str) -> None:
    if not holds:
        raise Violation(sentence)


class Judge:
    """Sees every batch, every deletion and every certified value of a world."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.consumed: dict[int, str] = {}

    def is_open(self, value: Value, position: int) -> bool:
        spans = [(lease.start, lease.count) for lease in value.leases]
        spans += [(span.start, span.count) for lease in value.leases for span in lease.more]
        spans += [(span.start, span.count) for span in value.returned]
        return position >= value.cursor or any(start <= position < start + count for start, count in spans)

    def fed(self, value: Value, file: File, position: int, work: Work, banned: bool) -> None:
        """A group goes into an inner step."""
        group = next(each for each in file.groups if each.position == position)
        number = value.round + 1
        insist(
            number - group.oldest <= self.rules.window,
            f"position {position} is {number - group.oldest} versions old, {self.rules.window} are allowed",
        )
        insist(
            group.newest <= number, f"position {position} was sampled with a version that is not there yet"
        )
        insist(
            (file.version, len(group.rewards)) == (work.version, self.rules.group_size)
            and position in work.positions
            and work.version <= group.oldest,
            f"position {position} is trained on and is not what was leased",
        )
        decided = [opinion for opinion in file.opinions if not opinion.undecided]
        agreed = sum(1 if opinion.accepted else -1 for opinion in decided)
        insist(agreed > 0, f"position {position} is trained on and more refused than accepted it")
        insist(not banned, f"position {position} is trained on and its worker is banned")
        insist(max(group.rewards) > min(group.rewards), f"position {position} is trained on and has no range")

    def skipped(self, files: list[File], position: int, given_up: bool) -> None:
        """A position counts as consumed with nothing trained."""
        flat = any(
            max(group.rewards) == min(group.rewards)
            for file in files
            if file.state == "accepted"
            for group in file.groups
            if group.position == position
        )
        insist(flat or given_up, f"position {position} is left out without a reason")

    def certified(self, positions: dict[int, str]) -> None:
        """A value says that these are consumed."""
        for position, how in positions.items():
            insist(position not in self.consumed, f"position {position} is consumed twice")
            self.consumed[position] = how

    def complete(self, value: Value) -> None:
        """No position is lost: what is not open has been consumed."""
        for position in range(value.cursor):
            insist(
                self.is_open(value, position) != (position in self.consumed),
                f"position {position} is open and consumed, or neither",
            )

    def deleted(self, value: Value, file: File) -> None:
        """A file is deleted."""
        if file.state != "accepted":
            return
        for group in file.groups:
            useful = (
                self.is_open(value, group.position) and value.round + 1 - group.oldest <= self.rules.window
            )
            insist(not useful, f"the file of position {group.position} is deleted before it is consumed")

    def bounded(self, kept: Kept, wanted: int) -> None:
        """Nothing grows without end."""
        rules = self.rules
        groups = rules.most_waiting + wanted + rules.groups_per_work
        refused = sum(file.state == "refused" for file in kept.files.values())
        insist(
            refused <= rules.most_refused, f"{refused} refused files are kept, at most {rules.most_refused}"
        )
        most = {
            "works": 2 * groups,
            "files": groups + 2 * rules.most_refused + rules.per_validator,
            "places": 4 * groups,
            "workers": rules.most_workers,
        }
        for kind, bound in most.items():
            count = len(getattr(kept, kind))
            insist(count <= bound, f"{count} {kind} are kept, and {bound} is a bound")
