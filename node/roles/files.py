"""Rollout files on their way from the trainer that has them."""

from contextlib import aclosing

from protocol.errors import Code, NodeError
from protocol.rpc import Endpoint
from protocol.units import Digest, PeerId
from rl.messages import AskFile
from rl.rollouts.limits import Limits
from rl.rollouts.signing import Signed


async def fetch_file(
    endpoint: Endpoint, holder: PeerId, digest: bytes, limits: Limits
) -> tuple[bytes, Signed]:
    """A rollout file of a trainer, whole, and signed: for a trainer by its worker, for a validator by the holder.

    Raises:
        NodeError: The holder does not give it, gives too much (RL_FILE_TOO_LARGE), or something else
            (RL_FILE_SIGNATURE).
    """
    data = bytearray()
    signed: Signed | None = None
    async with aclosing(endpoint.stream(holder, AskFile(digest=digest))) as parts:
        async for part in parts:
            if signed is None:
                signed = Signed(PeerId(part.signer), Digest(digest), part.signature)
            data += part.data
            if len(data) > limits.file_bytes:
                raise NodeError(
                    Code.RL_FILE_TOO_LARGE, f"{holder} sends more than {limits.file_bytes} bytes."
                )
    if signed is None:
        raise NodeError(Code.RL_FILE_UNREADABLE, f"{holder} sends nothing for the file {digest.hex()[:16]}.")
    signed.check(bytes(data))
    return bytes(data), signed
