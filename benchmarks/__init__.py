"""Measurements of whole runs; `make bench` prints them."""
