"""``intellect-node ledger``: reads a node's ledger, or a copy of anybody's, whether the node runs or not."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.errors import Code, NodeError

if TYPE_CHECKING:
    from diloco.genesis import Genesis
    from diloco.rounds.certificate import Certified

LEDGER_FILE = "ledger.sqlite"
GENESIS_FILE = "genesis.json"

ledger = typer.Typer(
    help="What the rounds of a run decided, and who signed it, from the ledger on disk.", no_args_is_help=True
)

Where = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A node's data directory, or the file of a ledger.",
        show_default=False,
        readable=False,
    ),
]
GenesisPath = Annotated[
    Path | None,
    typer.Option(
        "--genesis",
        metavar="FILE",
        help="The run's genesis.json; by default the one beside the ledger.",
        readable=False,
    ),
]
Last = Annotated[int, typer.Option("--last", metavar="N", min=1, help="Only the newest N values.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


@ledger.command()
def show(where: Where, last: Last = 20, as_json: AsJson = False) -> int:
    """Print the newest values: contributors, tokens, voters, and who signed."""
    from collections import deque

    from diloco.store.verification import values

    rows = [describe(certified) for certified in deque(values(_file(where)), maxlen=last)]
    if as_json:
        print(json.dumps(rows))
    else:
        print("\n\n".join(map(_text, rows)))
    return 0


@ledger.command()
def verify(where: Where, genesis: GenesisPath = None, as_json: AsJson = False) -> int:
    """Check every hash, certificate, electorate, start record and reset; the exit status is 1 if one does not hold."""
    from diloco.rounds.proofs import Proofs
    from diloco.store.verification import MOST_PROBLEMS, verify_ledger

    path = _file(where)
    run = _genesis(genesis or path.parent / GENESIS_FILE)
    report = verify_ledger(path, Proofs(run.run_id, run.operator, run.base))
    tip = describe(report.tip) if report.tip is not None else None
    if as_json:
        problems = [
            {"epoch": each.epoch, "round": each.round, "code": each.code, "sentence": each.sentence}
            for each in report.problems
        ]
        print(json.dumps({"run": run.run_id, "values": report.values, "tip": tip, "problems": problems}))
        return 1 if report.problems else 0
    for problem in report.problems:
        place = f"epoch {problem.epoch}, round {problem.round}: " if problem.epoch >= 0 else ""
        print(f"{problem.code}: {place}{problem.sentence}")
    if len(report.problems) == MOST_PROBLEMS:
        print("... and perhaps more.")
    if report.problems or tip is None:
        print(f"The ledger {path} does not hold.")
        return 1
    print(f"All {report.values} values of run {run.run_id[:16]} hold.")
    print(f"The newest is of epoch {tip['epoch']}, round {tip['round']}: {tip['value']}")
    return 0


@ledger.command()
def evidence(where: Where, genesis: GenesisPath = None, as_json: AsJson = False) -> int:
    """Print verified evidence against members: what they signed and no honest member can have signed."""
    from diloco.rounds.proofs import Proofs
    from diloco.store.verification import proofs_in

    path = _file(where)
    run = _genesis(genesis or path.parent / GENESIS_FILE)
    found = proofs_in(path, Proofs(run.run_id, run.operator, run.base))
    if as_json:
        rows = [
            {
                "accused": proof.accused,
                "kind": proof.evidence.kind,
                "sentence": proof.sentence,
                "statements": [raw.hex() for raw in proof.evidence.statements],
            }
            for proof in found
        ]
        print(json.dumps(rows))
        return 0
    for proof in found:
        print(proof.sentence)
    if not found:
        print("There is no evidence against anybody.")
    return 0


def _file(where: Path) -> Path:
    path = where / LEDGER_FILE if where.is_dir() else where
    if not path.is_file():
        raise NodeError(
            Code.CFG_USAGE, f"There is no ledger at {path}.",
            fix=f"Name the --dir of a node that took part, or a copy of its {LEDGER_FILE}.",
        )  # fmt: skip
    return path


def _genesis(path: Path) -> "Genesis":
    from diloco.genesis import Genesis
    from protocol.files import read_whole

    if not path.is_file():
        raise NodeError(
            Code.CFG_USAGE, f"There is no genesis at {path}, without which nothing can be verified.",
            fix="Name the run's genesis.json with --genesis; every node of the run has it in its data directory.",
        )  # fmt: skip
    return Genesis.parse(read_whole(path))


def describe(certified: "Certified") -> dict[str, Any]:
    """A value with its certificate as plain data."""
    from diloco.rounds.roster import included

    value = certified.value
    roster = [
        {
            "peer": entry.peer,
            "weight": entry.weight,
            "tokens": entry.tokens,
            "samples": entry.samples,
            "chunks": sum(included(chunk, position) for chunk in value.chunks),
        }
        for position, entry in enumerate(value.roster)
    ]
    kind = "value" if not certified.start else "reset" if value.round >= 0 else "start"
    return {
        "epoch": value.epoch,
        "round": value.round,
        "kind": kind,
        "value": certified.digest.hex(),
        "previous": value.previous.hex(),
        "base": value.base.hex(),
        "attempt": certified.attempt,
        "signers": [_sender(raw) for raw in certified.votes or (certified.start,)],
        "tokens": value.tokens,
        "partial_tokens": value.partial_tokens,
        "chunks": len(value.chunks),
        "roster": roster,
        "electorate": [elector.peer for elector in value.electorate],
        "absent": [elector.peer for elector in value.electorate if elector.absent],
        "tie_breaker": value.tie_breaker,
        "members": list(value.members),
        "failed_leaders": list(value.failed_leaders),
        "left": list(value.left),
        "banned": list(value.banned),
        "orders": [taken.number for taken in value.orders],
        "stopped": value.stopped,
        "paused": value.paused,
    }


def _sender(raw: bytes) -> str:
    from protocol.envelope import unseal

    return unseal(raw, run=None).sender


def _text(row: dict[str, Any]) -> str:
    from node.status_view import short

    def names(peers: list[str]) -> str:
        return ", ".join(map(short, peers)) or "nobody"

    head = {"start": "Start record", "reset": "Reset"}.get(row["kind"], f"Round {row['round']}")
    if row["kind"] == "reset":
        head += f" after round {row['round']}"
    marks = "".join(f", {mark}" for mark in ("stopped", "paused") if row[mark])
    lines = [f"{head}, epoch {row['epoch']}, attempt {row['attempt']}{marks}", f"  value     {row['value']}"]
    lines.append(f"  signed by {names(row['signers'])}")
    if row["kind"] == "value":
        gave = [f"{short(each['peer'])} {each['tokens']}" for each in row["roster"]]
        missing = f" ({row['partial_tokens']} missing in some chunk)" if row["partial_tokens"] else ""
        lines.append(f"  tokens    {row['tokens']}{missing}: {', '.join(gave) or 'nobody contributed'}")
    lines.append(f"  voters    {names(row['electorate'])}; tie-breaker {short(row['tie_breaker'])}")
    for name, key in (
        ("members", "members"),
        ("left", "left"),
        ("banned", "banned"),
        ("failed", "failed_leaders"),
    ):
        if row[key]:
            lines.append(f"  {name:<9} {names(row[key])}")
    if row["orders"]:
        lines.append(f"  orders    {', '.join(map(str, row['orders']))}")
    return "\n".join(lines)
