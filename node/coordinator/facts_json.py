"""Facts as JSON, for the database and the spill file."""

import dataclasses
import json

from node.coordinator.facts import (
    Acted,
    Admitted,
    Contribution,
    Decided,
    Evidence,
    Fact,
    Gone,
    Measured,
    Opened,
    Policy,
    Record,
    Refused,
    Reported,
    Verdict,
)

KINDS: dict[str, type[Fact]] = {
    kind.__name__.lower(): kind
    for kind in (
        Opened, Decided, Reported, Record, Gone, Measured, Admitted, Refused, Evidence, Acted, Policy, Verdict,
    )
}  # fmt: skip

_KIND_OF = {kind: name for name, kind in KINDS.items()}
_FIELDS = {kind: {field.name: field for field in dataclasses.fields(kind)} for kind in KINDS.values()}
_TUPLES = {
    kind: tuple(name for name, field in fields.items() if "tuple" in str(field.type))
    for kind, fields in _FIELDS.items()
}


def kind_of(fact: Fact) -> str:
    """The name under which a fact is stored."""
    return _KIND_OF[type(fact)]


def subject_of(fact: Fact) -> str:
    """The peer that a fact is about; empty for the run."""
    for name in ("peer", "accused", "worker", "holder"):
        if name in _FIELDS[type(fact)]:
            return str(getattr(fact, name))
    return ""


def to_json(fact: Fact) -> str:
    """A fact's fields as a JSON object, without its kind."""
    fields = {name: getattr(fact, name) for name in _FIELDS[type(fact)]}
    if isinstance(fact, Decided):
        fields["roster"] = [dataclasses.astuple(entry) for entry in fact.roster]
    return json.dumps(fields, separators=(",", ":"))


def from_json(kind: str, text: str) -> Fact:
    """The reverse; fields that this software does not know are left out.

    Raises:
        ValueError: It is no such fact.
    """
    try:
        cls = KINDS[kind]
        content = json.loads(text)
        known = _FIELDS[cls]
        fields = {name: value for name, value in content.items() if name in known}
        for name in _TUPLES[cls]:
            if name in fields:
                fields[name] = tuple(fields[name])
        if cls is Decided:
            fields["roster"] = tuple(Contribution(*entry) for entry in fields.get("roster", ()))
        return cls(**fields)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no fact of kind {kind[:40]!r}: {error}") from error
