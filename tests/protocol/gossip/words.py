"""What the tests of gossip say to one another."""

from protocol.messages import field, topic


@topic("gossip-tests.news", version=1, max_bytes="32 KiB", rate="1000/s", audience="member")
class News:
    text: str = field(1)


@topic("gossip-tests.rumour", version=1, max_bytes="4 KiB", rate="2/min", audience="anyone")
class Rumour:
    text: str = field(1)


@topic("gossip-tests.order", version=1, max_bytes="1 KiB", rate="10/s", audience="operator")
class Command:
    text: str = field(1)
