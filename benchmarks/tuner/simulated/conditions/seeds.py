"""The seeds on which constants were chosen, and the seeds of the tables that are reported. Pure."""

from __future__ import annotations

from elastichost.errors import ConfigError

__all__ = ["QUICK_SEED", "TABLE_SEED", "TABLE_STEP", "TUNING_SEEDS", "is_for_tuning", "require_unseen"]

# every constant of the tuner, of the rivals and of sensible requests was chosen on some of these (`search`: 0 to 7)
TUNING_SEEDS = frozenset(range(21))
TABLE_SEED = 101  # first seed of the table of policies
TABLE_STEP = 100  # every further table begins this many seeds later
QUICK_SEED = 901  # first seed of `bench tuner --quick`


def is_for_tuning(first_seed: int, seeds: int) -> bool:
    """Whether constants were chosen on any of `seeds` seeds from first_seed on."""
    return not TUNING_SEEDS.isdisjoint(range(first_seed, first_seed + seeds))


def require_unseen(first_seed: int, seeds: int) -> None:
    """Raises ConfigError for seeds on which constants were chosen: figures on them are no evidence."""
    if is_for_tuning(first_seed, seeds):
        raise ConfigError(
            f"constants were chosen on seeds {min(TUNING_SEEDS)} to {max(TUNING_SEEDS)}; a report from seeds "
            f"{first_seed} to {first_seed + seeds - 1} would flatter",
            hint=f"simulate with --first-seed {TABLE_SEED}",
        )
