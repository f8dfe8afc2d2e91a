"""Every error code has its place in docs/troubleshooting.md, and the page has no other."""

import re

from protocol.errors import CATALOGUE, Code
from tests.repository.troubleshooting import AREAS, PAGE, anchor, area, render, replace

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_code_is_in_the_catalogue_and_has_a_known_area() -> None:
    assert set(CATALOGUE) == set(Code)
    assert {area(code) for code in Code} <= set(AREAS)


def test_the_page_and_the_catalogue_name_the_same_codes_once_each() -> None:
    anchors = re.findall(r'<a id="(e-[a-z]+-\d+)"></a>', TEXT)
    assert sorted(anchors) == sorted(anchor(code) for code in CATALOGUE)
    headings = re.findall(r"^### (E-[A-Z]+-\d+): ", TEXT, re.MULTILINE)
    assert sorted(headings) == sorted(code.value for code in CATALOGUE)


def test_the_page_says_what_the_catalogue_says() -> None:
    assert replace(TEXT, render()) == TEXT, "run `make docs`"


def test_codes_named_in_the_text_exist() -> None:
    assert {name for name in re.findall(r"E-[A-Z]+-\d{3}", TEXT)} <= {code.value for code in Code}


def test_every_fix_is_a_sentence() -> None:
    assert [
        code for code, entry in CATALOGUE.items() if not entry.fix.endswith(".") or entry.title.endswith(".")
    ] == []
