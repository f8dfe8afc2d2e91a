"""A trainer's policy versions: each certified state written once, served over HTTP, told to whoever asks."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import process_time
from typing import Literal

import numpy as np
import numpy.typing as npt

from diloco.layout import Layout
from diloco.member.setting import Emit
from diloco.weights import write_weights
from node.roles.policies import NAME, label_of
from protocol.clock import monotonic
from protocol.errors import Code, NodeError
from protocol.files import storage_error, write_whole
from protocol.identity import Identity
from protocol.rpc import Context
from protocol.units import Digest
from rl.messages import AskPolicies, Policies, Policy
from shardcast.digest import file_digest
from shardcast.http.origin import Origin
from shardcast.http.versions import Publisher

_LONG_POLL = timedelta(seconds=8)
_REMEMBERED = 256
"""Versions whose digest and beacon are remembered; files go earlier."""


@dataclass(frozen=True)
class Made:
    """A policy version that was written.

    Attributes:
        version: Rounds behind it.
        weights: Digest of its file.
        beacon: Of the value that certified it.
        size: Bytes of the file.
    """

    version: int
    weights: Digest
    beacon: Digest
    size: int


class PolicyPublisher:
    """Publishes.

    A version counts as made once its note lies beside its file, so one that was written in part is made again.

    Args:
        identity: Who signs manifests.
        layout: Of the model.
        dtype: How weights are stored.
        folder: Where versions lie.
        keep: Versions whose files stay.
        emit: The event log.
    """

    def __init__(
        self,
        identity: Identity,
        layout: Layout,
        dtype: Literal["fp32", "bf16"],
        folder: Path,
        keep: int,
        emit: Emit,
    ) -> None:
        self._layout, self._dtype, self._folder, self._keep, self._emit = layout, dtype, folder, keep, emit
        self._origin = Origin(folder / "origin", identity, keep=3 * keep)
        self._publisher: Publisher | None = None
        self._made: dict[int, Made] = {}
        self._served: int = -1
        self._address = ""
        self._changed = asyncio.Condition()
        self.chain: Callable[[], tuple[int, bytes]] = lambda: (0, b"")
        """Number and anchor of the audit chain of the next file."""

    async def start(self, host: str, port: int, announce: str) -> None:
        """Serve, beginning with what was made before.

        Raises:
            NodeError: NET_PORT_IN_USE, STO_….
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, self._folder) from error
        await self._origin.start(host, port)
        self._publisher = Publisher(self._origin, self._folder, NAME)
        self._address = f"http://{announce or host}:{self._origin.server.port}"
        for note in self._folder.glob("v*.json"):
            with suppress(ValueError, KeyError, OSError, TypeError):
                held = json.loads(note.read_bytes())
                made = Made(
                    int(held["version"]), Digest(bytes.fromhex(held["weights"])),
                    Digest(bytes.fromhex(held["beacon"])), int(held["size"]),
                )  # fmt: skip
                self._made[made.version] = made
        self._emit("policy.serving", address=self._address)

    async def stop(self) -> None:
        """Serve nothing more."""
        if self._publisher is not None:
            self._publisher.close()
            await self._origin.stop()

    @property
    def newest(self) -> int:
        """The newest version that others can have; -1 before the first."""
        return self._served

    def made(self, version: int) -> Made:
        """What is known of a version.

        Raises:
            NodeError: RL_POLICY when it is not known here (any more).
        """
        try:
            return self._made[version]
        except KeyError:
            raise NodeError(Code.RL_POLICY, f"Policy version {version} is not known here.") from None

    def paths(self) -> Mapping[int, Path]:
        """The files that are here, by version."""
        return {version: self._path(version) for version in self._made if self._path(version).exists()}

    def keep_reference(self) -> Path:
        """The run's initial policy, kept for good.

        Raises:
            NodeError: RL_POLICY when it was never made here.
        """
        kept = self._folder / "reference.safetensors"
        if not kept.exists():
            if not self._path(0).exists():
                raise NodeError(Code.RL_POLICY, "The run's initial policy is not here.")
            os.link(self._path(0), kept)
        return kept

    def _path(self, version: int) -> Path:
        return self._folder / f"v{version}.safetensors"

    async def publish(self, version: int, params: npt.NDArray[np.float32], beacon: Digest) -> None:
        """Write a version and serve it; once is enough, again does no harm.

        Raises:
            NodeError: STO_….
        """
        assert self._publisher is not None
        began, used = monotonic(), process_time()
        path = self._path(version)
        if version not in self._made or not path.exists():
            await asyncio.to_thread(
                write_weights, path, self._layout, params, "F32" if self._dtype == "fp32" else "BF16"
            )
            data = await asyncio.to_thread(path.read_bytes)
            made = Made(version, Digest(file_digest(data)), beacon, len(data))
            note = {
                "version": version, "weights": made.weights.hex(), "beacon": beacon.hex(), "size": made.size,
            }  # fmt: skip
            write_whole(path.with_suffix(".json"), [json.dumps(note).encode()])
            self._made[version] = made
        label = label_of(version)
        if not any((each.name, each.version) == (NAME, label) for each in self._origin.catalogue.entries()):
            await self._publisher.publish(path, label)
        made = self._made[version]
        self._tidy()
        async with self._changed:
            self._served = max(self._served, version)
            self._changed.notify_all()
        self._emit(
            "policy.published", version=version, bytes=made.size, digest=made.weights.hex(),
            seconds=monotonic() - began, cpu=process_time() - used,
        )  # fmt: skip

    def _tidy(self) -> None:
        newest_first = sorted(self._made, reverse=True)
        for version in newest_first[self._keep :]:
            self._path(version).unlink(missing_ok=True)
        for version in newest_first[_REMEMBERED:]:
            self._path(version).with_suffix(".json").unlink(missing_ok=True)
            del self._made[version]

    async def on_ask_policies(self, message: AskPolicies, context: Context) -> Policies:
        """Tell the versions of the window, at the latest when the newest is newer than the asker's."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONG_POLL.total_seconds()), self._changed:
                await self._changed.wait_for(lambda: self._served > message.newer_than)
        told = sorted(version for version in self._made if version <= self._served)[-self._keep :]
        return Policies(
            policies=tuple(
                Policy(version=each, weights=self._made[each].weights, beacon=self._made[each].beacon,
                       size=self._made[each].size)
                for each in told
            ),
            sources=(self._address,),
            publisher=self._origin.publisher,
            chain=self.chain()[0],
            anchor=self.chain()[1],
        )  # fmt: skip
