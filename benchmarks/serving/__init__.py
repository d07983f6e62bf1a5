"""Scores over HTTP: requests per second and their times, beside a plain FastAPI application.

benchmark      the command
load           clients that ask one after another, and their times
plain_server   FastAPI and an eager torchrec model, as one writes it in an afternoon
"""
