"""The user's model: its source, and how it is built.

Modules:
    source   a file or a module, and the function in it
    build    calls that function, and checks what it gives
"""
