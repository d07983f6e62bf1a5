"""The groups in which `elastichost --help` lists the verbs."""

from __future__ import annotations

from typing import Any

import typer.core

__all__ = ["GROUPS", "GroupedVerbs"]

GROUPS: dict[str, tuple[str, ...]] = {
    "Train": ("run", "resume", "scale", "plan", "config", "convert"),
    "Watch": ("status", "events", "logs", "log", "report", "replay"),
    "Results": ("export", "predict"),
    "Many jobs": ("host", "submit", "queue", "cancel", "top"),
    "This machine": ("doctor", "clean", "bench", "chaos"),
}


class GroupedVerbs(typer.core.TyperGroup):
    """Lists the verbs by group, in the order of GROUPS."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            verbs = [(name, verb) for name in names if (verb := self.get_command(ctx, name)) is not None]
            width = formatter.width - 6 - max(len(name) for name in self.list_commands(ctx))
            with formatter.section(title):
                formatter.write_dl([(name, verb.get_short_help_str(width)) for name, verb in verbs])
