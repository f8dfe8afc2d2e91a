import asyncio

import pytest

from protocol.directory.frames import error_frame, error_of, from_text, read_frame, to_text
from protocol.directory.limits import MAX_FRAME
from protocol.errors import Code, NodeError


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_frame_is_read_and_the_end_is_nothing() -> None:
    reader = reader_of(b"\0\0\0\x09" + b'{"a": 17}')
    assert await read_frame(reader) == {"a": 17}
    assert await read_frame(reader) is None
    assert await read_frame(reader_of(b"\0\0\0\x09{")) is None


@pytest.mark.parametrize(
    "data", [(MAX_FRAME + 1).to_bytes(4), b"\0\0\0\x01[", b"\0\0\0\x02[]", b"\0\0\0\x02\xff\xff"]
)
async def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        await read_frame(reader_of(data))


def test_bytes_and_errors_come_back_as_they_were() -> None:
    assert from_text(to_text(bytes(range(256)))) == bytes(range(256))
    error = error_of(error_frame(NodeError(Code.DIR_BOOTSTRAP, "Nobody.", fix="Ask.", peer="12D3")))
    assert (error.code, error.sentence, error.fix, error.peer) == (
        Code.DIR_BOOTSTRAP,
        "Nobody.",
        "Ask.",
        "12D3",
    )
