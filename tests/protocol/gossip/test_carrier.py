import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from protocol.errors import Code, NodeError
from protocol.gossip.carrier import HostCarrier
from protocol.units import Address
from tests.protocol.gossip.conftest import MakeNode
from tests.protocol.gossip.scene import Node, chain
from tests.protocol.gossip.words import News


def test_importing_gossip_imports_no_libp2p() -> None:
    show = "import protocol.gossip, protocol.gossip.carrier, sys; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    assert "'protocol.gossip.topics'" in modules
    assert "'libp2p'" not in modules and "'trio'" not in modules


async def start(node: Node, **options: Any) -> HostCarrier:
    where = options.pop("listen", Address("127.0.0.1", 0))
    return await HostCarrier.start(
        node.identity, boot=node.boot, listen=where, receive=node.gossip.receive, **options
    )


async def test_a_taken_port_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(NodeError) as caught:
            await start(Node(), listen=Address("127.0.0.1", taken.getsockname()[1]))
    assert caught.value.code is Code.NET_PORT_IN_USE


async def test_a_machine_without_libp2p_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protocol.gossip.host", None)
    import protocol.gossip

    monkeypatch.delattr(protocol.gossip, "host", raising=False)
    with pytest.raises(NodeError) as caught:
        await start(Node())
    assert caught.value.code is Code.SYS_VERSION
    assert "extra `gossip`" in caught.value.fix


@pytest.mark.parametrize(
    ("announce", "shown"),
    [("gossip.example.org", "/dns4/gossip.example.org/tcp/"), ("203.0.113.7", "/ip4/203.0.113.7/tcp/")],
)
async def test_others_are_told_the_announced_host(announce: str, shown: str) -> None:
    carrier = await start(Node(), announce=announce)
    assert carrier.multiaddrs[0].startswith(shown)
    await carrier.stop()


async def test_a_stopped_host_leaves_no_thread_and_no_port() -> None:
    carrier = await start(Node())
    address = carrier.multiaddrs[0].split("/")
    await carrier.stop()
    assert not any(thread.name == "gossip" and thread.is_alive() for thread in threading.enumerate())
    assert not carrier.died.is_set()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", int(address[4])))
    with pytest.raises(NodeError):
        await carrier.join("some.topic")
    await carrier.stop()


async def test_neighbours_notice_at_once_that_a_host_was_stopped(node: MakeNode) -> None:
    for _ in range(3):
        leaving, staying = await node(), await node()
        await chain([leaving, staying])
        await leaving.stop()
        assert leaving.carrier.failure.endswith("it was stopped")
        async with asyncio.timeout(60):
            while await staying.carrier.neighbours():
                await asyncio.sleep(0.02)


async def test_a_host_that_fails_is_noticed_and_another_takes_its_place(node: MakeNode) -> None:
    one, other = await node(), await node()
    await chain([one, other])

    def break_down() -> None:
        raise RuntimeError("a fault of the library")

    one.carrier._host.break_down = break_down
    one.carrier._trio.run_sync_soon(one.carrier._host.break_down)
    await asyncio.wait_for(one.carrier.died.wait(), 60)
    assert one.carrier.failure
    await one.gossip.publish(News(text="to nobody"))  # a message without a host is no error
    one.carrier = await start(one)
    await one.gossip.rejoin(one.carrier)
    await chain([one, other])
    await one.gossip.publish(News(text="back again"))
    await other.hears("back again")


async def test_hosts_find_each_other_by_what_their_records_say(node: MakeNode) -> None:
    nodes = [await node() for _ in range(3)]
    for each in nodes:
        for other in nodes:
            each.carrier.know(other.me, other.carrier.certificate, other.carrier.multiaddrs)
    for each in nodes:
        await asyncio.wait_for(each.carrier.meshed("gossip-tests.news", 2), 60)
        assert {one.node for one in await each.carrier.neighbours()} == {o.me for o in nodes if o is not each}
    await nodes[0].gossip.publish(News(text="found"))
    for each in nodes[1:]:
        await each.hears("found")
    nodes[0].carrier.forget(nodes[1].me)
    async with asyncio.timeout(60):
        while nodes[1].me in {one.node for one in await nodes[0].carrier.neighbours()}:
            await asyncio.sleep(0.02)
    await nodes[1].connect(nodes[0])
    async with asyncio.timeout(60):
        while nodes[1].me in {one.node for one in await nodes[0].carrier.neighbours()}:
            await asyncio.sleep(0.02)
    nodes[0].carrier.know(nodes[1].me, nodes[1].carrier.certificate, nodes[1].carrier.multiaddrs)
    async with asyncio.timeout(60):
        while nodes[1].me not in {one.node for one in await nodes[0].carrier.neighbours()}:
            await asyncio.sleep(0.02)


async def test_an_address_with_the_certificate_of_another_node_is_not_called(node: MakeNode) -> None:
    one, other, third = await node(), await node(), await node()
    one.carrier.know(third.me, other.carrier.certificate, other.carrier.multiaddrs)
    await one.carrier.neighbours()  # what was said before has been done

    async def known(host: Any) -> int:
        return len(host._neighbours._known)

    one.carrier._host.known = lambda: known(one.carrier._host)
    assert await one.carrier._call("known") == 0


async def test_nobody_answers() -> None:
    carrier = await start(Node())
    with pytest.raises(NodeError) as caught:
        await carrier.connect("/ip4/127.0.0.1/tcp/1/p2p/" + Node().me)
    assert caught.value.code is Code.NET_UNREACHABLE
    await carrier.stop()
