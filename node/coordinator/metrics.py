"""``/metrics`` for Prometheus: the view's numbers, made anew for each scrape."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from node.coordinator.alerts import NAMES, alerts, loss_of
from node.coordinator.service import Service
from node.coordinator.verdict import heard, stalled_for
from node.coordinator.view import Member, Number, Tally, View

_PREFIX = "intellect_"


class Metrics:
    """A collector over a service.

    Args:
        service: Whose view.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)  # type: ignore[arg-type]

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is is known when it is asked for."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All metrics now."""
        service, view, now = self._service, self._service.view, self._service.clock()
        yield from _run(view, now)
        yield from _members(view, now)
        firing = alerts(view, now, service.trouble)
        alert = GaugeMetricFamily(_PREFIX + "alerts", "Alerts of a name that hold now.", labels=["name"])
        for name in NAMES:
            alert.add_metric([name], sum(each.name == name for each in firing))
        yield alert
        yield _gauge(
            "database_up", "Whether the coordinator's database can be written.", 0 if service.trouble else 1
        )
        yield _gauge("facts_waiting", "Facts that are in memory only.", service.recorder.waiting)
        yield _gauge("viewers", "Open streams of changes.", service.viewers)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(_PREFIX + name, text, value=value)


def _run(view: View, now: float) -> Iterator[Metric]:
    tip, totals = view.tip, view.totals
    yield _gauge("round", "The last decided round.", tip.round)
    yield _gauge("epoch", "The epoch.", tip.epoch)
    yield _gauge(
        "round_age_seconds",
        "Since the last round was decided.",
        max(0.0, now - tip.decided_at) if tip.decided_at else 0,
    )
    yield _gauge(
        "round_stalled", "Whether the present round lasts far too long.", stalled_for(view, now) is not None
    )
    yield _gauge("paused", "Whether the operator paused the run.", tip.paused)
    yield _counter("rounds", "Decided rounds.", totals.rounds)
    yield _counter("tokens", "Tokens of all certified contributions.", totals.tokens)
    yield _counter("refusals", "Refusals.", totals.refused)
    yield _gauge(
        "members_heard",
        "Members that were heard of lately.",
        sum(heard(view, peer, now) for peer in tip.taking_part),
    )
    yield _gauge("members", "Members that take part in the present round.", len(tip.taking_part))
    yield _gauge("voters", "Voters of the present round.", len(tip.electorate))
    yield _gauge("dissenters", "Members that hold another outer state.", len(view.agreement.dissenters))
    decided = [entry for entry in view.rounds.values() if entry.decided_at]
    if not decided:
        return
    last = max(decided, key=lambda entry: entry.round)
    yield _gauge(
        "round_seconds",
        "How long the last decided round took.",
        last.decided_at - last.began_at if last.began_at else 0,
    )
    yield _gauge("round_attempts", "Attempts of the last decided round.", last.attempts)
    yield _gauge("round_contributors", "Contributors of the last decided round.", len(last.roster))
    yield _gauge(
        "round_bytes", "Bytes that members sent for the last decided round.", sum(last.sent.values())
    )
    if (loss := loss_of(last)) is not None:
        yield _gauge("loss", "Mean training loss of the last decided round.", loss)
    if last.validation:
        yield _gauge(
            "validation_loss",
            "Mean loss on the validation set.",
            sum(last.validation.values()) / len(last.validation),
        )


def _members(view: View, now: float) -> Iterator[Metric]:
    counters: dict[str, tuple[str, Callable[[Tally], int]]] = {
        "member_accepted_rounds": ("Rounds that list the member.", lambda tally: tally.accepted),
        "member_late_rounds": ("Rounds that do not, though it took part.", lambda tally: tally.late),
        "member_refusals": ("Refusals of what it sent.", lambda tally: tally.refused),
        "member_credits": ("Its verified tokens.", lambda tally: tally.verified),
    }
    labels = ["peer", "name"]
    for name, (text, of) in counters.items():
        family = CounterMetricFamily(_PREFIX + name, text, labels=labels)
        for peer, member in view.members.items():
            family.add_metric([peer, member.who.name], of(member.tally))
        yield family
    for name, text, number in (
        ("member_tokens_per_second", "Tokens per second of its training, by its own word.", "speed"),
        ("member_loss", "Its training loss, by its own word.", "loss"),
        ("member_rtt_seconds", "From the coordinator's question to its answer.", "rtt"),
    ):
        gauge = GaugeMetricFamily(_PREFIX + name, text, labels=labels)
        for peer, member in view.members.items():
            value = _value(member, number)
            if value is not None:
                gauge.add_metric([peer, member.who.name], value)
        yield gauge
    up = GaugeMetricFamily(_PREFIX + "member_heard", "Whether the member was heard of lately.", labels=labels)
    for peer in view.tip.taking_part:
        name = view.members[peer].who.name if peer in view.members else ""
        up.add_metric([peer, name], heard(view, peer, now))
    yield up


def _value(member: Member, name: str) -> float | None:
    number: Number | None = getattr(member.figures, name)
    return None if number is None else number.value
