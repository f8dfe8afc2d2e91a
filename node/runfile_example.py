"""`docs/run.example.toml`, written from the code: every key with its meaning, what it takes and its default.

``python -m node.runfile_example > docs/run.example.toml`` writes it anew; a test holds the two equal.
"""

import json
import textwrap
from typing import Any

from pydantic import BaseModel

from node.runfile import RunFile
from node.runfile_problems import allowed

_WIDTH = 110
_HEAD = """\
A run file with every key and its default. A key that is left out has its default, so a file may be as short as

  [run]
  name = "my-run"
  rounds = 100

The sections run, model, data, inner, outer, round, deadline, admission, rl and objective describe the run.
`intellect-node init` puts them into the run's genesis, so they are the same for all members; a member's own file may
leave them out. The sections limits, network, policy, shardcast and node are each machine's own.
"""


def render() -> str:
    """The text of the example."""
    defaults = RunFile().model_dump(mode="json")
    top: list[str] = [_comment(_HEAD, wrap=False), ""]
    sections: list[str] = []
    for name, field in RunFile.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            sections += ["", "", _comment(_without_name(kind.__doc__ or "")), f"[{name}]"]
            sections += _keys(kind, defaults[name])
        else:
            top += _key(name, field, defaults[name])
    return "\n".join([*top, *sections]) + "\n"


def _keys(model: type[BaseModel], defaults: dict[str, Any]) -> list[str]:
    return [line for name, field in model.model_fields.items() for line in _key(name, field, defaults[name])]


def _key(name: str, field: Any, default: Any) -> list[str]:
    lines = ["", _comment(field.description or ""), _comment(f"Takes {allowed(field)}.")]
    if default is None:
        return [*lines, f"# {name} = (not set)"]
    return [*lines, f"{name} = {_value(default)}"]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str, *, wrap: bool = True) -> str:
    lines = textwrap.wrap(" ".join(text.split()), _WIDTH - 2) if wrap else text.rstrip("\n").split("\n")
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _without_name(doc: str) -> str:
    words = doc.partition("]`: ")[2] or doc
    return words[:1].upper() + words[1:]


if __name__ == "__main__":
    print(render(), end="")
