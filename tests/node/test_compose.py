"""deploy/compose.yaml: its commands are ours, and ports, volumes and checks of health fit each other."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from node.cli import app
from node.coordinator.demo_data import DemoRun
from node.coordinator.desk import parse_listen
from node.runfile import load
from protocol.directory.addresses import check_peer_address

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PEER = DemoRun().peer(1)
RUN = load(DEPLOY / "run.toml")


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command and the options of a command line, by the parser that the command itself has."""
    group = typer.main.get_command(app)
    with group.make_context("intellect-node", ["--help"], resilient_parsing=True) as context:  # type: ignore[attr-defined]
        name, command, rest = group.resolve_command(context, list(words))  # type: ignore[attr-defined]
        with command.make_context(name, list(rest)) as inner:
            return name, dict(inner.params)


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_runs_a_command_of_ours(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DEPLOY)
    service = SERVICES[name]
    command, options = parsed([word.replace("${RUN_PEER:-}", PEER) for word in service["command"]])
    assert command == ("coordinator" if name == "coordinator" else "run")
    assert options["path"] == Path("run.toml")
    for address in options["join"] or ():
        host, port = re.fullmatch(r"/dns4/([a-z]+)/tcp/(\d+)/p2p/\w+", address).groups()  # type: ignore[union-attr]
        check_peer_address(address)
        assert host in SERVICES and int(port) == RUN.network.directory_port
    assert options.get("relay", False) is (name == "relay")
    targets = [mount.split(":")[1] for mount in service["volumes"]]
    assert str(options["folder"]) in targets and "/data/run.toml" in targets
    for mount in service["volumes"]:
        source = mount.split(":")[0]
        assert (DEPLOY / source).is_file() if source.startswith("./") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_says_whether_it_is_well(name: str) -> None:
    kind, *words = SERVICES[name]["healthcheck"]["test"]
    assert kind == "CMD"
    if name == "coordinator":
        listen = parse_listen(parsed(SERVICES[name]["command"])[1]["listen"])
        compile(words[-1], "healthcheck", "exec")
        assert words[:2] == ["python", "-c"] and f"http://127.0.0.1:{listen.port}/api/v1/health" in words[-1]
        assert SERVICES[name]["ports"] == [f"127.0.0.1:{listen.port}:{listen.port}"]
    else:
        command, options = parsed(words[1:])
        assert (words[0], command) == ("intellect-node", "status")
        assert options["folder"] == parsed(SERVICES[name]["command"])[1]["folder"]
        assert SERVICES[name]["depends_on"] == {"coordinator": {"condition": "service_healthy"}}


def test_there_are_a_coordinator_a_relay_and_as_many_trainers_as_begin() -> None:
    trainers = [name for name in SERVICES if name.startswith("trainer-")]
    assert set(SERVICES) == {"coordinator", "relay", *trainers}
    assert len(trainers) == RUN.round.start_members == 3
    ports = {
        f"{port}:{port}" for port in (RUN.network.directory_port, RUN.network.port, RUN.network.gossip_port)
    }
    assert set(SERVICES["relay"]["ports"]) == ports and RUN.network.host == "0.0.0.0"
    own = [service["volumes"][0].split(":")[0] for service in SERVICES.values()]
    assert len(set(own)) == len(own), "no two nodes share a data directory"
