"""What a node says of a machine whose clock is wrong, and by which clock it signs."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from node.network import Network
from protocol.identity import Identity
from protocol.units import Address


async def test_a_wrong_clock_is_said_once_and_records_are_signed_by_the_members_time(tmp_path: Path) -> None:
    said: list[tuple[str, dict[str, Any]]] = []

    def emit(kind: str, /, **fields: Any) -> None:
        said.append((kind, fields))

    network = Network(
        Identity.ephemeral(), tmp_path, listen=Address("127.0.0.1", 0), directory_port=0, announce="", upload=None,
        roles=("trainer",), emit=emit,
    )  # fmt: skip
    assert abs(network.now() - time.time()) < 60
    directory: Any = SimpleNamespace(clock_warning=None, now=lambda: 1000.0)
    network.directory = directory
    network._look_at_clock()
    assert not said
    directory.clock_warning = "This machine's clock is 60 min ahead of those of the peers."
    network._look_at_clock()
    network._look_at_clock()
    assert [(kind, fields.get("code")) for kind, fields in said] == [("clock.wrong", "E-SYS-005")]
    directory.clock_warning = None
    network._look_at_clock()
    network._look_at_clock()
    assert [kind for kind, _ in said] == ["clock.wrong", "clock.right"]
    assert network.now() == 1000.0
