"""Sections of a run file: defaults, refusals, durations as text."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from diloco.config import DeadlineSection, ModelSection, RoundSection, RunSections


def test_the_defaults_are_a_valid_run() -> None:
    assert RunSections.model_validate({}) == RunSections()


def test_an_unknown_key_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="hiden"):
        RunSections.model_validate({"model": {"hiden": 3}})


def test_durations_are_text_with_a_unit() -> None:
    section = DeadlineSection.model_validate({"silence": "20 s", "heartbeat": "500 ms"})
    assert (section.silence, section.heartbeat) == (timedelta(seconds=20), timedelta(milliseconds=500))
    assert section.model_dump(mode="json")["heartbeat"] == "500 ms"
    assert section.model_dump(mode="json")["silence"] == "20 s"


@pytest.mark.parametrize("value", [20, 20.0, "20", "soon", "-1 s", ""])
def test_a_duration_without_unit_or_sense_is_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        DeadlineSection.model_validate({"silence": value})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("run", "rounds", "10"),
        ("run", "name", "Not A Name"),
        ("model", "hidden", 190),
        ("model", "kv_heads", 4),
        ("inner", "lr", float("nan")),
        ("inner", "precision", "fp8"),
        ("outer", "momentum", 1.0),
        ("round", "chunk", 1000),
        ("round", "checkpoint_every", 9),
        ("round", "start_members", 32),
        ("data", "source", "text"),
        ("data", "paths", ["a.txt"]),
        ("deadline", "heartbeat", "11 s"),
        ("admission", "policy", "allowlist"),
        ("admission", "allow", ["someone"]),
    ],
)
def test_a_bad_value_is_refused(section: str, key: str, value: object) -> None:
    with pytest.raises(ValidationError):
        RunSections.model_validate({section: {key: value}})


def test_more_start_members_than_seats_is_refused() -> None:
    with pytest.raises(ValidationError, match="start_members"):
        RunSections.model_validate({"round": {"start_members": 4}, "admission": {"seats": 3}})


def test_every_key_says_what_it_means() -> None:
    for name, section in RunSections.model_fields.items():
        if name in ("rl", "objective"):  # plain JSON here
            continue
        fields = section.annotation.model_fields  # type: ignore[union-attr]
        assert all(field.description for field in fields.values()), name


def test_sections_are_frozen_and_a_time_budget_is_optional() -> None:
    with pytest.raises(ValidationError):
        ModelSection().hidden = 8  # type: ignore[misc]
    assert RoundSection.model_validate({"time_budget": "2 min"}).time_budget == timedelta(minutes=2)
