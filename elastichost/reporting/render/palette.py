"""The colours of a page in light mode (day) and dark mode (night), as CSS variables. Pure values.

Everything else refers to a colour by its name.
"""

from __future__ import annotations

import msgspec

__all__ = ["CYCLE", "PALETTE", "Colour", "variables"]


class Colour(msgspec.Struct, frozen=True):
    """A colour as #rrggbb for each mode."""

    name: str
    day: str
    night: str


PALETTE = (
    Colour("paper", "#fdfcf8", "#181715"),
    Colour("ink", "#24221f", "#e8e4db"),
    Colour("muted", "#6b665e", "#a39d92"),
    Colour("rule", "#dbd6cb", "#3b3833"),
    Colour("wash", "#f3f0e8", "#211f1c"),
    Colour("blue", "#2f6690", "#7fb3dc"),
    Colour("ochre", "#a0650a", "#e2ab55"),
    Colour("green", "#3f7250", "#88bb97"),
    Colour("red", "#a83a32", "#e57f74"),
    Colour("violet", "#6c5879", "#baa4cb"),
    Colour("teal", "#207272", "#6fc0c0"),
    Colour("rose", "#a85568", "#e59dab"),
    Colour("brown", "#7d5438", "#c69e7d"),
)
# Of series that have no colour of their own. Neighbours differ in lightness too.
CYCLE = ("blue", "ochre", "green", "violet", "teal", "rose", "brown", "red")


def variables(*, night: bool) -> str:
    """CSS declarations: one custom property for each colour."""
    return "".join(f"--{colour.name}:{colour.night if night else colour.day};" for colour in PALETTE)
