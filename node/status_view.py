"""A node's status as text for a terminal."""

from datetime import timedelta

from node.status import NodeStatus
from protocol.units import Bytes


def render(status: NodeStatus, now: float) -> str:
    """Several lines that say what the node does, why it waits, until when, and what comes then.

    Args:
        status: What the node said.
        now: Unix seconds.
    """
    title = status.name or short(status.peer) or f"process {status.pid}"
    lines = [f"Node {title}" + (f", run {status.run_name}" if status.run_name else "") + _round(status)]
    if status.peer:
        lines.append(f"  peer     {status.peer}")
    if status.roles:
        lines.append(f"  roles    {', '.join(status.roles)}")
    lines.append(f"  doing    {status.phase}{_reason(status)}{_times(status, now)}")
    if status.sentence:
        lines.append(f"           {status.sentence}")
    if status.trouble:
        lines.append(f"  trouble  {status.trouble}")
    if status.missing:
        lines.append(f"  waits for {', '.join(map(short, status.missing))}")
    if status.next:
        lines.append(f"  next     {status.next}")
    if status.members:
        members = [short(peer) + _way(status.paths.get(peer)) for peer in status.members]
        lines.append(f"  members  {len(members)}: {', '.join(members)}")
    if figures := _figures(status):
        lines.append(f"  figures  {', '.join(figures)}")
    if status.reach:
        lines.append(f"  reached  {status.reach}")
    lines += [f"  join by  {address}" for address in status.multiaddrs]
    lines += [f"  evidence {sentence}" for sentence in status.evidence]
    if status.recent:
        lines.append("  recent")
        lines += [f"           {happening}" for happening in status.recent]
    return "\n".join(lines)


def short(peer: str) -> str:
    """The last eight characters of a peer id: the first ones are the same for all."""
    return f"…{peer[-8:]}" if len(peer) > 12 else peer


def _way(way: str | None) -> str:
    return f" ({way})" if way else ""


def _round(status: NodeStatus) -> str:
    if not (status.round or status.rounds):
        return ""
    of = f" of {status.rounds}" if status.rounds else ""
    attempt = f", attempt {status.attempt}" if status.attempt else ""
    return f", round {status.round}{of}{attempt}"


def _reason(status: NodeStatus) -> str:
    return f" ({status.reason})" if status.reason else ""


def _times(status: NodeStatus, now: float) -> str:
    words = ""
    if status.since:
        words += f" for {_seconds(now - status.since)}"
    if status.until is not None:
        words += (
            f", at most {_seconds(status.until - now)} more" if status.until > now else ", about to go on"
        )
    return words


def _seconds(seconds: float) -> str:
    whole = timedelta(seconds=max(0, round(seconds)))
    return f"{whole.seconds} s" if whole < timedelta(minutes=2) else str(whole)


def _figures(status: NodeStatus) -> list[str]:
    figures = []
    if status.loss is not None:
        figures.append(f"loss {status.loss:.3f}")
    if status.validation_loss is not None:
        figures.append(f"validation loss {status.validation_loss:.3f}")
    if status.tokens_per_second is not None:
        figures.append(f"{status.tokens_per_second:,.0f} tokens/s")
    if status.bytes_sent:
        figures.append(f"{Bytes(status.bytes_sent)} sent")
    return figures
