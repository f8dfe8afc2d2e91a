"""Which files a run learns from, and where a node finds their bytes (docs/architecture.md, data).

The genesis holds name, size and digest of each file. A node takes a file of its own Python (or its own text folder)
where the digest agrees; what differs it gets from members and stores under its digest. Wrong bytes are never read.
"""

import ast
import os
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from blake3 import blake3

from diloco.config import DataSection
from diloco.genesis import CorpusFile, Genesis
from protocol.errors import Code, NodeError
from protocol.files import write_whole

TOPICS = "pydoc_data/topics.py"
TEXT_SUFFIXES = (".txt", ".md", ".rst", ".py")
# Tests and bundled tools teach little, character tables less, and the rest differs between machines with one Python.
SKIPPED_FOLDERS = frozenset(
    (
        *("test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings", "pydoc_data"),
        *("site-packages", "dist-packages", "__pycache__"),
    )
)
SKIPPED_PREFIXES = ("_sysconfigdata", "sitecustomize", "usercustomize", "config-")
SMALLEST_SOURCE, LARGEST_SOURCE = 200, 200_000
LARGEST_PIECE = 2**16


def standard_library() -> Path:
    """The folder of this Python's own standard library."""
    return Path(sysconfig.get_path("stdlib"))


def choose_files(section: DataSection, seed: int, base: Path) -> tuple[CorpusFile, ...]:
    """Pick the corpus of a new run and split it.

    The documentation topics come first and are trained on; then sources in an order that the seed fixes, until
    `max_bytes` are reached. Held out are whole files, in another such order, until their share is reached.

    Args:
        section: The run's data section.
        seed: The run's seed.
        base: Folder that `section.paths` are relative to.

    Returns:
        The files in the order in which their text is joined.

    Raises:
        NodeError: TRN_DATA when there are too few files or one cannot be read.
    """
    if section.source == "none":
        return ()
    candidates = _stdlib_files() if section.source == "python-stdlib" else _text_files(section.paths, base)
    ordered = sorted(candidates, key=lambda name: (name != TOPICS, _draw(seed, "order", name)))
    taken: list[tuple[str, bytes]] = []
    total = 0
    for name in ordered:
        if total >= section.max_bytes:
            break
        data = _read(candidates[name])
        if data:
            taken.append((name, data))
            total += len(data)
    held_out: set[str] = set()
    held_bytes = 0
    for name, data in sorted(taken, key=lambda each: _draw(seed, "split", each[0])):
        # A file that overshoots the share twofold would leave little to train on, so a smaller one is sought.
        fits = held_bytes + len(data) <= 2 * section.validation_share * total
        if name != TOPICS and fits and held_bytes < section.validation_share * total:
            held_out.add(name)
            held_bytes += len(data)
    if not held_out and len(taken) > 1:
        held_out.add(min((each for each in taken if each[0] != TOPICS), key=lambda each: len(each[1]))[0])
    if len(held_out) in (0, len(taken)):
        raise NodeError(
            Code.TRN_DATA,
            f"The corpus has {len(taken)} usable files; at least two are needed, one of them to hold out.",
            fix="Name more files in [data] paths.",
        )
    return tuple(
        CorpusFile(
            name=name,
            size=len(data),
            digest=blake3(data).hexdigest(),
            part="validation" if name in held_out else "train",
        )
        for name, data in taken
    )


class Corpus:
    """The files of one run on one node.

    Args:
        files: The genesis' files.
        section: The genesis' data section.
        folder: The node's folder for files that came from members, one per digest; made when needed.
        base: Folder that the run file's `paths` are relative to; None where the node has no such files.
    """

    def __init__(
        self, files: Sequence[CorpusFile], section: DataSection, folder: Path, base: Path | None = None
    ) -> None:
        self.files = tuple(files)
        self._folder = folder
        self._texts: Path | None = standard_library() if section.source == "python-stdlib" else base
        self._base = base

    def read(self, file: CorpusFile) -> bytes:
        """The verified bytes of a file.

        Raises:
            NodeError: TRN_DATA when no place on this node holds them.
        """
        data = self._find(file)
        if data is None:
            raise NodeError(
                Code.TRN_DATA, f"No file on this node has the bytes that the run knows as {file.name}."
            )
        return data

    def missing(self) -> tuple[CorpusFile, ...]:
        """Files that this node has to get from members."""
        return tuple(file for file in self.files if self._find(file) is None)

    def accept(self, file: CorpusFile, data: bytes) -> None:
        """Store a file's bytes that came from a member.

        Raises:
            NodeError: TRN_DATA when the bytes are not the file's.
        """
        if len(data) != file.size or blake3(data).hexdigest() != file.digest:
            raise NodeError(
                Code.TRN_DATA, f"The bytes offered as {file.name} are not what the genesis names."
            )
        write_whole(self._folder / file.digest, [data])

    def keep(self, file: CorpusFile) -> None:
        """Have a file in the node's own folder, whatever becomes of the run file's.

        Raises:
            NodeError: TRN_DATA when no place on this node holds it.
        """
        if not (self._folder / file.digest).exists():
            self.accept(file, self.read(file))

    def documents(self, part: str, progress: Callable[[str], None] | None = None) -> Iterator[str]:
        """The texts of one part, "train" or "validation", in genesis order, in pieces of bounded length."""
        for file in self.files:
            if file.part == part:
                if progress is not None:
                    progress(file.name)
                yield from documents_of(file.name, self.read(file))

    def _find(self, file: CorpusFile) -> bytes | None:
        places = [self._folder / file.digest]
        home = self._base if file.part == "weights" else self._texts
        if home is not None:
            if leaves_folder(file.name):
                raise NodeError(Code.TRN_DATA, f"The corpus file name {file.name!r} leaves its folder.")
            places.append(home / file.name)
        for place in places:
            try:
                if place.stat().st_size != file.size:
                    continue
                data = place.read_bytes()
            except OSError:
                continue
            if blake3(data).hexdigest() == file.digest:
                return data
        return None


