"""The run file: what a run is, and what of this machine the node may use.

A run file is TOML. Every key has a default, so three lines are enough; ``docs/run.example.toml`` lists them all. The
sections that describe the run are `diloco.config`'s and the same for every member; ``[limits]``, ``[network]`` and
``[node]`` are this machine's own.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from diloco.config import RunSections, Section
from node.runfile_lines import key_lines
from node.runfile_problems import MULTIADDR_PATTERN, Allowed, Problem, RunFileError, problems_of
from protocol.errors import Code, NodeError
from protocol.paths.limits import RELAY_BYTES, RELAY_CIRCUITS, RELAY_RESERVATIONS
from protocol.units import Bytes, bandwidth
from rl.section import RlSection
from rl.training.settings import ObjectiveSection

SCHEMA_VERSION = 1
MAX_BYTES = 256 * 1024

_SMALLEST_RATE = Bytes(1_000)
_SMALLEST_RELAY = Bytes.parse("1 MiB")


def _rate(value: Any) -> Bytes | None:
    if value is None or value == "unlimited":
        return None
    if not isinstance(value, str | Bytes):
        raise ValueError("a rate is text, because it needs a unit")
    rate = bandwidth(value)
    if rate < _SMALLEST_RATE:
        raise ValueError("at least 8 kb/s are needed")
    return rate


def rate_text(rate: Bytes | None) -> str:
    """The text of a rate, in bits as network links are sold: "20 Mb/s"."""
    if rate is None:
        return "unlimited"
    unit, scale = next(
        (each for each in (("Gb", 10**9), ("Mb", 10**6), ("kb", 10**3)) if rate * 8 >= each[1]), ("b", 1)
    )
    return f"{rate * 8 / scale:.15g} {unit}/s"


def _size(value: Any) -> Bytes | None:
    if value is None or value == "unlimited":
        return None
    if not isinstance(value, str | Bytes):
        raise ValueError("a size is text, because it needs a unit")
    return Bytes.parse(value)


def _some_size(value: Any) -> Bytes:
    size = _size(value)
    if size is None or size < _SMALLEST_RELAY:
        raise ValueError("at least 1 MiB is needed")
    return size


Bandwidth = Annotated[
    Bytes | None,
    Allowed('a rate such as "20 Mb/s" or "2.5 MB/s", or "unlimited"'),
    PlainValidator(_rate),
    PlainSerializer(rate_text, return_type=str),
]
Size = Annotated[
    Bytes | None,
    Allowed('a size such as "4 GiB" or "500 MB", or "unlimited"'),
    PlainValidator(_size),
    PlainSerializer(lambda size: "unlimited" if size is None else str(size), return_type=str),
]
_IN_RL = ("rl", "objective")  # sections that a genesis has only in a run of reinforcement learning
Port = Annotated[int, Field(ge=0, le=65_535)]
Role = Literal["trainer", "coordinator", "rollout", "validator"]


Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    Field(max_length=64),
]


class LimitsSection(Section):
    """`[limits]`: what this node may use at most."""

    upload: Bandwidth = None
    """What the node sends in bulk, rounds and state for joiners together. Bytes per second in the code."""
    download: Bandwidth = None
    """What the node fetches in bulk."""
    memory: Size = None
    """Memory of the node with its workers; it refuses to start where the model needs more."""
    disk: Size = None
    """Disk space of the data directory; it refuses to start where the model needs more."""


class NetworkSection(Section):
    """`[network]`: where the node listens and how others reach it."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    """Address to listen on. "127.0.0.1" is for a swarm on one machine, "0.0.0.0" for one over a network."""
    port: Port = 0
    """TCP port of the data plane; 0 takes any free one."""
    directory_port: Port = 0
    """TCP port of the directory, by which peers find each other; 0 takes any free one."""
    gossip: bool = True
    """Whether the node has a host that passes gossip on. Without it, the node asks others what was said, and hears it
    up to a minute late; it saves some 60 MB of memory."""
    gossip_port: Port = 0
    """TCP port of the gossip host; 0 takes any free one."""
    announce: Annotated[str, Field(max_length=255)] = ""
    """Host name or address that others dial, when it is not the one to listen on; empty finds it out."""
    join: Annotated[
        tuple[Annotated[str, Field(pattern=MULTIADDR_PATTERN)], ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(max_length=64),
    ] = ()
    """Multiaddresses of peers to join by, as `--join` gives them."""
    reach: Literal["auto", "direct", "relayed"] = "auto"
    """Whether others connect to this node directly. "auto" has the peers of `join` call back, and goes through a relay
    where they cannot."""
    relay: bool = False
    """Makes this node, which others have to reach directly, a relay for those behind routers, as `--relay` does."""
    relay_peers: Annotated[int, Field(ge=1, le=4096)] = RELAY_RESERVATIONS
    """How many peers may have a place at this relay."""
    relay_connections: Annotated[int, Field(ge=1, le=1024)] = RELAY_CIRCUITS
    """How many connections at once this relay carries for one peer."""
    relay_bytes: Annotated[
        Bytes,
        Allowed('a size such as "16 GiB"'),
        PlainValidator(_some_size),
        PlainSerializer(str, return_type=str),
    ] = RELAY_BYTES
    """How many bytes this relay carries in each direction of one connection, which has to be made anew then."""


class ShardcastSection(Section):
    """`[shardcast]`: makes the node a relay of large files over HTTP, beside what else it does (docs/shardcast.md)."""

    sources: Texts = ()
    """Servers to fetch versions from, origins or relays, as "http://203.0.113.7:8000"; without any it is no relay."""
    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    """Address to listen on."""
    port: Port = 0
    """TCP port; 0 takes any free one."""
    names: Texts = ()
    """Only objects of these names; empty for all."""
    publishers: Texts = ()
    """Only versions of these publishers' peer ids; empty for all."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 5
    """How many versions of each name stay."""
    disk: Size = None
    """Disk space of versions; those that have no room are not fetched."""
    rate: Bandwidth = None
    """What one client gets at most."""


