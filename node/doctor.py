"""The doctor: can this machine run this node? Each check gives a sentence, and what is wrong a code and a fix.

`examine` tells all, for people; `require` raises the first thing that prevents a start, and every start calls it.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from typing import Literal

from node.lifecycle import holder, prepare_folder
from node.machine import Machine, listen_error, measure, nearest_existing, requirements
from node.needs import needs_of
from node.runfile import RunFile
from protocol.errors import CATALOGUE, Code, NodeError
from protocol.units import Bytes

OLDEST_PYTHON = (3, 11)
FEWEST_FILES = 1024
EARLIEST = 1_735_689_600.0
"""2025-01-01: no clock that is right shows less."""
LATEST = 4_102_444_800.0
"""2100-01-01."""
CLOCK_BACK = timedelta(minutes=1)


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was checked, one word.
        level: "error" prevents the node from working, "warning" does not.
        sentence: What was found, with names and numbers.
        code: For warnings and errors.
        fix: What to do, for warnings and errors.
    """

    name: str
    level: Literal["ok", "warning", "error"]
    sentence: str
    code: Code | None = None
    fix: str = ""


def _ok(name: str, sentence: str) -> Finding:
    return Finding(name, "ok", sentence)


def _bad(
    name: str, code: Code, sentence: str, fix: str = "", level: Literal["warning", "error"] = "error"
) -> Finding:
    return Finding(name, level, sentence, code, fix or CATALOGUE[code].fix)


def examine(runfile: RunFile, folder: Path, machine: Machine | None = None) -> tuple[Finding, ...]:
    """Check everything. Changes nothing but for a probe file that is removed at once.

    Args:
        runfile: The node's run file.
        folder: Its data directory; need not exist.
        machine: What the machine has; measured by default.
    """
    machine = machine if machine is not None else measure(folder)
    return tuple(finding for check in _CHECKS for finding in check(runfile, folder, machine))


def require(runfile: RunFile, folder: Path, machine: Machine | None = None) -> tuple[Finding, ...]:
    """Check everything before a start.

    Returns:
        The warnings.

    Raises:
        NodeError: The first error that was found.
    """
    findings = examine(runfile, folder, machine)
    for finding in findings:
        if finding.level == "error" and finding.code is not None:
            raise NodeError(finding.code, finding.sentence, fix=finding.fix)
    return tuple(finding for finding in findings if finding.level == "warning")


