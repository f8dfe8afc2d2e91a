import math
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from diloco.architecture import named_shapes
from node import machine
from node.doctor import Finding, examine, require
from node.machine import Machine, listen_error, measure, requirements
from node.needs import needs_of, parameter_count
from node.runfile import RunFile, parse
from protocol.errors import Code, NodeError
from protocol.units import Bytes
from tests.node.processes import program, said


def least(needed: Requirement) -> str:
    return next(each.version for each in needed.specifier if each.operator == ">=")


GOOD = Machine(
    memory_total=16 * 10**9,
    memory_available=12 * 10**9,
    cores=8,
    disk_free=100 * 10**9,
    now=1_800_000_000.0,
    newest_file=0.0,
    clock_synchronized=True,
    open_files=4096,
    python=(3, 12, 1),
    system="Linux x86_64",
    installed={each.name: least(each) for each in requirements()},
    gpus=0,
)
BILLION = (
    "[model]\nhidden = 2048\nlayers = 18\nheads = 16\nkv_heads = 8\nintermediate = 6144\nvocab = 32000\n"
)


def bad(text: str, folder: Path, found: Machine = GOOD) -> list[Finding]:
    """The findings that are not fine."""
    return [finding for finding in examine(parse(text), folder, found) if finding.level != "ok"]


def only(text: str, folder: Path, found: Machine = GOOD) -> Finding:
    (finding,) = bad(text, folder, found)
    assert finding.fix
    assert finding.sentence.endswith(".")
    return finding


