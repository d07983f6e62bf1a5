"""Renders HTML and SVG.

Modules:
    markup, page_parts, page_style   builds escaped HTML
    svg, axes, palette               draws figures
"""
