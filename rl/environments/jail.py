"""Becomes, by exec, a Python that runs a program nobody has to trust: ``jail.py PARENT MEMORY CPU SOURCE``.

Nothing of this project is imported, so it starts in milliseconds. What it puts on itself before it execs: namespaces
without network; where it is root, a user of its own; the kernel's promise to die with its parent; Landlock rules by
which it may read Python and write nothing; limits on memory, CPU time, processes (one: itself), files and descriptors.
It ends with status 125 where the network cannot be cut off, or its user cannot start Python.

Arguments: process id of the parent, bytes of address space, seconds of CPU time, descriptor of the program's source.
"""

import ctypes
import os
import random
import resource
import struct
import sys

_LIBC = ctypes.CDLL(None, use_errno=True)
_DEATH_SIGNAL, _DUMPABLE, _KEEP_CAPABILITIES, _NO_NEW_PRIVILEGES, _AMBIENT, _RAISE = 1, 4, 8, 38, 47, 2
_READ_ALL = 2  # the number of CAP_DAC_READ_SEARCH
_NEW_USER, _NEW_NET, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_CREATE_RULESET, _ADD_RULE, _RESTRICT = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # bits that a Landlock version knows; 16 from version 5 on
_READABLE = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/null")

_RUN = "import sys; exec(compile(open(int(sys.argv[1]), 'rb').read(), 'program', 'exec'), {'__name__': '__main__'})"


def _own_network() -> bool:
    """As an ordinary user, leave the network inside a user namespace."""
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | _NEW_NET | _NEW_IPC) != 0:
        return False
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(line)
    return True


def _become_nobody() -> None:
    """From root to a user that nobody else is, so that its one process is counted alone and it owns no file."""
    _LIBC.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
    for uid in (random.SystemRandom().randrange(1 << 30, 1 << 31), 65534):
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            break
        except OSError:
            continue
    else:
        sys.exit(125)
    _LIBC.prctl(_DUMPABLE, 1, 0, 0, 0)  # or it could not write its own map of users


def _keep(capabilities: int) -> None:
    """Give up all capabilities of root but these, and have them survive the exec."""
    header = struct.pack("Ii", 0x20080522, 0)
    _LIBC.capset(header, struct.pack("6I", *(capabilities,) * 3, 0, 0, 0))
    if capabilities:
        _LIBC.prctl(_AMBIENT, _RAISE, _READ_ALL, 0, 0)


def _landlock() -> tuple[int, int]:
    """Rules that forbid all writing, all reading outside Python and the system's libraries, and TCP.

    Returns:
        Which of it the kernel knows (0 nothing, 4 and more all of it), and the descriptor of the rules.
    """
    version = int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1))
    if version < 1:
        return 0, -1
    files = (1 << _FILE_RIGHTS.get(version, 16)) - 1
    rules = struct.pack("QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = int(_LIBC.syscall(_CREATE_RULESET, rules, size, 0))
    if ruleset < 0:
        return 0, -1
    for path in {*_READABLE, sys.base_prefix, sys.prefix}:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = _READ if os.path.isdir(path) else _READ & ~(1 << 3)
        _LIBC.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, place), 0)
        os.close(place)
    return version, ruleset


def _can_run(python: str) -> bool:
    return os.access(python, os.X_OK, effective_ids=True)


def main(parent: int, memory: int, cpu: int, source: int) -> None:
    """Put everything on, then exec."""
    python = os.path.realpath(sys.executable)
    walls, rules = _landlock()  # while root still sees everything
    root = os.getuid() == 0
    cut = root and _LIBC.unshare(_NEW_NET | _NEW_IPC) == 0
    if root:
        _become_nobody()
    cut = cut or _own_network()
    os.chdir("/")
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _LIBC.prctl(_DEATH_SIGNAL, 9, 0, 0, 0)
    if walls and _LIBC.syscall(_RESTRICT, rules, 0) != 0:
        walls = 0
    if root:  # its Python may lie in root's home; the rules hold it to that then
        _keep(1 << _READ_ALL if walls and not _can_run(python) else 0)
    if (walls < 4 and not cut) or not _can_run(python):
        sys.exit(125)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))  # first a signal that says so, then the end
    for limit, most in (
        (resource.RLIMIT_NPROC, 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, memory),
    ):
        resource.setrlimit(limit, (most, most))
    if os.getppid() != parent:
        os._exit(137)
    os.set_inheritable(source, True)
    os.execve(python, [python, "-I", "-S", "-c", _RUN, str(source)], {"PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
