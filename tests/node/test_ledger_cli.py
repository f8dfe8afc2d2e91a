"""``intellect-node ledger``: reading and verifying a ledger offline."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from diloco.rounds.evidence import contradiction
from diloco.rounds.statements import Vote
from diloco.store.ledger import Ledger
from node.cli import main
from protocol.envelope import seal
from protocol.identity import Identity
from protocol.testing import Swarm
from tests.diloco.member.fleet import tiny_genesis
from tests.diloco.member.test_virtual_time import Crowd

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of one of three nodes after three rounds."""
    folder = tmp_path_factory.mktemp("run")
    genesis = tiny_genesis(rounds=3)
    with Swarm(seed=4, run=None) as swarm:
        crowd = Crowd(swarm, folder, genesis)
        swarm.run(crowd.finished())
        for seat in crowd.seats:
            seat.member.ledger.close()
        seat = crowd.seats[0]
    (seat.folder / "genesis.json").write_bytes(genesis.to_bytes())
    return seat.folder


def test_show_says_what_each_round_decided(node: Path, capsys: Capture) -> None:
    assert main(["ledger", "show", str(node)]) == 0
    text = capsys.readouterr().out
    for words in (
        "Start record, epoch 0",
        "Round 0, epoch 0",
        "Round 2",
        "signed by",
        "tokens    ",
        "tie-breaker",
    ):
        assert words in text
    assert main(["ledger", "show", str(node), "--last", "2", "--json"]) == 0
    one, other = json.loads(capsys.readouterr().out)
    assert (one["round"], other["round"]) == (1, 2) and other["previous"] == one["value"]
    assert set(other["signers"]) <= set(one["electorate"]) and len(other["signers"]) >= 2
    assert other["tokens"] == sum(entry["tokens"] for entry in other["roster"]) > 0
    assert all(entry["chunks"] == other["chunks"] for entry in other["roster"])


def test_verify_says_that_all_holds(node: Path, capsys: Capture) -> None:
    assert main(["ledger", "verify", str(node)]) == 0
    assert "All 4 values of run" in capsys.readouterr().out
    assert main(["ledger", "verify", str(node), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["values"] == 4 and told["tip"]["round"] == 2 and told["problems"] == []
    assert told["run"] == tiny_genesis(rounds=3).run_id


def test_a_copy_of_anybodys_ledger_is_verified_with_the_genesis_alone(
    node: Path, tmp_path: Path, capsys: Capture
) -> None:
    copy = shutil.copy(node / "ledger.sqlite", tmp_path / "theirs")
    assert main(["ledger", "verify", str(copy), "--genesis", str(node / "genesis.json")]) == 0
    assert main(["ledger", "verify", str(copy)]) == 2
    assert "Name the run's genesis.json with --genesis" in capsys.readouterr().err


def test_evidence_is_printed_as_it_is_proved(node: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["ledger", "evidence", str(node)]) == 0
    assert "There is no evidence against anybody." in capsys.readouterr().out
    copy = tmp_path / "node"
    shutil.copytree(node, copy)
    run, liar = tiny_genesis(rounds=3).run_id, Identity.ephemeral(b"l" * 32)
    votes = [seal(liar, run, Vote(epoch=0, round=1, attempt=0, value=value * 32)) for value in (b"a", b"b")]
    proof = contradiction(*votes)
    assert proof is not None
    ledger = Ledger(copy / "ledger.sqlite")
    ledger.keep_evidence(proof.evidence)
    ledger.close()
    assert main(["ledger", "evidence", str(copy)]) == 0
    assert f"{liar.peer_id} voted for two values in round 1, attempt 0" in capsys.readouterr().out
    assert main(["ledger", "evidence", str(copy), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["accused"] == liar.peer_id and len(row["statements"]) == 2


def test_verify_says_what_does_not_hold(node: Path, tmp_path: Path, capsys: Capture) -> None:
    copy = tmp_path / "node"
    shutil.copytree(node, copy)
    with sqlite3.connect(copy / "ledger.sqlite") as database:
        database.execute("DELETE FROM decided WHERE round = 1")
    database.close()
    assert main(["ledger", "verify", str(copy)]) == 1
    text = capsys.readouterr().out
    assert "E-RND-002: epoch 0, round 2: " in text and "does not hold" in text
    assert main(["ledger", "verify", str(copy), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["epoch"], problem["round"], problem["code"]) == (0, 2, "E-RND-002")
    (copy / "ledger.sqlite").write_bytes(b"no ledger at all" * 100)
    assert main(["ledger", "verify", str(copy)]) == 1
    assert "The file is damaged" in capsys.readouterr().out
    assert main(["ledger", "show", str(copy)]) == 1
    assert "E-STO-003" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["show", "verify", "evidence"])
def test_a_place_without_a_ledger_is_said(tmp_path: Path, command: str, capsys: Capture) -> None:
    assert main(["ledger", command, str(tmp_path)]) == 2
    assert "There is no ledger at" in capsys.readouterr().err
    assert main(["ledger", command, str(tmp_path / "nowhere")]) == 2
