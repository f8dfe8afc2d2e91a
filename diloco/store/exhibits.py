"""What reduced chunks were made of, and evidence, on disk: shown to whoever asks (docs/rounds.md, audits).

One file for each statement and chunk: the exhibits one after the other, each after its length. It is written without
waiting for the disk: what a power cut takes cannot be shown, and that costs some rounds of ownership and no more.
"""

import shutil
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from diloco.reduce.messages import Exhibit
from protocol.errors import Code, NodeError
from protocol.files import storage_error
from protocol.messages import decode, encode

_LENGTH = struct.Struct("<I")


class Exhibits:
    """Exhibits in one folder.

    Args:
        folder: Where; made when missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, statement: bytes, chunk: int, round_number: int | str) -> Path:
        return self._folder / str(round_number) / f"{statement.hex()}-{chunk}.bin"

    def write(self, round_number: int, statement: bytes, chunk: int, exhibits: Iterable[Exhibit]) -> None:
        """Keep exhibits; a file appears whole or not at all for those who read meanwhile.

        Args:
            round_number: The round that they are about.
            statement: Digest of the statement's envelope.
            chunk: The chunk.
            exhibits: The statement first.

        Raises:
            NodeError: ``STO_FULL``, ``STO_UNWRITABLE`` or ``STO_CORRUPT``.
        """
        path = self._path(statement, chunk, round_number)
        part = path.with_suffix(".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "wb") as file:
                for exhibit in exhibits:
                    data = encode(exhibit)
                    file.write(_LENGTH.pack(len(data)))
                    file.write(data)
            part.replace(path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise storage_error(error, path, "written") from error

    def has(self, statement: bytes, chunk: int) -> bool:
        """Whether there are exhibits of a statement here."""
        return self._find(statement, chunk) is not None

    def read(self, statement: bytes, chunk: int) -> Iterator[Exhibit]:
        """The exhibits of a statement, one at a time; none where there are none, or they were removed meanwhile.

        Raises:
            NodeError: ``STO_CORRUPT`` or ``WIRE_…``: the file is damaged.
        """
        path = self._find(statement, chunk)
        if path is None:
            return
        try:
            with open(path, "rb") as file:
                while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
                    data = file.read(size := _LENGTH.unpack(head)[0])
                    if len(data) < size:
                        raise NodeError(Code.STO_CORRUPT, f"{path} was cut off.")
                    yield decode(Exhibit, data)
        except OSError:
            return

    def keep(self, most: int) -> None:
        """Remove all but the newest files."""
        times: list[tuple[int, Path]] = []
        for folder in self._rounds():
            with suppress(FileNotFoundError):  # another thread removes, too
                times += [
                    (file.stat().st_mtime_ns, file) for file in folder.iterdir() if file.suffix == ".bin"
                ]
        for _, file in sorted(times)[:-most]:
            file.unlink(missing_ok=True)

    def prune(self, before_round: int) -> None:
        """Remove what is about rounds before one."""
        for folder in self._rounds():
            if int(folder.name) < before_round:
                shutil.rmtree(folder, ignore_errors=True)

    def _rounds(self) -> list[Path]:
        return list(self._folder.iterdir()) if self._folder.is_dir() else []

    def _find(self, statement: bytes, chunk: int) -> Path | None:
        paths = (folder / f"{statement.hex()}-{chunk}.bin" for folder in self._rounds())
        return next((path for path in paths if path.is_file()), None)
