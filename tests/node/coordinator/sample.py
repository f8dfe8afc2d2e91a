"""A few rounds of a small run as facts, for tests."""

from collections.abc import Iterator

from node.coordinator.facts import Contribution, Decided, Fact, Opened, Record, Reported

START = 1_700_000_000.0


def peer(number: int) -> str:
    """The id of a made-up peer."""
    return f"12D3KooWSample{number:038d}"


def opening(members: int = 3) -> list[Fact]:
    """The run, its members' records, and its start record."""
    peers = tuple(peer(number) for number in range(members))
    facts: list[Fact] = [
        Opened(
            seen_at=START,
            run="7e" * 32,
            name="sample",
            rounds=100,
            start_members=members,
            parameters=4_000_000,
        )
    ]
    for each in peers:
        facts.append(Record(seen_at=START, source=each, trust="self-reported", peer=each, version="0.1", protocol=1,
                            roles=("trainer",), reach="direct", seat=True))  # fmt: skip
        facts.append(
            report(each, 0, START, "node.start", name=f"node-{each[-2:]}", version="0.1", roles=["trainer"])
        )
    facts.append(
        Decided(seen_at=START, epoch=0, round=-1, digest="00", base="b-1", electorate=peers, begins=True)
    )
    return facts


def report(who: str, sequence: int, at: float, kind: str, **fields: object) -> Reported:
    """An event of a member, seen 0.2 s after it happened."""
    return Reported(
        seen_at=at + 0.2, source=who, trust="self-reported", peer=who, sequence=sequence, t=at, kind=kind, fields=fields
    )  # fmt: skip


def one_round(number: int, members: int = 3, absent: tuple[int, ...] = ()) -> Iterator[Fact]:
    """A round of a minute: training, reduction, decision, outer step."""
    peers = tuple(peer(each) for each in range(members))
    at = START + 60.0 * number
    here = [each for place, each in enumerate(peers) if place not in absent]
    for each in here:
        yield report(each, 1, at + 1, "node.phase", phase="training", reason="training", sentence="Training.",
                     until=50.0, missing=[], round=number, attempt=0)  # fmt: skip
        yield report(each, 2, at + 1, "train.begin", round=number, start=0, count=64)
        yield report(each, 3, at + 40, "train.end", round=number, steps=20, tokens=20_000, seconds=39.0,
                     loss=3.0 - number * 0.01)  # fmt: skip
        yield report(each, 4, at + 41, "contribution.frozen", round=number, bytes=1_000_000, seconds=0.5)
        yield report(each, 5, at + 42, "ready.sent", round=number, attempt=0)
        yield report(each, 6, at + 43, "reduce.begin", round=number, attempt=0)
        yield report(each, 7, at + 48, "reduce.end", round=number, attempt=0, seconds=5.0)
        yield report(each, 8, at + 49, "vote", round=number, attempt=0, value="aa")
    yield Decided(
        seen_at=at + 50, epoch=0, round=number, digest=f"d{number}", previous=f"d{number - 1}", base=f"b{number - 1}",
        roster=tuple(Contribution(each, 18_000, 20_000, 64) for each in here), electorate=peers, voters=tuple(here),
        tokens=18_000 * len(here),
    )  # fmt: skip
    for each in here:
        yield report(each, 9, at + 52, "apply", round=number + 1, digest=f"b{number}", seconds=1.0)
        yield report(each, 10, at + 52, "bytes", round=number + 1, rounds=1_000_000 * (number + 1), state=0,
                     total=1_100_000 * (number + 1))  # fmt: skip


def history(rounds: int, members: int = 3) -> list[Fact]:
    """The opening and so many rounds."""
    return opening(members) + [fact for number in range(rounds) for fact in one_round(number, members)]
