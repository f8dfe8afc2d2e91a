"""The genesis: the immutable description of a run, whose hash is the run's id (docs/architecture.md, trust).

Its bytes are canonical JSON: keys sorted, no blanks, ASCII only. Only canonical bytes are accepted, so one genesis has
one id. Everything that members must agree on before the first round is in it; what a round decides is not.
"""

import json
from typing import Annotated, Any, Literal, Self

from blake3 import blake3
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from diloco.config import PEER_ID_PATTERN, RunSections, Section
from protocol.errors import Code, NodeError
from protocol.units import Digest, PeerId, RunId

SCHEMA_VERSION = 1
MAX_GENESIS_BYTES = 32 * 2**20
MAX_FILES = 100_000
HexDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class CorpusFile(Section):
    """One file of the run, known by its bytes.

    Attributes:
        name: Relative name with forward slashes, the same on every machine.
        size: Bytes.
        digest: BLAKE3 of the bytes, hexadecimal.
        part: Whether the file is trained on or held out, or holds the weights that the run begins with.
    """

    name: Annotated[str, Field(min_length=1, max_length=512)]
    size: Annotated[int, Field(ge=1, le=2**34)]
    digest: HexDigest
    part: Literal["train", "validation", "weights"]


class Genesis(Section):
    """A run's immutable description.

    Attributes:
        schema_version: Version of this description's form.
        sections: Model, data, hyper-parameters, rounds, deadlines, admission policy.
        operator_root: Peer id of the operator's root key.
        parameters: Number of values of the flat layout.
        layout_digest: Digest of names and shapes in layout order, hexadecimal.
        initial_digest: State digest of the state that round 0 starts from, hexadecimal.
        tokenizer: The tokenizer as JSON text.
        files: The corpus, in the order in which its text is joined; behind it the file of the initial weights.
    """

    schema_version: Literal[1] = 1
    sections: RunSections
    operator_root: Annotated[str, Field(pattern=PEER_ID_PATTERN)]
    parameters: Annotated[int, Field(ge=1, le=2**40)]
    layout_digest: HexDigest
    initial_digest: HexDigest
    tokenizer: Annotated[str, Field(min_length=2, max_length=MAX_GENESIS_BYTES)]
    files: Annotated[
        tuple[CorpusFile, ...],
        BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
        Field(max_length=MAX_FILES),
    ]

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError("a corpus file is named twice")
        text = {file.part for file in self.files} - {"weights"}
        if text != (set() if self.sections.data.source == "none" else {"train", "validation"}):
            raise ValueError("the corpus needs files to train on and files held out, or there is none at all")
        if [file.name for file in self.files if file.part == "weights"] != [
            name for name in (self.sections.model.weights,) if name
        ]:
            raise ValueError("the file of the initial weights is not the one that the model section names")
        return self

    @property
    def weights(self) -> CorpusFile | None:
        """The file of the initial weights; None where they are drawn."""
        return next((file for file in self.files if file.part == "weights"), None)

    def to_bytes(self) -> bytes:
        """The canonical bytes."""
        return _canonical(self.model_dump(mode="json"))

    @property
    def run_id(self) -> RunId:
        """The run's name to machines: hexadecimal BLAKE3 of the canonical bytes."""
        return RunId(blake3(self.to_bytes()).hexdigest())

    @property
    def operator(self) -> PeerId:
        """`operator_root` with its type."""
        return PeerId(self.operator_root)

    @property
    def base(self) -> Digest:
        """`initial_digest` as bytes."""
        return Digest(bytes.fromhex(self.initial_digest))

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a genesis that came from a file or a peer.

        Args:
            data: Canonical bytes, at most 32 MiB.

        Returns:
            The genesis; its `to_bytes()` equals `data`.

        Raises:
            NodeError: CFG_GENESIS_INVALID for anything else.
        """
        if len(data) > MAX_GENESIS_BYTES:
            raise NodeError(
                Code.CFG_GENESIS_INVALID, f"The genesis has {len(data)} bytes, more than {MAX_GENESIS_BYTES}."
            )
        try:
            genesis = cls.model_validate(json.loads(data))
            canonical = genesis.to_bytes()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "whole"
            raise NodeError(Code.CFG_GENESIS_INVALID, f"Genesis key {where}: {first['msg']}.") from None
        except (ValueError, RecursionError) as error:
            raise NodeError(
                Code.CFG_GENESIS_INVALID, f"The genesis is not JSON: {type(error).__name__}."
            ) from None
        if canonical != data:
            raise NodeError(Code.CFG_GENESIS_INVALID, "The genesis is not in its canonical form.")
        return genesis

    def mismatch(self, sections: RunSections) -> list[str]:
        """Keys in which a run file's sections differ from this run's.

        Args:
            sections: What the run file says, its defaults included.

        Returns:
            Dotted keys in alphabetical order, empty when all agree.
        """
        ours, theirs = (_flat(each.model_dump(mode="json")) for each in (self.sections, sections))
        return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))


def _canonical(value: Any) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def _flat(value: dict[str, Any]) -> dict[str, Any]:
    return {f"{section}.{key}": each for section, keys in value.items() for key, each in keys.items()}
