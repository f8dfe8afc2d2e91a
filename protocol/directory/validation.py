"""What the DHT of hivemind asks about a record, answered by our :class:`~protocol.directory.records.Guard`."""

from typing import Any

import msgpack

from protocol.directory.limits import MAX_RECORD
from protocol.directory.records import Guard


class Validator:
    """hivemind's record validator over our :class:`Guard`: what a shelf may hold, and nothing else in the DHT."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def validate(self, record: Any) -> bool:
        """Whether this node stores the record, or believes it when another node answers with it."""
        if len(record.value) > MAX_RECORD + 8 or len(record.subkey) > 128:
            return False
        try:
            subkey, raw = msgpack.unpackb(record.subkey), msgpack.unpackb(record.value)
        except Exception:  # msgpack raises many kinds for bytes that are not msgpack
            return False
        return self.guard.accepts(record.key, subkey, raw, record.expiration_time)

    def sign_value(self, record: Any) -> bytes:
        """Records are signed before they come here."""
        return bytes(record.value)

    strip_value = sign_value


def prune(protocol: Any, key: bytes, dictionary: Any) -> bool:
    """Drops invalid records from a shelf that another node sent; hivemind itself would drop the shelf for one."""
    with dictionary.freeze():
        for subkey, (value, expiry) in list(dictionary.items()):
            if not protocol._validate_record(key, protocol.serializer.dumps(subkey), value, expiry):
                del dictionary[subkey]
    return True
