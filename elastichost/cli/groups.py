"""The groups in which `elastichost --help` lists the verbs, and what is said about a verb that does not exist."""

from __future__ import annotations

from typing import Any

import typer.core

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["GROUPS", "GroupedVerbs", "Verbs"]

GROUPS: dict[str, tuple[str, ...]] = {
    "Train": ("init", "run", "resume", "scale", "plan", "config", "convert"),
    "Watch": ("status", "events", "logs", "log", "report"),
    "Results": ("export", "predict", "serve"),
    "Many jobs": ("search", "host", "submit", "queue", "cancel", "top"),
    "Machines": ("doctor", "bench"),
    "Maintenance": ("clean", "chaos", "replay"),
}
WHOLE_SENTENCE = 1000  # characters: more than the first sentence of any verb's help


class Verbs(typer.core.TyperGroup):
    """Verbs whose descriptions are never cut. Raises ConfigError for an unknown verb."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for verb in self.commands.values():
            verb.short_help = verb.get_short_help_str(WHOLE_SENTENCE)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise ConfigError(
                f"{ctx.command_path}: there is no verb {args[0]!r}{did_you_mean(args[0], known)}",
                hint=f"`{ctx.command_path} --help` lists all verbs",
            )
        return super().resolve_command(ctx, args)


class GroupedVerbs(Verbs):
    """Lists the verbs by group, in the order of GROUPS."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            verbs = [(name, verb) for name in names if (verb := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl([(name, verb.get_short_help_str()) for name, verb in verbs])
