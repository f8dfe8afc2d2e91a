"""Parameters of a run that its operator may change while it goes on (docs/rounds.md, rule 11).

Which ones is a closed list of the genesis (`round.changeable`). A change stands in the values, as text; the text is
read in the same way by all members.
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from diloco.config import RunSections
from diloco.rounds.values import Parameter
from diloco.store.ledger import Ledger


def accepts(sections: RunSections, name: str, text: str) -> bool:
    """Whether an order may give a parameter this value; an empty text gives it back the one of the genesis."""
    if name not in sections.round.changeable:
        return False
    try:
        changed(sections, [Parameter(name=name, value=text)] if text else [])
    except ValueError:
        return False
    return True


def in_force(sections: RunSections, ledger: Ledger, round_number: int) -> RunSections:
    """The sections as they stand in a round: what the value before it says of parameters is in them."""
    before = ledger.get(round_number - 1)
    return changed(sections, before.value.parameters if before is not None else ())


def changed(sections: RunSections, parameters: Iterable[Parameter]) -> RunSections:
    """The sections with some parameters changed.

    Raises:
        ValueError: A value is no number, or beyond its bounds.
    """
    tree: dict[str, dict[str, Any]] = sections.model_dump()
    for parameter in parameters:
        section, _, key = parameter.name.partition(".")
        number = int if isinstance(tree[section][key], int) else float
        if not parameter.value.isascii():
            raise ValueError(f"{parameter.name} is no number")
        tree[section][key] = number(parameter.value)
    try:
        return RunSections.model_validate(tree)
    except ValidationError as error:
        raise ValueError(str(error)) from error
