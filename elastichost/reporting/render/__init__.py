"""HTML and SVG.

Modules:
    markup, page_parts, page_style   HTML by construction
    drawing, axes, palette           figures
"""
