"""Checkpoints of the outer state: safetensors files that are byte-identical on all members.

A checkpoint of round r is the state from which round r starts. It becomes servable when a certified value names its
digest as base. The newest one that verifies is used; a damaged one falls back to the one before.
"""

import json
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diloco.digest import state_digest
from diloco.layout import Grid
from protocol.errors import Code, NodeError
from protocol.files import write_whole

SCHEMA_VERSION = "1"
_MAX_HEADER = 1 << 16

Floats = npt.NDArray[np.float32]


class Checkpoints:
    """The checkpoints in one folder.

    Args:
        folder: Where.
        run: Run id, written into each file.
        grid: The run's chunk grid.
    """

    def __init__(self, folder: Path, run: str, grid: Grid) -> None:
        self._folder, self._run, self._grid = folder, run, grid

    def path(self, round_number: int) -> Path:
        """Where the checkpoint of a round is or would be."""
        return self._folder / f"round-{round_number:08d}.safetensors"

    def rounds(self) -> list[int]:
        """Rounds of the checkpoints that are there, newest first."""
        names = (path.stem.removeprefix("round-") for path in self._folder.glob("round-*.safetensors"))
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def discard(self, round_number: int) -> None:
        """Remove a checkpoint; a directory that lies in its place is left to people."""
        with suppress(OSError):
            self.path(round_number).unlink()

    def write(self, round_number: int, params: Floats, momentum: Floats, digest: bytes) -> Path:
        """Store a state; the same state gives the same bytes on every member.

        Args:
            round_number: The round that starts from it.
            params: Outer parameters, fp32 of shape (grid.size,).
            momentum: Outer momentum, same shape.
            digest: State digest of the two.

        Raises:
            NodeError: ``STO_FULL`` or ``STO_UNWRITABLE``.
        """
        size = params.nbytes
        header = {
            "__metadata__": {
                "digest": digest.hex(),
                "round": str(round_number),
                "run": self._run,
                "schema": SCHEMA_VERSION,
            },
            "momentum": {"data_offsets": [size, 2 * size], "dtype": "F32", "shape": [params.size]},
            "parameters": {"data_offsets": [0, size], "dtype": "F32", "shape": [params.size]},
        }
        text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path = self.path(round_number)
        parts = (struct.pack("<Q", len(text)), text, _bytes(params), _bytes(momentum))
        write_whole(path, parts)
        return path

    def read(self, path: Path, round_number: int, digest: bytes | None) -> tuple[Floats, Floats]:
        """Parameters and momentum of a checkpoint file, verified.

        Args:
            path: The file.
            round_number: The round it must be of.
            digest: State digest it must have; None where no value has certified it yet: then the one it names itself.

        Raises:
            NodeError: ``STO_CORRUPT`` for any damage or another digest, ``STO_SCHEMA`` for another schema or run.
        """
        try:
            params, momentum, named = self._load(path, round_number)
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise NodeError(Code.STO_CORRUPT, f"The checkpoint {path} is damaged: {error}.") from error
        wanted = named if digest is None else digest
        if named != wanted or state_digest(round_number, params, momentum, self._grid) != wanted:
            raise NodeError(
                Code.STO_CORRUPT, f"The checkpoint {path} does not have the digest {wanted.hex()[:16]}…."
            )
        return params, momentum

    def _load(self, path: Path, round_number: int) -> tuple[Floats, Floats, bytes]:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MAX_HEADER:
                raise ValueError("its header is too large")
            header = json.loads(file.read(length))
            meta = header["__metadata__"]
            if meta["schema"] != SCHEMA_VERSION or meta["run"] != self._run:
                raise NodeError(Code.STO_SCHEMA, f"The checkpoint {path} is of another run or schema.")
            if int(meta["round"]) != round_number:
                raise ValueError("it is of another round")
            size = self._grid.size * 4
            if header["parameters"]["data_offsets"] != [0, size] or header["momentum"]["data_offsets"] != [
                size,
                2 * size,
            ]:
                raise ValueError("it has another size")
            body = np.fromfile(file, dtype="<f4", count=2 * self._grid.size)
            if body.size != 2 * self._grid.size or file.read(1):
                raise ValueError("it is cut short or too long")
        return body[: self._grid.size], body[self._grid.size :], bytes.fromhex(meta["digest"])


def _bytes(values: Floats) -> memoryview:
    return np.ascontiguousarray(values, dtype="<f4").data.cast("B")
