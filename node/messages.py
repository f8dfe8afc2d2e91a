"""What a newcomer and a coordinator say to each other, before there are rounds."""

from protocol.messages import field, message, request


@message("run.genesis-part", version=1, max_bytes="2 MiB", rate="100/s", audience="anyone", plane="bulk")
class GenesisPart:
    """The next bytes of a run's genesis; it is believed for its hash only."""

    data: bytes = field(1, max_bytes="1 MiB")


@request(
    "run.ask-genesis", version=1, max_bytes="1 KiB", rate="2/s", timeout="30 s", replies=GenesisPart, stream=True,
    plane="bulk",
)  # fmt: skip
class AskGenesis:
    """Asks for the genesis of the run that a peer takes part in."""

    run: str = field(1, max_bytes=64)


@message("run.admitted", version=1, max_bytes="8 KiB", rate="2/s", audience="anyone")
class Admitted:
    """The coordinator's answer to a newcomer.

    Attributes:
        admission: The signed admission (envelope bytes).
    """

    admission: bytes = field(1, max_bytes=4096)


@request("run.ask-admission", version=1, max_bytes="8 KiB", rate="2/s", timeout="10 s", replies=Admitted)
class AskAdmission:
    """Asks the coordinator to be admitted.

    Attributes:
        protocol: Version of the protocol that the newcomer speaks.
        software: Version of its package, for people.
        roles: What it wants to do.
        admission: The admission that it has, to be renewed (envelope bytes).
        invitation: The token of an invitation, where it was given one.
    """

    protocol: int = field(1)
    software: str = field(2, default="", max_bytes=64)
    roles: tuple[str, ...] = field(3, default=(), max_items=16)
    admission: bytes = field(4, default=b"", max_bytes=4096)
    invitation: str = field(5, default="", max_bytes=128)