def test_a_good_machine_passes_and_gets_nothing_written(tmp_path: Path) -> None:
    assert bad("", tmp_path / "new") == []
    assert not (tmp_path / "new").exists()
    assert bad("", tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert require(RunFile(), tmp_path, GOOD) == ()


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = measure(tmp_path / "not" / "there")
    assert 0 < found.memory_available <= found.memory_total
    assert found.disk_free > 0
    assert found.cores >= 1
    assert found.python == sys.version_info[:3]
    assert found.installed["pydantic"]


def test_too_little_memory_is_said_with_both_numbers(tmp_path: Path) -> None:
    finding = only("", tmp_path, replace(GOOD, memory_available=10**9))
    assert (finding.level, finding.code) == ("error", Code.SYS_MEMORY)
    assert "needs about 1" in finding.sentence
    assert "953.7 MiB are free" in finding.sentence


def test_memory_that_barely_suffices_is_a_warning(tmp_path: Path) -> None:
    needed = needs_of(RunFile(), "cpu").memory
    assert only("", tmp_path, replace(GOOD, memory_available=int(needed * 1.05))).level == "warning"
    assert len(require(RunFile(), tmp_path, replace(GOOD, memory_available=int(needed * 1.05)))) == 1


def test_the_run_files_own_limits_are_kept(tmp_path: Path) -> None:
    assert only('[limits]\nmemory = "100 MB"\n', tmp_path).code == Code.SYS_MEMORY
    assert only('[limits]\ndisk = "100 MB"\n', tmp_path).code == Code.SYS_DISK


def test_too_little_disk_is_said(tmp_path: Path) -> None:
    finding = only("", tmp_path, replace(GOOD, disk_free=10**6))
    assert (finding.level, finding.code) == ("error", Code.SYS_DISK)


def test_a_resumed_node_does_not_need_its_space_twice(tmp_path: Path) -> None:
    needed = needs_of(RunFile(), "cpu").disk
    (tmp_path / "checkpoint").write_bytes(os.urandom(2**20))
    assert bad("", tmp_path, replace(GOOD, disk_free=needed - 2**20)) == []


@pytest.mark.failure_mode(18)
def test_a_busy_port_is_one_clear_sentence_with_a_fix(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen(1)
        port = busy.getsockname()[1]
        for key in ("port", "directory_port"):
            finding = only(f"[network]\n{key} = {port}\n", tmp_path)
            assert finding.code == Code.NET_PORT_IN_USE
            assert finding.sentence == f"Another program uses port {port} of 127.0.0.1 (network.{key})."
            assert "port 0" in finding.fix


def test_a_port_that_lets_others_share_it_is_busy_too() -> None:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen(1)
        assert listen_error(*busy.getsockname()) is not None


def test_a_port_that_was_tried_is_free_afterwards() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert listen_error("127.0.0.1", port) is None
    assert listen_error("127.0.0.1", port) is None


def test_one_port_cannot_serve_twice(tmp_path: Path) -> None:
    assert "both 4001" in only("[network]\nport = 4001\ndirectory_port = 4001\n", tmp_path).sentence


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_of_another_machine_cannot_be_listened_on(tmp_path: Path, host: str) -> None:
    finding = only(f'[network]\nhost = "{host}"\n', tmp_path)
    assert finding.code == Code.CFG_BAD_VALUE
    assert "network.announce" in finding.fix


def test_the_ports_of_a_node_that_runs_there_are_its_own(tmp_path: Path) -> None:
    source = """
        import signal, socket, sys
        from pathlib import Path
        from node.lifecycle import hold
        with hold(Path(sys.argv[1])), socket.create_server(("127.0.0.1", 0)) as server:
            print(server.getsockname()[1], flush=True)
            signal.pause()
    """
    with program(source, tmp_path) as node:
        findings = examine(parse(f"[network]\nport = {said(node)}\n"), tmp_path, GOOD)
        assert all(finding.level == "ok" for finding in findings)
        assert f"process {node.pid}" in next(
            finding.sentence for finding in findings if finding.name == "node"
        )


def test_a_key_that_others_can_read_is_named_with_the_command(tmp_path: Path) -> None:
    key = tmp_path / "identity.key"
    key.touch(0o600)
    assert bad("", tmp_path) == []
    key.chmod(0o640)
    finding = only("", tmp_path)
    assert finding.code == Code.ID_PERMISSIONS
    assert finding.fix == f"Run `chmod 600 {key}`."


@pytest.mark.failure_mode(18)
def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert only("", tmp_path / "file" / "below").code == Code.STO_UNWRITABLE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_home_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert only("", tmp_path / "new").code == Code.STO_UNWRITABLE


def test_a_library_of_another_version_and_a_missing_one_are_named(tmp_path: Path) -> None:
    installed = {**GOOD.installed, "torch": "1.0.0"}
    del installed["grpcio"]
    finding = only("", tmp_path, replace(GOOD, installed=installed))
    assert finding.code == Code.SYS_VERSION
    assert "grpcio is missing" in finding.sentence
    assert "torch is 1.0.0 and has to be" in finding.sentence


def test_a_build_of_the_right_version_is_right(tmp_path: Path) -> None:
    assert bad("", tmp_path, replace(GOOD, installed={**GOOD.installed, "torch": "2.13.0+cpu"})) == []


def test_an_old_python_and_another_system_are_said(tmp_path: Path) -> None:
    assert only("", tmp_path, replace(GOOD, python=(3, 10, 9))).code == Code.SYS_VERSION
    assert "Darwin arm64" in only("", tmp_path, replace(GOOD, system="Darwin arm64")).sentence


def test_a_clock_that_cannot_be_right_is_an_error_and_one_that_went_back_a_warning(tmp_path: Path) -> None:
    for now in (0.0, 5e9):
        assert only("", tmp_path, replace(GOOD, now=now)).level == "error"
    finding = only("", tmp_path, replace(GOOD, newest_file=GOOD.now + 3600))
    assert (finding.level, finding.code) == ("warning", Code.SYS_CLOCK)
    assert "3,600 s behind" in finding.sentence
    assert bad("", tmp_path, replace(GOOD, clock_synchronized=False)) == []


def test_few_open_files_are_a_warning(tmp_path: Path) -> None:
    assert only("", tmp_path, replace(GOOD, open_files=256)).code == Code.SYS_FILES
    assert bad("", tmp_path, replace(GOOD, open_files=-1)) == []


def test_an_accelerator_that_is_not_there_is_said(tmp_path: Path) -> None:
    cuda = {**GOOD.installed, "torch": "2.13.0+cu130"}
    wish = '[node]\ndevice = "cuda"\n'
    assert "no NVIDIA device" in only(wish, tmp_path).sentence
    assert (
        "has no CUDA"
        in only(wish, tmp_path, replace(GOOD, gpus=1, installed={**cuda, "torch": "2.13.0+cpu"})).sentence
    )
    assert "at most 1" in only(wish + "workers = 2\n", tmp_path, replace(GOOD, gpus=1, installed=cuda)).fix
    assert bad(wish, tmp_path, replace(GOOD, gpus=1, installed=cuda)) == []


def test_auto_takes_the_accelerator_only_where_it_can_be_used() -> None:
    cuda = {"torch": "2.13.0"}
    assert replace(GOOD, gpus=1, installed=cuda).device("auto") == "cuda"
    assert replace(GOOD, gpus=0, installed=cuda).device("auto") == "cpu"
    assert replace(GOOD, gpus=1, installed={"torch": "2.13.0+cpu"}).device("auto") == "cpu"
    assert replace(GOOD, gpus=1, installed=cuda).device("cpu") == "cpu"


def test_a_start_fails_with_the_first_error(tmp_path: Path) -> None:
    with pytest.raises(NodeError) as caught:
        require(RunFile(), tmp_path, replace(GOOD, disk_free=0, memory_available=0))
    assert caught.value.code == Code.SYS_MEMORY


def test_every_finding_that_is_not_fine_has_a_code_and_a_fix(tmp_path: Path) -> None:
    worst = replace(
        GOOD,
        memory_available=0,
        disk_free=0,
        now=0,
        open_files=1,
        python=(2, 7, 0),
        system="Plan 9",
        installed={},
    )
    findings = bad('[node]\ndevice = "cuda"\n[network]\nhost = "203.0.113.7"\n', tmp_path, worst)
    assert len(findings) >= 8
    assert all(finding.code is not None and finding.fix and finding.sentence for finding in findings)


def test_a_billion_parameters_need_what_the_design_says() -> None:
    needs = needs_of(parse(BILLION), "cuda")
    assert 0.9e9 < needs.parameters < 1.1e9
    assert 17 * needs.parameters < needs.memory < 24 * needs.parameters
    assert needs.disk > 10 * needs.parameters
    assert needs_of(parse(BILLION), "cpu").memory > needs.memory + 16 * needs.parameters
    assert needs.device_memory >= 16 * needs.parameters
    shared = needs_of(parse(BILLION + "[node]\nworkers = 4\n"), "cuda")
    assert shared.device_memory == Bytes(needs.device_memory // 4)


def test_a_node_that_does_not_train_needs_no_workers() -> None:
    idle = needs_of(parse('[node]\nroles = ["validator"]\n'), "cpu")
    assert idle.memory < needs_of(RunFile(), "cpu").memory - 450 * 10**6


@pytest.mark.parametrize(
    "text", ["", "[model]\ntie = false\nkv_heads = 2\nlayers = 2\nvocab = 300\n", BILLION]
)
def test_parameters_are_counted_as_the_layout_has_them(text: str) -> None:
    model = parse(text).model
    assert parameter_count(model) == sum(math.prod(shape) for _, shape in named_shapes(model))


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path if path == "/sys/fs/cgroup" else Path(path))
    yield tmp_path


def test_a_containers_memory_limit_counts(container: Path) -> None:
    (container / "memory.max").write_text("2000000000\n")
    (container / "memory.current").write_text("1500000000\n")
    (container / "memory.stat").write_text("anon 1\ninactive_file 500000000\n")
    found = measure(container)
    assert found.memory_total == 2_000_000_000
    assert found.memory_available == min(1_000_000_000, found.memory_available)
    (container / "memory.max").write_text("max\n")
    assert measure(container).memory_total > 0