class PolicySection(Section):
    """`[policy]`: in a run of reinforcement learning, how this node gives or gets the policy's versions."""

    host: Annotated[str, Field(min_length=1, max_length=255)] = "127.0.0.1"
    """Address at which a trainer serves them over HTTP; others are told it."""
    port: Port = 0
    """TCP port for that; 0 takes any free one."""
    announce: Annotated[str, Field(max_length=255)] = ""
    """Host name or address that others are told instead of `host`."""
    sources: Texts = ()
    """Servers to fetch them from, as "http://203.0.113.7:8000": relays, for instance. Empty: what the trainers name."""
    requests: Annotated[int, Field(ge=1, le=4096)] = 32
    """Rollouts that this node's engine has under way at once."""


class LocalNodeSection(Section):
    """`[node]`: this node itself."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$|^$")] = ""
    """A name that people see; empty shows the end of the peer id."""
    roles: Annotated[
        tuple[Role, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(min_length=1),
    ] = ("trainer",)
    """What the node does. `intellect-node init` adds "coordinator" to its first node. In a run of reinforcement
    learning a node that does not train is a "rollout" worker or a "validator"."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Worker processes that share the model, one per accelerator."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """What the workers compute on; "auto" takes CUDA where there is a GPU and a torch that can use it."""
    threads: Annotated[int, Field(ge=0, le=4096)] = 0
    """Threads of each worker; 0 shares this machine's cores among the workers."""
    auto_reset: bool = False
    """On the node with the operator's key: whether it begins a new epoch by itself when a third of the voters, or more,
    see no way to a decision and nothing is heard of the others. Else it says that a person is needed."""

    @model_validator(mode="after")
    def _roles_differ(self) -> Self:
        if len(set(self.roles)) != len(self.roles):
            raise ValueError("roles names a role twice")
        if len({"trainer", "rollout", "validator"} & set(self.roles)) != 1:
            raise ValueError("a node is a trainer, a rollout worker or a validator, one of them")
        return self


