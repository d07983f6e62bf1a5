"""Ticks and legends of all figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elastichost.human_readable import bytes_words, count_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

__all__ = ["Style", "byte_ticks", "count_format", "count_ticks", "legend_above", "short_count"]

Style = dict[str, Any]  # keyword arguments of matplotlib
TICKS = 6


def legend_above(axes: Axes, columns: int = 6) -> None:
    """Puts the legend above the axes, in one line, with aligned left edges."""
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.01), ncols=columns, borderaxespad=0.0)


def short_count(count: float) -> str:
    """Formats as `human_readable.count_words` does, without ".0"."""
    return count_words(round(count)).replace(".0", "")


def count_ticks(axis: Axis, most: int = TICKS) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most - 1, integer=True))
    count_format(axis)


def count_format(axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))


def byte_ticks(axes: Axes) -> None:
    """Puts ticks at multiples of a power of two of bytes, so that labels are round (64 MiB, not 76.3 MiB)."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    top = axes.get_ylim()[1]
    step = 1
    while top / step > TICKS:
        step *= 2
    axes.yaxis.set_major_locator(MultipleLocator(step))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_words(round(value)).replace(".0 ", " ")))
