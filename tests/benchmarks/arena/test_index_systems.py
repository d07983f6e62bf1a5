"""The index systems that elastichost's index is compared with."""

from __future__ import annotations

import numpy as np

from benchmarks.arena.index_systems import QUERIES, ManagedCollision, queries_of


def test_the_managed_collision_module_knows_every_key_it_was_given() -> None:
    keys = np.arange(1000) * 31
    collision = ManagedCollision(len(keys))
    collision.insert(keys)
    assert len(set(collision.lookup(keys).tolist())) == len(keys)


def test_queries_are_among_the_keys_and_some_come_often() -> None:
    keys = np.arange(1000) * 31
    found = queries_of(keys, np.random.default_rng(0))
    for query in found.values():
        assert len(query) == QUERIES and np.isin(query, keys).all()
    most = {kind: np.unique(query, return_counts=True)[1].max() for kind, query in found.items()}
    assert most["zipf"] > 10 * most["uniform"]
