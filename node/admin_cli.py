"""``intellect-node admin``: what the run's operator orders, carried out by the running node that has the key."""

from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import Code, NodeError

admin = typer.Typer(
    help="What the run's operator may order, on the node that made the run.", no_args_is_help=True
)

Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="The node's data directory; runs/NAME by default.", readable=False
    ),
]
Peer = Annotated[str, typer.Argument(metavar="PEER", help="A peer id.", show_default=False)]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; everyone may read it.", show_default=False)
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; everyone may read it.")]


@admin.command()
def admit(peer: Peer, folder: Dir = None) -> int:
    """Let a peer in where the run's policy is `invite`."""
    return _administer(folder, "admit", peer=peer)


@admin.command()
def invite(
    uses: Annotated[int, typer.Option("--uses", min=1, max=10_000, help="How many peers it lets in.")] = 1,
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="How long it is good.")] = "7 d",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For whom.")] = "",
    folder: Dir = None,
) -> int:
    """Make an invitation, whose token lets peers in where the policy is `invite`; it is printed once."""
    return _administer(folder, "invite", name=note, uses=str(uses), seconds=_seconds(lasts))


@admin.command()
def invitations(folder: Dir = None) -> int:
    """List invitations: how often each was used, and how long it is good."""
    return _administer(folder, "invitations")


@admin.command()
def uninvite(
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", min=1, help="As `invite` printed it.", show_default=False)
    ],
    folder: Dir = None,
) -> int:
    """End an invitation; whom it let in stays."""
    return _administer(folder, "uninvite", value=str(number))


@admin.command()
def ban(
    peer: Peer,
    reason: Reason,
    lasts: Annotated[str, typer.Option("--for", metavar="TIME", help="How long; for good by default.")] = "",
    folder: Dir = None,
) -> int:
    """Ban a peer from the run, from the next decided round on."""
    return _administer(folder, "ban", peer=peer, reason=reason, seconds=_seconds(lasts) if lasts else "0")


@admin.command()
def unban(peer: Peer, reason: Reason, folder: Dir = None) -> int:
    """Let a banned peer come again."""
    return _administer(folder, "unban", peer=peer, reason=reason)


@admin.command()
def kick(peer: Peer, reason: Reason, folder: Dir = None) -> int:
    """Have a peer leave with the next decided round; it may come again."""
    return _administer(folder, "kick", peer=peer, reason=reason)


@admin.command()
def seat(peer: Peer, reason: Why = "", folder: Dir = None) -> int:
    """Give a peer a vote that its admission does not give."""
    return _administer(folder, "seat", peer=peer, reason=reason)


@admin.command()
def unseat(peer: Peer, reason: Reason, folder: Dir = None) -> int:
    """Take a peer's vote away; it goes on contributing."""
    return _administer(folder, "unseat", peer=peer, reason=reason)


@admin.command()
def pause(reason: Why = "", folder: Dir = None) -> int:
    """Stop training everywhere until `resume`; members stay."""
    return _administer(folder, "pause", reason=reason)


@admin.command()
def resume(reason: Why = "", folder: Dir = None) -> int:
    """Go on after `pause`."""
    return _administer(folder, "resume", reason=reason)


@admin.command()
def finish(reason: Why = "", folder: Dir = None) -> int:
    """End the run with the next decided round."""
    return _administer(folder, "finish", reason=reason)


@admin.command()
def checkpoint(reason: Why = "", folder: Dir = None) -> int:
    """Have members write a checkpoint after the next decided round."""
    return _administer(folder, "checkpoint", reason=reason)


@admin.command()
def audit(reason: Why = "", folder: Dir = None) -> int:
    """Have every voter check every reduced chunk of the last decided round."""
    return _administer(folder, "audit", reason=reason)


@admin.command("set")
def set_parameter(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Such as inner.lr; one of round.changeable.", show_default=False),
    ],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help='A number; "" for that of the genesis.', show_default=False)
    ],
    reason: Why = "",
    number: Annotated[
        int, typer.Option("--from-round", metavar="N", min=-1, help="From this round on; -1 for at once.")
    ] = -1,
    folder: Dir = None,
) -> int:
    """Change a parameter of the run, from the next decided round on or from a later one."""
    return _administer(folder, "parameter", name=name, value=value, reason=reason, round=str(number))


@admin.command()
def planned(folder: Dir = None) -> int:
    """List orders that wait for a round or a time, such as the ends of bans."""
    return _administer(folder, "planned")


@admin.command()
def drop(
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", min=1, help="As `planned` lists it.", show_default=False)
    ],
    folder: Dir = None,
) -> int:
    """Drop an order that waits: it is not given."""
    return _administer(folder, "drop", value=str(number))


@admin.command()
def delegate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A data directory with the root key.", show_default=False, readable=False
        ),
    ],
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long the delegation lasts.")
    ] = "90 d",
    scopes: Annotated[
        str, typer.Option("--scopes", metavar="NAMES", help="What is left to the key, comma-separated.")
    ] = "admit,seat,ban,order,anchor,reset",
) -> int:
    """Leave the root key's daily work to a key of the coordinator, so that operator.key can be kept elsewhere."""
    from node.delegating import delegate_in

    print(delegate_in(folder, lasts, tuple(scopes.split(","))))
    return 0


@admin.command()
def revoke(
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", min=1, help="As `delegate` printed it.", show_default=False)
    ],
    reason: Why = "",
    folder: Dir = None,
) -> int:
    """Revoke delegations up to a number; the node needs the root key itself."""
    return _administer(folder, "revoke", value=str(number), reason=reason)


@admin.command()
def reset(reason: Reason, folder: Dir = None) -> int:
    """Begin a new epoch with the members that are here: for a run that has lost its quorum for good."""
    return _administer(folder, "reset", reason=reason)


def _seconds(lasts: str) -> str:
    from protocol.units import duration

    try:
        return str(int(duration(lasts).total_seconds()))
    except ValueError as error:
        raise NodeError(Code.CFG_USAGE, f"--for: {error}.", fix='Write a time such as --for "7 d".') from None


def _administer(folder: Path | None, do: str, **fields: str) -> int:
    from node.lifecycle import running
    from node.status import ask_admin

    folders = running(folder)
    if len(folders) > 1:
        named = ", ".join(map(str, folders))
        raise NodeError(
            Code.CFG_USAGE, f"{len(folders)} nodes run: {named}.", fix="Name the founder's with --dir."
        )
    print(ask_admin(folders[0], do, fields))
    return 0
