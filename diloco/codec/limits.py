"""Bounds of all codecs. They are part of the wire format: both ends refuse what lies outside."""

from typing import Final

from diloco.layout import BLOCK

__all__ = ["BLOCK", "LARGEST", "SMALLEST"]

LARGEST: Final = 65504.0
"""Largest magnitude that any codec takes, fp16's own. A larger pseudo-gradient is a run that has blown up."""

SMALLEST: Final = 2.0**-100
"""An int8 block whose values are all smaller is sent as zeros. It keeps scales clear of the denormal range,
which some processors and libraries flush to zero."""