class RunFile(RunSections):
    """A whole run file. Made by `load`; `RunFile()` has all defaults."""

    schema_version: Literal[1] = 1
    """Version of the run file's form."""
    limits: LimitsSection = LimitsSection()
    """What this node may use at most."""
    network: NetworkSection = NetworkSection()
    """Where the node listens."""
    rl: RlSection = RlSection()  # type: ignore[assignment]  # a genesis has it as plain JSON
    """Reinforcement learning."""
    objective: ObjectiveSection = ObjectiveSection()  # type: ignore[assignment]
    """What the workers of such a run minimise."""
    policy: PolicySection = PolicySection()
    """How this node gives or gets the policy's versions."""
    shardcast: ShardcastSection = ShardcastSection()
    """What the node passes on over HTTP."""
    node: LocalNodeSection = LocalNodeSection()
    """This node."""

    @model_validator(mode="after")
    def _samplings_agree(self) -> Self:
        for name in ("temperature", "top_p", "top_k"):
            if getattr(self.rl, name) != getattr(self.objective, name):
                raise ValueError(f"objective.{name} has to be rl.{name}")
        return self

    _name: str = PrivateAttr(default="run file")
    _lines: Mapping[str, int] = PrivateAttr(default_factory=dict)

    @property
    def written(self) -> frozenset[str]:
        """Dotted keys that the file itself gives, as opposed to defaults. Empty when there was no file."""
        return frozenset(key for key in self._lines if "." in key)

    def where(self, key: str) -> str:
        """Where a key stands: "RUN.toml, line 7", or "RUN.toml" when the file does not give it."""
        line = self._lines.get(key) or self._lines.get(key.partition(".")[0])
        return f"{self._name}, line {line}" if line else self._name

    def sections(self) -> RunSections:
        """The part that describes the run, the same for every member."""
        common = {name: getattr(self, name) for name in RunSections.model_fields if name not in _IN_RL}
        own = {
            name: getattr(self, name).model_dump(mode="json") if self.rl.present else {} for name in _IN_RL
        }
        return RunSections(**common, **own)

    def as_relay(self, wanted: bool) -> "RunFile":
        """The same with ``network.relay`` set, if that is wanted."""
        if not wanted:
            return self
        return self.model_copy(update={"network": self.network.model_copy(update={"relay": True})})

    def with_role(self, role: str) -> "RunFile":
        """The same with ``node.roles`` set to this one role; empty changes nothing.

        Raises:
            NodeError: CFG_USAGE when there is no such role.
        """
        if not role:
            return self
        if role not in get_args(Role) or role == "coordinator":
            raise NodeError(Code.CFG_USAGE, f"--role {role!r} is none: give trainer, rollout or validator.")
        node = self.node.model_copy(update={"roles": (role,)})
        return self.model_copy(update={"node": node})

    def mismatch(self, differing: Iterable[str]) -> NodeError | None:
        """The error for keys in which this file contradicts a run's genesis; None where it contradicts nothing.

        Keys that the file does not give follow the run and contradict nothing, so a joiner's file may be short.

        Args:
            differing: Dotted keys, as `Genesis.mismatch` lists them.
        """
        wrong = sorted(set(differing) & self.written)
        if not wrong:
            return None
        named = "; ".join(f"{self.where(key)}: `{key}`" for key in wrong[:5])
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        return NodeError(
            Code.CFG_GENESIS_MISMATCH, f"The run file differs from the run it is to join ({named}{more})."
        )


def load(path: Path) -> RunFile:
    """Read and check a run file.

    Raises:
        NodeError: CFG_UNREADABLE when it cannot be read as TOML.
        RunFileError: All that is wrong with its keys and values, at once.
    """
    return parse(_read(path), path.name)


def parse(text: str, name: str = "run file") -> RunFile:
    """Like `load`, for text that is called `name` in errors."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(name, str(error)) from None
    except RecursionError:
        raise NodeError(Code.CFG_UNREADABLE, f"{name} is nested too deeply.") from None
    lines = key_lines(text)
    version = content.get("schema_version", SCHEMA_VERSION)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        sentence = f"`schema_version` is {version}; this software reads version {SCHEMA_VERSION}"
        fix = "Update intellect-node, or write the file for this version."
        raise RunFileError(
            name, (Problem(Code.CFG_BAD_VALUE, "schema_version", lines.get("schema_version"), sentence, fix),)
        )
    try:
        runfile = RunFile.model_validate(content)
    except ValidationError as error:
        raise RunFileError(name, problems_of(error, RunFile, lines)) from None
    runfile._name = name
    runfile._lines = lines
    return runfile


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        fix = "Write one; three lines are enough, and docs/run.example.toml shows every key."
        raise NodeError(Code.CFG_UNREADABLE, f"There is no run file {path}.", fix=fix) from None
    except OSError as error:
        raise NodeError(
            Code.CFG_UNREADABLE, f"The run file {path} cannot be read: {error.strerror}."
        ) from None
    if len(data) > MAX_BYTES:
        raise NodeError(Code.CFG_UNREADABLE, f"The run file {path} has more than {MAX_BYTES} bytes.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NodeError(Code.CFG_UNREADABLE, f"{path.name}, line {line}: the text is not UTF-8.") from None


def _syntax(name: str, message: str) -> NodeError:
    match = re.fullmatch(r"(.*) \(at (line \d+, column \d+|end of document)\)", message, re.DOTALL)
    what, at = (match[1], match[2]) if match else (message, "")
    what = what[:1].lower() + what[1:]
    where = f"{name}, {at}" if at else name
    return NodeError(
        Code.CFG_UNREADABLE,
        f"{where}: {what}.",
        fix='Correct the TOML there: texts need quotes, as in `name = "demo"`.',
    )
