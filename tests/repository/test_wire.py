"""docs/wire.md says what the classes say."""

from node.extensions import system_messages
from tests.repository.wire import PAGE, render

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    assert render() == TEXT, "run `make docs`"


def test_every_message_has_its_place() -> None:
    assert [spec.name for spec in system_messages() if f"\n### {spec.name}\n" not in TEXT] == []
