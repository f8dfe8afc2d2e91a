"""Codecs: how a chunk of values travels. A run's genesis names one of them.

codec("int8").encode(values) -> bytes
codec("int8").decode(data, n) -> values
"""

import numpy as np

from diloco.codec.base import Buffer, Codec, Floats
from diloco.codec.int8 import Int8Codec
from diloco.codec.plain import FloatCodec
from protocol.errors import Code, NodeError

__all__ = ["CODECS", "Buffer", "Codec", "Floats", "codec"]

CODECS: dict[str, Codec] = {
    one.name: one for one in (FloatCodec("fp32", np.float32), FloatCodec("fp16", np.float16), Int8Codec())
}
"""All codecs by name."""


def codec(name: str) -> Codec:
    """The codec of that name.

    Raises:
        NodeError: ``CFG_BAD_VALUE``: there is none.
    """
    try:
        return CODECS[name]
    except KeyError:
        raise NodeError(
            Code.CFG_BAD_VALUE, f"There is no codec {name!r}; there are {', '.join(CODECS)}."
        ) from None
