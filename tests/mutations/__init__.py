"""Small faults put into a copy of the package, each of which the fast tests must see. See `__main__`."""
