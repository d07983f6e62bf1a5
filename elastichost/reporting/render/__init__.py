"""HTML and SVG.

Modules:
    markup, page_parts, page_style   HTML by construction
    svg, axes, palette               figures
"""
