"""The style sheet of a report: one column, two font families, and colours for light and dark mode."""

from __future__ import annotations

from elastichost.reporting.render.markup import Markup
from elastichost.reporting.render.palette import variables

__all__ = ["style_sheet"]

_RULES = """
:root { color-scheme: light dark;
  --serif: Charter, "Bitstream Charter", "Iowan Old Style", "Sitka Text", Cambria, Georgia, serif;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 49rem; background: var(--paper); color: var(--ink);
  font: 1.0625rem/1.55 var(--serif); font-feature-settings: "kern", "liga"; hanging-punctuation: first; }
header { border-bottom: 1px solid var(--rule); padding-bottom: 1.5rem; margin-bottom: 2rem; }
.kicker { margin: 0; font: 0.78rem/1.4 var(--sans); letter-spacing: 0.06em; color: var(--muted); }
h1 { margin: 0.15rem 0 0.6rem; font-size: clamp(1.9rem, 6vw, 2.6rem); line-height: 1.12; font-weight: 600;
  letter-spacing: -0.012em; overflow-wrap: anywhere; }
h2 { margin: 3rem 0 0.5rem; font-size: 1.35rem; font-weight: 600; line-height: 1.25; letter-spacing: -0.005em; }
h3 { margin: 1.6rem 0 0.4rem; font: 600 0.86rem/1.4 var(--sans); color: var(--muted); }
p { margin: 0.4rem 0 0.8rem; text-wrap: pretty; }
.lead { font-size: 1.2rem; line-height: 1.5; }
nav { font: 0.82rem/1.9 var(--sans); }
nav a { color: var(--blue); text-decoration: none; margin-right: 1.1em; white-space: nowrap; }
nav a:hover { text-decoration: underline; }
figure { margin: 1rem 0 0.4rem; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 34rem; height: auto; }
svg text { font-family: var(--sans); font-variant-numeric: tabular-nums; }
svg .tip { cursor: help; }
figcaption { position: sticky; left: 0; margin-top: 0.35rem; font: 0.82rem/1.5 var(--sans); color: var(--muted); }
.facts { margin: 0.9rem 0; font: 0.86rem/1.5 var(--sans); font-variant-numeric: tabular-nums; }
.facts div { display: flex; gap: 1rem; padding: 0.14rem 0; }
.facts dt { flex: 0 0 9.5rem; color: var(--muted); }
.facts dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.pairs { columns: 20rem 2; column-gap: 2.5rem; }
.pairs div { break-inside: avoid; }
.scroll { overflow-x: auto; margin: 0.8rem 0 1.2rem; }
table { border-collapse: collapse; width: 100%; font: 0.82rem/1.45 var(--sans); font-variant-numeric: tabular-nums; }
th, td { padding: 0.32rem 1rem 0.32rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; color: var(--muted); white-space: nowrap; border-bottom-color: var(--muted); }
th.number, td.number { text-align: right; white-space: nowrap; }
td.short { white-space: nowrap; }
td.words { min-width: 14rem; overflow-wrap: anywhere; white-space: pre-line; }
pre { margin: 0.4rem 0; overflow-x: auto; color: var(--ink);
  font: 0.78rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
tr.open td { border-bottom: 0; padding-bottom: 0; }
td:last-child, th:last-child { padding-right: 0; }
.good { color: var(--green); } .bad { color: var(--red); } .quiet { color: var(--muted); }
aside { margin: 1.4rem 0; padding: 0.7rem 1rem; background: var(--wash); border-left: 3px solid var(--ochre);
  font: 0.88rem/1.5 var(--sans); }
aside.bad { border-left-color: var(--red); color: var(--ink); }
aside p { margin: 0 0 0.3rem; } aside ul { margin: 0; padding-left: 1.1rem; }
details { margin: 0.8rem 0; font-family: var(--sans); }
summary { cursor: pointer; font-size: 0.86rem; color: var(--blue); }
footer { margin-top: 3.5rem; padding-top: 0.9rem; border-top: 1px solid var(--rule); color: var(--muted);
  font: 0.8rem/1.55 var(--sans); }
code { font: 0.92em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
@media (max-width: 34rem) {
  body { padding: 1.5rem 0.9rem 3rem; font-size: 1rem; }
  .lead { font-size: 1.08rem; }
  .facts dt { flex-basis: 8rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } nav, details { display: none; }
  figure, table { break-inside: avoid; } figure svg { min-width: 0; } }
"""


def style_sheet() -> Markup:
    day, night = variables(night=False), variables(night=True)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {night} }} }}"
    return Markup(f":root {{ {day} }}\n{dark}{_RULES}")
