"""``intellect-node messages``: what nodes say to each other, and how an extension adds to it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protocol.errors import Code, NodeError

if TYPE_CHECKING:
    from protocol.messages import Spec

messages = typer.Typer(
    help="What nodes say to each other: list it, describe it, add to it.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
Module = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        metavar="MODULE",
        help="Only messages declared in this module or package, which is imported; the system's own by default.",
    ),
]
Schema = Annotated[
    Path | None,
    typer.Option(
        "--schema", metavar="FOLDER", help="The schema's folder; the system's own by default.", readable=False
    ),
]


@messages.command("list")
def list_messages(as_json: AsJson = False) -> int:
    """Every message of the system and of installed extensions, one a line."""
    from protocol.messages import describe

    specs, failures = _everything()
    if as_json:
        print(json.dumps([describe(spec.cls) for spec in specs]))
    else:
        rows = [
            (spec.name, f"v{spec.version}", direction(spec), spec.audience, str(spec.plane)) for spec in specs
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    for failure in failures:
        typer.echo(str(failure), err=True)
    return 1 if failures else 0


@messages.command()
def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As list prints it.", show_default=False)],
    as_json: AsJson = False,
) -> int:
    """One message: who says it to whom, its limits, its fields, and its bytes by an example."""
    from protocol.messages import describe as describe_class
    from protocol.messages.exporting import golden_of

    specs, _ = _everything()
    spec = next((each for each in specs if each.name == name), None)
    if spec is None:
        import difflib

        near = difflib.get_close_matches(name, [each.name for each in specs], 1)
        raise NodeError(
            Code.CFG_USAGE,
            f"There is no message {name!r}.",
            fix=f"Did you mean {near[0]}?" if near else "`intellect-node messages list` prints all names.",
        )
    example = golden_of(spec)
    if as_json:
        print(json.dumps({**describe_class(spec.cls), "example": example}))
        return 0
    print("\n".join(described(spec, example)))
    return 0


@messages.command()
def export(
    to: Schema = None,
    module: Module = None,
    retire: Annotated[
        list[str] | None,
        typer.Option(
            "--retire", metavar="NAME", help="A message that is gone for good; its name is never used again."
        ),
    ] = None,
) -> int:
    """Write the schema: .proto files, the lock of what the wire promises, golden bytes. Commit what changes."""
    from protocol.messages.exporting import FOLDER
    from protocol.messages.exporting import export as write

    changed = write(to or FOLDER, _schema(module), retire=retire or ())
    for path in changed:
        print(path)
    if not changed:
        print("The schema is up to date.")
    return 0


@messages.command()
def check(schema: Schema = None, module: Module = None) -> int:
    """Compare the messages with their schema: fail on what older nodes could not live with."""
    from protocol.messages.exporting import FOLDER, LOCK, compare

    specs = _schema(module)
    if schema is not None and not (schema / LOCK).exists():
        fix = "Name its folder with --schema, or write it with `intellect-node messages export`."
        raise NodeError(Code.CFG_USAGE, f"There is no schema in {schema}.", fix=fix)
    found = compare(schema or FOLDER, specs)
    for sentence in found.additions:
        print(f"new       {sentence}")
    for sentence in found.breaking:
        print(f"BREAKING  {sentence}")
    if found.breaking:
        raise NodeError(Code.WIRE_BREAKING, f"{len(found.breaking)} changes break the wire.")
    if found.additions:
        print("Nothing breaks. Write the schema with `intellect-node messages export`.")
    else:
        print("The messages are what the schema says.")
    return 0


@messages.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the package, as acme-report.", show_default=False)
    ],
    folder: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Where its folder is made.", readable=False)
    ] = Path("."),
) -> int:
    """Make a package that adds a message to every node it is installed on, with a test."""
    from node.scaffold import scaffold

    made = scaffold(name, folder)
    print(f"{made} is made. Next:")
    print(f"  cd {made}")
    print("  pip install -e .")
    print("  pytest")
    print("  intellect-node messages list")
    return 0


def direction(spec: "Spec") -> str:
    """Who says it: told, asked or published, with what comes back."""
    if spec.replies is None:
        return {"message": "told", "topic": "published"}.get(str(spec.role), str(spec.role))
    asked = "asked (stream)" if spec.asks_stream else "asked"
    return f"{asked} -> {spec.reply_name}{' (stream)' if spec.stream else ''}"


def described(spec: "Spec", example: dict[str, Any]) -> list[str]:
    """The lines that describe a message to a person."""
    from protocol.messages import describe as describe_class

    contract = describe_class(spec.cls)
    lines = [f"{spec.name}  version {spec.version}", ""]
    lines += [f"  {line.strip()}".rstrip() for line in spec.doc.splitlines()]
    lines += [
        "",
        f"  direction    {direction(spec)}",
        f"  audience     {spec.audience}",
        f"  plane        {spec.plane}",
        f"  limits       {spec.max_bytes}, {spec.rate}, {spec.concurrency} at once",
    ]
    if spec.timeout is not None:
        lines.append(f"  time-out     {spec.timeout.total_seconds():g} s")
    for title, fields in [
        ("fields", contract["fields"]),
        *((f"fields of a {part['name']}", part["fields"]) for part in contract["parts"]),
    ]:
        lines += ["", f"  {title}", *(_field(field) for field in fields)]
        if not fields:
            lines.append("    none")
    lines += [
        "",
        f"  example      {json.dumps(example['value'])}",
        f"  its bytes    {example['bytes'] or 'none'}",
    ]
    return lines


def _field(field: dict[str, Any]) -> str:
    from protocol.messages.describe import bounds

    notes = [bounds(field), "" if field["required"] else "may be left out"]
    note = ", ".join(filter(None, notes))
    return f"    {field['number']:>3}  {field['type']} {field['name']}" + (f"  ({note})" if note else "")


def _everything() -> tuple[tuple["Spec", ...], tuple[NodeError, ...]]:
    """The system's and the extensions' messages, and what could not be loaded."""
    from node.extensions import load_extensions, system_messages
    from protocol.messages import REGISTRY

    system = system_messages()
    extensions, failures = load_extensions()
    names = {spec.name for spec in system} | {name for each in extensions for name in each.messages}
    return tuple(spec for spec in REGISTRY.all() if spec.name in names), failures


def _schema(modules: list[str] | None) -> tuple["Spec", ...]:
    from node.extensions import messages_of, system_schema

    return system_schema() if not modules else messages_of(modules)