def corpus_of(genesis: Genesis, folder: Path, base: Path | None) -> Corpus:
    """A run's corpus on a node.

    Args:
        genesis: The run.
        folder: The node's folder for its workers; files from members lie below it.
        base: Folder of the run file, None for a node that has no corpus of its own.
    """
    return Corpus(genesis.files, genesis.sections.data, folder / "corpus", base)


def weights_file(name: str, base: Path) -> CorpusFile:
    """The file of a new run's initial weights.

    Args:
        name: Its path, relative to `base`.
        base: The run file's folder.

    Raises:
        NodeError: TRN_DATA when it lies elsewhere or cannot be read.
    """
    if leaves_folder(name):
        raise NodeError(
            Code.TRN_DATA,
            f"The weights {name!r} lie outside of the run file's folder.",
            fix="Move the file below the folder of the run file.",
        )
    data = _read(base / name)
    return CorpusFile(name=name, size=len(data), digest=blake3(data).hexdigest(), part="weights")


def leaves_folder(name: str) -> bool:
    """Whether a relative name may lead out of its folder."""
    return ".." in Path(name).parts or Path(name).is_absolute()


def documents_of(name: str, data: bytes) -> Iterator[str]:
    """The texts in a file: each documentation topic, or the file itself, cut at line ends into bounded pieces."""
    text = data.decode("utf-8", errors="replace")
    texts = _topics(text) if name == TOPICS else [text]
    for each in texts:
        start = 0
        while start < len(each):
            end = start + LARGEST_PIECE
            if end < len(each):
                end = max(each.rfind("\n", start, end) + 1, 0) or end
                end = end if end > start else start + LARGEST_PIECE
            yield each[start:end]
            start = end


def _topics(source: str) -> list[str]:
    """Texts of `topics = {...}`, read as a literal, never run."""
    try:
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                return [text for text in ast.literal_eval(node.value).values() if isinstance(text, str)]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    return [source]


def _stdlib_files() -> dict[str, Path]:
    root = standard_library()
    found = {TOPICS: root / TOPICS} if (root / TOPICS).is_file() else {}
    for folder, folders, names in os.walk(root):
        folders[:] = [
            each for each in folders if each not in SKIPPED_FOLDERS and not each.startswith(SKIPPED_PREFIXES)
        ]
        for name in names:
            path = Path(folder) / name
            if not name.endswith(".py") or name.startswith(SKIPPED_PREFIXES) or path.is_symlink():
                continue
            if SMALLEST_SOURCE <= path.stat().st_size <= LARGEST_SOURCE:
                found[path.relative_to(root).as_posix()] = path
    return found


def _text_files(paths: Sequence[str], base: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in paths:
        path = base / text
        if not path.exists():
            raise NodeError(
                Code.TRN_DATA, f"The path {path} of [data] paths does not exist.", fix="Correct the path."
            )
        members = (
            [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix in TEXT_SUFFIXES]
        )
        for member in members:
            try:
                name = member.resolve().relative_to(base.resolve()).as_posix()
            except ValueError:
                raise NodeError(
                    Code.TRN_DATA,
                    f"{member} lies outside of the run file's folder.",
                    fix="Move the text below the folder of the run file.",
                ) from None
            if member.is_file():
                found[name] = member
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NodeError(Code.TRN_DATA, f"{path} cannot be read: {error.strerror}.") from None


def _draw(seed: int, purpose: str, name: str) -> bytes:
    return blake3(f"{seed} {purpose} {name}".encode(), derive_key_context="diloco corpus 1").digest()
