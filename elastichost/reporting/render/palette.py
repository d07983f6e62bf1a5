"""The colours of a report in light mode (day) and dark mode (night). Pure values.

Figures are drawn in the day colours. In their SVG each colour is replaced by a CSS variable of the page, which defines
it for both modes.
"""

from __future__ import annotations

import msgspec

__all__ = ["CYCLE", "LINES", "PALETTE", "Colour", "variables"]


class Colour(msgspec.Struct, frozen=True):
    """A colour as #rrggbb for each mode. No two colours of the palette share the same `day` value."""

    name: str
    day: str
    night: str


PAPER = Colour("paper", "#fdfcf8", "#181715")
INK = Colour("ink", "#24221f", "#e8e4db")
MUTED = Colour("muted", "#736e66", "#9d978c")
RULE = Colour("rule", "#dbd6cb", "#3b3833")
WASH = Colour("wash", "#f3f0e8", "#211f1c")
BLUE = Colour("blue", "#2f6690", "#7fb3dc")
OCHRE = Colour("ochre", "#b5740c", "#e2ab55")
GREEN = Colour("green", "#487a57", "#88bb97")
RED = Colour("red", "#a83a32", "#e57f74")
VIOLET = Colour("violet", "#6c5879", "#baa4cb")
TEAL = Colour("teal", "#297d7d", "#6fc0c0")
ROSE = Colour("rose", "#b46475", "#e59dab")
BROWN = Colour("brown", "#7d5438", "#c69e7d")

PALETTE = (PAPER, INK, MUTED, RULE, WASH, BLUE, OCHRE, GREEN, RED, VIOLET, TEAL, ROSE, BROWN)


class _Lines(msgspec.Struct, frozen=True):
    """The day colour of each kind of line; it is the same in every figure."""

    ink: str = INK.day
    muted: str = MUTED.day
    rule: str = RULE.day
    paper: str = PAPER.day
    workers: str = BLUE.day
    servers: str = OCHRE.day
    threads: str = TEAL.day
    checkpoint: str = OCHRE.day
    evaluation: str = VIOLET.day
    fault: str = RED.day
    measured: str = INK.day
    before: str = OCHRE.day
    fitted: str = BLUE.day
    good: str = GREEN.day


LINES = _Lines()
CYCLE = tuple(colour.day for colour in (BLUE, OCHRE, GREEN, VIOLET, TEAL, ROSE, BROWN, RED))


def variables(*, night: bool) -> str:
    """CSS declarations: one custom property for each colour."""
    return "".join(f"--{colour.name}:{colour.night if night else colour.day};" for colour in PALETTE)
