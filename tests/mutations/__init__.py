"""Small faults that are put into a copy of the package; the fast tests must find each. See `__main__`."""
