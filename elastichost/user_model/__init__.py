"""The user's model: its source code, and the function that builds it.

Modules:
    source          finds and checks the source of the build function without running it
    fresh_modules   keeps the modules of one model apart from those of another one in the same process
    frames          the frames of a traceback that belong to the user's model
    build           loads the build function, calls it, and checks its result
"""
