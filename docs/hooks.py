"""mkdocs hook: adds the page of results, and the scripts that draw diagrams."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The results and mermaid. A wheel of nicegui carries mermaid as modules that need no other
    server; without it a diagram is shown as its source."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8").replace("](../docs/", "](")
    files.append(File.generated(config, "results.md", content=results))
    spec = find_spec("nicegui")
    if spec is not None and spec.submodule_search_locations:
        mermaid = Path(spec.submodule_search_locations[0]) / "elements" / "mermaid" / "dist"
        for path in sorted(mermaid.glob("*.js")):
            files.append(File.generated(config, f"assets/mermaid/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The results lie beside the benchmarks in the repository, and are a page of the site."""
    from_top = markdown.replace("](../benchmarks/RESULTS.md", "](results.md")
    return from_top.replace("](../../benchmarks/RESULTS.md", "](../results.md")