def _system(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    version = ".".join(map(str, machine.python))
    if machine.python < OLDEST_PYTHON:
        least = ".".join(map(str, OLDEST_PYTHON))
        yield _bad(
            "python",
            Code.SYS_VERSION,
            f"This is Python {version}; {least} or newer is needed.",
            f"Install Python {least}.",
        )
    else:
        yield _ok("python", f"Python {version} on {machine.system}.")
    if machine.system != "Linux x86_64":
        fix = "Run it on Linux x86-64, or in a container of that kind."
        yield _bad(
            "system",
            Code.SYS_VERSION,
            f"This is {machine.system}; the directory's helper exists for Linux x86_64 only.",
            fix,
        )


def _libraries(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    wrong = []
    for needed in requirements():
        version = machine.installed.get(needed.name)
        if version is None:
            wrong.append(f"{needed.name} is missing")
        elif not needed.specifier.contains(version, prereleases=True):
            wrong.append(f"{needed.name} is {version} and has to be {needed.specifier}")
    if wrong:
        yield _bad("libraries", Code.SYS_VERSION, f"{len(wrong)} libraries do not fit: {'; '.join(wrong)}.")
    else:
        yield _ok("libraries", f"{len(machine.installed)} libraries have versions that fit.")


def _storage(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    above = nearest_existing(folder)
    try:
        if above == folder.absolute():
            prepare_folder(folder)
        elif not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
            raise NodeError(Code.STO_UNWRITABLE, f"{folder} cannot be made: {above} cannot be written.")
        yield _ok("folder", f"{folder} can be written.")
    except NodeError as error:
        yield _bad("folder", error.code, error.sentence, error.fix)
        return
    held_by = holder(folder)
    if held_by is not None and held_by.pid != os.getpid():
        yield _ok("node", f"A node runs there already, process {held_by.pid}.")


def _keys(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    try:
        keys = sorted(folder.glob("*.key"))
    except OSError:
        keys = []
    for key in keys:
        status = key.stat()
        if stat.S_IMODE(status.st_mode) & 0o077:
            mode = oct(stat.S_IMODE(status.st_mode))[2:]
            yield _bad(
                "keys",
                Code.ID_PERMISSIONS,
                f"Others can read {key} (mode {mode}).",
                f"Run `chmod 600 {key}`.",
            )
        elif not os.access(key, os.R_OK):
            yield _bad(
                "keys", Code.ID_UNREADABLE, f"This user cannot read {key}.", f"Run as the owner of {key}."
            )
        else:
            yield _ok("keys", f"{key.name} is readable by its owner only.")


def _device(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    node = runfile.node
    device = machine.device(node.device)
    if device == "cpu":
        yield _ok("device", f"Workers compute on the processor, {machine.cores} cores.")
    elif not machine.cuda_usable:
        why = (
            "no NVIDIA device is visible"
            if machine.gpus == 0
            else f"torch {machine.installed.get('torch')} has no CUDA"
        )
        yield _bad("device", Code.SYS_DEVICE, f'node.device is "cuda", but {why}.')
    elif node.workers > machine.gpus:
        sentence = f"node.workers is {node.workers}, but only {machine.gpus} accelerators are visible."
        yield _bad("device", Code.SYS_DEVICE, sentence, f"Set node.workers to at most {machine.gpus}.")
    else:
        yield _ok("device", f"Workers compute on {node.workers} of {machine.gpus} accelerators.")


def _memory(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    device = machine.device(runfile.node.device)
    needs = needs_of(runfile, device)
    model = f"A model of {needs.parameters / 1e6:,.1f} million parameters"
    limit = runfile.limits.memory
    available = Bytes(machine.memory_available)
    if limit is not None and needs.memory > limit:
        sentence = f"{model} needs about {needs.memory} of memory; limits.memory is {limit}."
        yield _bad(
            "memory",
            Code.SYS_MEMORY,
            sentence,
            "Raise limits.memory, or use fewer workers or a smaller model.",
        )
    elif needs.memory > available:
        yield _bad(
            "memory", Code.SYS_MEMORY, f"{model} needs about {needs.memory} of memory; {available} are free."
        )
    elif needs.memory > 0.9 * available:
        sentence = f"{model} needs about {needs.memory} of memory, and only {available} are free."
        yield _bad("memory", Code.SYS_MEMORY, sentence, level="warning")
    else:
        yield _ok("memory", f"{model} needs about {needs.memory} of memory; {available} are free.")
    if device == "cuda":
        yield _ok("memory", f"It also needs about {needs.device_memory} on each accelerator.")


def _disk(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    needs = needs_of(runfile, machine.device(runfile.node.device))
    limit, free = runfile.limits.disk, Bytes(machine.disk_free)
    if limit is not None and needs.disk > limit:
        sentence = f"The data directory needs about {needs.disk}; limits.disk is {limit}."
        yield _bad("disk", Code.SYS_DISK, sentence, "Raise limits.disk, or use a smaller model.")
    elif needs.disk > free + _used(folder):
        yield _bad("disk", Code.SYS_DISK, f"{folder} needs about {needs.disk}; {free} are free there.")
    else:
        yield _ok("disk", f"{folder} needs about {needs.disk}; {free} are free.")


def _used(folder: Path) -> int:
    """What the data directory holds already: a resumed node does not need it twice."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(above, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _network(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    held_by = holder(folder)
    if held_by is not None and held_by.pid != os.getpid():
        return  # the ports are that node's
    network = runfile.network
    ports = [("port", network.port), ("directory_port", network.directory_port)]
    if network.gossip:
        ports.append(("gossip_port", network.gossip_port))
    for (one, port), (other, same) in combinations(ports, 2):
        if port and port == same:
            sentence = f"network.{one} and network.{other} are both {port}."
            yield _bad("port", Code.CFG_BAD_VALUE, sentence, "Give each its own port, or 0 for any free one.")
            return
    for key, port in ports:
        where = f"{network.host}:{port}" if port else f"any free port of {network.host}"
        error = listen_error(network.host, port)
        if error is None:
            yield _ok("port", f"network.{key}: {where} can be listened on.")
        elif error.errno == errno.EADDRINUSE:
            yield _bad(
                "port",
                Code.NET_PORT_IN_USE,
                f"Another program uses port {port} of {network.host} (network.{key}).",
            )
        elif error.errno == errno.EACCES:
            sentence = f"This user may not listen on port {port} (network.{key})."
            yield _bad("port", Code.CFG_BAD_VALUE, sentence, "Choose a port from 1024 up.")
        else:
            sentence = f"{network.host} is no address of this machine (network.host): {error.strerror}."
            fix = 'Use "0.0.0.0" for all addresses, and network.announce for the one that others dial.'
            yield _bad("port", Code.CFG_BAD_VALUE, sentence, fix)
            return


def _files(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    if 0 <= machine.open_files < FEWEST_FILES:
        sentence = f"Only {machine.open_files} files may be open at once; {FEWEST_FILES} are needed."
        yield _bad("files", Code.SYS_FILES, sentence, level="warning")
    else:
        yield _ok("files", "Enough files may be open at once.")


def _clock(runfile: RunFile, folder: Path, machine: Machine) -> Iterator[Finding]:
    behind = machine.newest_file - machine.now
    if not EARLIEST <= machine.now <= LATEST:
        yield _bad(
            "clock",
            Code.SYS_CLOCK,
            "The clock shows a year that cannot be; others would refuse this node's records.",
        )
    elif behind > CLOCK_BACK.total_seconds():
        sentence = f"The clock is {behind:,.0f} s behind the newest file in {folder}."
        yield _bad("clock", Code.SYS_CLOCK, sentence, level="warning")
    elif machine.clock_synchronized is False:
        yield _ok("clock", "The clock is plausible; the kernel knows of no time service that keeps it so.")
    else:
        yield _ok("clock", "The clock is plausible.")


_CHECKS: Sequence[Callable[[RunFile, Path, Machine], Iterator[Finding]]] = (
    _system,
    _libraries,
    _storage,
    _keys,
    _network,
    _device,
    _memory,
    _disk,
    _files,
    _clock,
)
