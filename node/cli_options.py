"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

RunFilePath = Annotated[
    Path, typer.Argument(metavar="RUN.toml", help="The run file.", show_default=False, readable=False)
]
# The commands themselves say what is wrong with a path (readable=False), with a code of its own.
Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="The node's data directory; runs/NAME by default.", readable=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
