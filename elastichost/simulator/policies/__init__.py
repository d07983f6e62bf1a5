"""Policies that are compared: how each decides which processes every job of a cluster gets."""
