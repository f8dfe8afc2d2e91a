"""Report, page and view of a whole story, and of broken ones."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from node.demo.folder import DemoFolder
from node.demo.html import page
from node.demo.report import make_report, samples_of, write_report
from node.demo.svg import ticks
from node.demo.verdict import judge
from node.demo.view import View, closing, render
from node.eventlog import read
from node.machine import Machine, measure
from tests.node.demo.story import Story, loss_at, whole


@pytest.fixture(scope="module")
def machine() -> Machine:
    return measure(Path("."))


def report_of(story: Story, machine: Machine) -> dict[str, object]:
    facts = story.facts()
    samples = samples_of(facts)
    return make_report(facts, judge(facts, samples), samples, machine)


class Balanced(HTMLParser):
    """Refuses what is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(text: str) -> Balanced:
    parser = Balanced()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def test_the_report_has_all_that_is_promised(machine: Machine) -> None:
    report = json.loads(json.dumps(report_of(whole(), machine), allow_nan=False))
    assert report["ok"] is True and report["failures"] == []
    assert report["validation_loss"] == {"start": loss_at(0), "end": loss_at(10)}
    assert report["rounds"] == 10
    assert report["digests_equal"] is True
    assert 0.5 < report["compute_utilisation"] < 1
    assert set(report["bytes"]["sent_per_node"]) == {f"node-{each}" for each in range(1, 6)}
    assert report["bytes"]["reduction_vs_fp32_every_step"] > 50
    assert [(event["kind"], event["round"]) for event in report["events"]] == [
        ("join", 2),
        ("kill", 6),
        ("leave", 8),
    ]
    assert all(event["seconds_to_next_commit"] > 0 for event in report["events"])


def test_a_report_of_nothing_is_still_a_report(machine: Machine) -> None:
    report = report_of(Story(), machine)
    assert report["ok"] is False and report["digests_equal"] is False
    check(page(report, Story().facts()))
    Console(quiet=True).print(closing(report, Story().cast))


def test_the_page_needs_nothing_else_and_escapes_everything(machine: Machine) -> None:
    story = whole()
    story.tell("node-3", 9e9, "sample", round=10, text="</pre><script>alert(1)</script>")
    story.does(9e9, "demo.trouble", sentence="<img src=x onerror=alert(1)>")
    text = page(report_of(story, machine), story.facts())
    parser = check(text)
    assert "script" not in parser.seen and "img" not in parser.seen and "link" not in parser.seen
    assert "&lt;script&gt;" in text
    assert not re.search(r"https?://|\bsrc=|\bhref=|url\(|@import", text.replace("&lt;img src=x", ""))
    assert parser.seen.count("svg") > 3


def test_the_page_follows_light_and_dark(machine: Machine) -> None:
    text = page(report_of(whole(), machine), whole().facts())
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text


def test_the_baseline_is_shown_with_its_gap(machine: Machine) -> None:
    story = whole()
    story.journal[0] = story.journal[0].__class__(
        story.journal[0].t, "demo.start", {**story.journal[0].fields, "compare": True}
    )
    story.does(9e9, "demo.baseline", validation_loss=3.0, tokens=4_000, steps=200, seconds=90.0)
    report = report_of(story, machine)
    assert report["baseline"]["gap"] == pytest.approx(loss_at(10) - 3.0)  # type: ignore[index]
    assert "synchronous baseline" in page(report, story.facts())
    assert "gap +" in shown(closing(report, story.cast))


def test_samples_of_nodes_come_before_those_of_the_exported_model() -> None:
    story = whole()
    assert len(samples_of(story.facts())) == 2
    story.tell("node-3", 9e9, "sample", round=10, text="fresh")
    assert samples_of(story.facts())[0] == "fresh"


def test_what_is_written_to_disk_is_read_back_the_same(tmp_path: Path, machine: Machine) -> None:
    story = whole()
    story.write(DemoFolder(tmp_path))
    again = Story(
        nodes={name: list(read(tmp_path / name / "events.jsonl")) for name in story.cast.names},
        journal=list(read(tmp_path / "demo.jsonl")),
    )
    report = report_of(again, machine)
    assert report["ok"] is True, report["failures"]
    text = write_report(tmp_path, report, "page")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(text)
    assert (tmp_path / "report.html").read_text() == "page"


def shown(what: object) -> str:
    console = Console(width=140, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(what)
    return console.export_text()


def test_the_live_view_says_what_each_node_does_and_why_it_waits() -> None:
    text = shown(render(whole(until=5).facts(), 90.0))
    assert "waiting at most 5 s more for node-3" in text, "ends of peer ids are given as names"
    assert "5 of 10 rounds committed, 5 members in it, validation loss" in text


def test_the_live_view_says_who_is_gone_and_who_is_to_come() -> None:
    assert "killed in round 6" in shown(render(whole().facts(), 180.0))
    assert "joins when round 2 begins" in shown(render(whole(until=1).facts(), 30.0))
    assert "not started" in shown(render(Story().facts(), 0.0))


def test_the_closing_words_name_each_failure(machine: Machine) -> None:
    story = whole()
    story.drop("node-2", "goodbye")
    text = shown(closing(report_of(story, machine), story.cast))
    assert "The demo failed:" in text and "node-2 did not say goodbye after SIGTERM." in text
    assert "The demo showed all" in shown(closing(report_of(whole(), machine), story.cast))


def test_without_a_terminal_a_round_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(whole(until=3).facts(), Console(width=200))
    view.start()
    view.update()
    view.update()
    view.stop()
    assert capsys.readouterr().out.count("3 of 10 rounds committed") == 1


def test_a_quiet_view_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    view = View(whole(until=3).facts(), Console(), quiet=True)
    view.start()
    view.note("something")
    view.update()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("low", "high"), [(0, 10), (3.1, 7.6), (0, 0.003), (0, 171), (5, 5)])
def test_ticks_are_few_and_within_bounds(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 8
    assert all(low <= each <= high + 1e-9 for each in found)
