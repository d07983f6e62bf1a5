"""What a notebook shows: HTML of the objects of the interface, and a display that is updated in place."""

from __future__ import annotations

import html
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

__all__ = ["Display", "html_page", "is_notebook"]


def is_notebook() -> bool:
    """Whether this Python is the kernel of a notebook, so that what it displays is seen."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def html_page(title: str, facts: Mapping[str, object], text: str = "") -> str:
    """HTML with a title, a table of facts, and a text with the lines that it has. All of them are escaped."""
    rows = "".join(
        f'<tr><th style="text-align: left">{html.escape(name)}</th>'
        f'<td style="text-align: left">{html.escape(str(fact))}</td></tr>'
        for name, fact in facts.items()
    )
    table = f"<table>{rows}</table>" if rows else ""
    return f"<div><strong>{html.escape(title)}</strong>{table}{_pre(text)}</div>"


class Display:
    """An output of the cell that runs, which is replaced by each `show`. Only in a notebook."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str, share: float | None = None, notices: str = "") -> None:
        """line: one line of text. share: a bar with this part of it filled, from 0 to 1; None: no bar. notices: lines
        below it."""
        bar = f'<progress value="{share:.4f}" max="1"></progress> ' if share is not None else ""
        content = {
            "text/plain": "\n".join(filter(None, (line, notices))),
            "text/html": f"<div>{bar}<code>{html.escape(line)}</code>{_pre(notices)}</div>",
        }
        if self._handle is None:
            self._handle = import_module("IPython.display").display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>" if text else ""
