"""The page that compares runs, from templates."""

from __future__ import annotations

from elastichost.human_readable import plural
from elastichost.reporting.compare.charts import curve_charts
from elastichost.reporting.compare.facts import Comparison
from elastichost.reporting.render.pages import DocumentParts, PageSection, document, rendered
from elastichost.reporting.run.view.words import clock_words

__all__ = ["comparison_page_of"]


def comparison_page_of(comparison: Comparison) -> str:
    """A whole HTML document."""
    title = f"Comparison of {plural(len(comparison.runs), 'run')}"
    charts = curve_charts(comparison)
    sections = (
        PageSection("learning", "Learning", rendered("compare/learning.html", charts=charts, comparison=comparison)),
        PageSection("results", "Results", rendered("compare/results.html", runs=comparison.runs)),
        PageSection("settings", "Settings that differ", rendered("compare/settings.html", comparison=comparison)),
    )
    top = rendered("compare/top.html", title=title, comparison=comparison, best=_best(comparison))
    end = rendered("compare/end.html", made=clock_words(comparison.made_utc))
    return document(DocumentParts(title, top, sections, end))


def _best(comparison: Comparison) -> str:
    """The sentence on the highest AUC and the highest speed; "" if fewer than two runs have them."""
    by_auc = [(run.auc, run.name) for run in comparison.runs if run.auc is not None]
    by_speed = [(run.samples_per_s, run.name) for run in comparison.runs if run.samples_per_s]
    best = max(by_auc) if len(by_auc) > 1 else None
    fastest = max(by_speed)[1] if len(by_speed) > 1 else ""
    if best is not None and best[1] == fastest:
        return f"{fastest} has the highest AUC on its test set, {best[0]:.4f}, and was the fastest."
    quality = f"{best[1]} has the highest AUC on its test set, {best[0]:.4f}." if best is not None else ""
    return " ".join(part for part in (quality, f"{fastest} was the fastest." if fastest else "") if part)
