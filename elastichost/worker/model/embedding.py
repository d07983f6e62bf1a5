"""The swap: a user's torchrec collections become lookups in the arena, in place.

While the user's `build` runs, collections are constructed on the meta device (no memory, no initialisation).
Afterwards the class of each collection object is changed to a subclass whose forward asks a lookup for the rows:
changing the class in place, rather than replacing children, also reaches collections held in lists or attributes.
The key values a collection sees are row numbers of its tables, made by the pipeline, not the raw ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from elastichost.config.job import JobSpec
from elastichost.config.tables import parse_init, table_settings
from elastichost.errors import ModelError
from elastichost.specs import EmbeddingSpec, Pooling, RowOptimizerSpec, TableSpec

__all__ = [
    "DYNAMIC_ROWS",
    "ArenaEmbeddingBagCollection",
    "ArenaEmbeddingCollection",
    "CollectionLookup",
    "collections_of",
    "describe_embeddings",
    "meta_collections",
    "replace_collections",
    "table_rows",
]

# What a dynamic table's num_embeddings is while a model is built: nothing of that size is ever allocated.
DYNAMIC_ROWS = 1 << 40

Collection: TypeAlias = Any  # torchrec has no types: an EmbeddingBagCollection or an EmbeddingCollection


class CollectionLookup(Protocol):
    """Rows of one collection's embeddings for a batch."""

    def pooled(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """float32 [batch, sum of dims] in the order of the collection's embedding names."""
        ...

    def sequence(self, features: KeyedJaggedTensor) -> list[torch.Tensor]:
        """Per embedding and feature, in order: float32 [ids of the feature, dim]."""
        ...


class ArenaEmbeddingBagCollection(EmbeddingBagCollection):
    """An `EmbeddingBagCollection` whose rows live in the arena."""

    _arena_lookup: CollectionLookup

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor:
        return KeyedTensor(
            keys=self._embedding_names,
            length_per_key=self._lengths_per_embedding,
            values=self._arena_lookup.pooled(features),
        )


class ArenaEmbeddingCollection(EmbeddingCollection):
    """An `EmbeddingCollection` whose rows live in the arena."""

    _arena_lookup: CollectionLookup

    def forward(self, features: KeyedJaggedTensor) -> dict[str, JaggedTensor]:
        jagged = features.to_dict()
        rows = iter(self._arena_lookup.sequence(features))
        output: dict[str, JaggedTensor] = {}
        for names, feature_names in zip(self._embedding_names_by_table, self._feature_names, strict=True):
            for name, feature in zip(names, feature_names, strict=True):
                source, values = jagged[feature], next(rows)
                output[name] = JaggedTensor(
                    values=values,
                    lengths=source.lengths().to(values.device),  # a batch's ids and lengths stay on the CPU
                    weights=source.values().to(values.device) if self._need_indices else None,
                )
        return output


@contextmanager
def _uninitialised(kind: type[nn.Embedding] | type[nn.EmbeddingBag]) -> Iterator[None]:
    reset = kind.reset_parameters
    kind.reset_parameters = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.reset_parameters = reset  # type: ignore[method-assign]


@contextmanager
def meta_collections() -> Iterator[None]:
    """While active, every torchrec collection is constructed on the meta device, whatever device was asked for.

    Its tables are not initialised: on the meta device that does nothing, and takes a millisecond or two for each.
    """
    bag_init, sequence_init = EmbeddingBagCollection.__init__, EmbeddingCollection.__init__

    def on_meta(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            # device is the third positional parameter of the one and the second of the other
            position = 2 if original is bag_init else 1
            kept = list(args)
            if len(kept) > position:
                kept[position] = torch.device("meta")
            else:
                kwargs["device"] = torch.device("meta")
            with _uninitialised(nn.EmbeddingBag), _uninitialised(nn.Embedding):
                original(self, *kept, **kwargs)

        return init

    EmbeddingBagCollection.__init__ = on_meta(bag_init)
    EmbeddingCollection.__init__ = on_meta(sequence_init)
    try:
        yield
    finally:
        EmbeddingBagCollection.__init__ = bag_init
        EmbeddingCollection.__init__ = sequence_init


def table_rows(tables: Sequence[TableSpec]) -> dict[str, int]:
    """num_embeddings a table shows to the user's build."""
    return {table.name: table.rows or DYNAMIC_ROWS for table in tables}


def collections_of(model: nn.Module) -> list[tuple[str, Collection]]:
    """(module path, collection), in module order. Raises ModelError for collections that cannot be replaced."""
    found: list[tuple[str, Collection]] = []
    for path, module in model.named_modules():
        if isinstance(module, (EmbeddingBagCollection, EmbeddingCollection)):
            found.append((path, module))
        elif type(module).__module__.startswith("torchrec.modules") and any(
            word in type(module).__name__ for word in ("ManagedCollision", "FeatureProcessed", "EmbeddingTower")
        ):
            raise ModelError(
                f"module {path!r} is a {type(module).__name__}, which elastichost cannot place in the arena",
                hint="use EmbeddingBagCollection or EmbeddingCollection; dynamic tables replace managed collisions",
            )
    held = {f"{path}.{name}" if path else name for path, c in found for name, _ in c.named_parameters()}
    for name, parameter in model.named_parameters():
        if parameter.is_meta and name not in held:
            raise ModelError(
                f"parameter {name!r} is on the meta device, outside any EmbeddingBagCollection or EmbeddingCollection",
                hint="give it real storage in build(), or put the table into a collection",
            )
    return found


def _configs(collection: Collection) -> Sequence[EmbeddingBagConfig | EmbeddingConfig]:
    is_bag = isinstance(collection, EmbeddingBagCollection)
    configs: Sequence[Any] = collection.embedding_bag_configs() if is_bag else collection.embedding_configs()
    return configs


def _pooling(config: EmbeddingBagConfig | EmbeddingConfig) -> Pooling:
    if not isinstance(config, EmbeddingBagConfig):
        return "none"
    return "mean" if config.pooling == PoolingType.MEAN else "sum"


def describe_embeddings(model: nn.Module, job: JobSpec, tables: Sequence[TableSpec]) -> tuple[EmbeddingSpec, ...]:
    """The embeddings of a model built under `meta_collections`. Raises ModelError naming module and table."""
    by_feature = {feature: table for table in tables for feature in table.features}
    specs: list[EmbeddingSpec] = []
    for path, collection in collections_of(model):
        if isinstance(collection, EmbeddingBagCollection) and collection.is_weighted():
            raise ModelError(f"module {path!r} is a weighted EmbeddingBagCollection; ids have no weights here")
        for config in _configs(collection):
            table = _table_of(path, config, by_feature)
            settings = table_settings(job, table.name)
            low, high = parse_init(settings.init)
            specs.append(
                EmbeddingSpec(
                    name=config.name,
                    index=len(specs),
                    table=table.index,
                    module=path,
                    kind="bag" if isinstance(collection, EmbeddingBagCollection) else "sequence",
                    features=tuple(config.feature_names),
                    dim=config.embedding_dim,
                    pooling=_pooling(config),
                    optimizer=RowOptimizerSpec(
                        name=settings.optimizer.name,
                        learning_rate=settings.optimizer.lr,
                        eps=settings.optimizer.eps,
                    ),
                    init_low=low,
                    init_high=high,
                    precision=settings.precision,
                )
            )
    if not specs:
        raise ModelError(
            "the model has no EmbeddingBagCollection or EmbeddingCollection",
            hint="build() gets the tables' configs: hand them to torchrec.EmbeddingBagCollection(tables=...)",
        )
    return tuple(specs)


def _table_of(
    path: str, config: EmbeddingBagConfig | EmbeddingConfig, by_feature: Mapping[str, TableSpec]
) -> TableSpec:
    owners = {by_feature[f].name if f in by_feature else "" for f in config.feature_names}
    if len(owners) != 1 or "" in owners:
        raise ModelError(
            f"table {config.name!r} of module {path!r} has features {list(config.feature_names)}, which are not "
            "features of one table of the job file",
            hint=f"columns of data.categorical are {sorted(by_feature)}",
        )
    table = by_feature[config.feature_names[0]]
    expected = table.rows or DYNAMIC_ROWS
    if config.num_embeddings != expected:
        raise ModelError(
            f"table {config.name!r} of module {path!r} has num_embeddings {config.num_embeddings}, but its ids come "
            f"from table {table.name!r} of the job file, which has {expected}",
            hint="keep the num_embeddings that build() was given",
        )
    return table


def replace_collections(model: nn.Module, lookups: Mapping[str, CollectionLookup]) -> None:
    """Swaps every collection in place. `lookups` maps module path -> lookup. The meta parameters are dropped, so
    that what `model.parameters()` still gives is exactly the dense part."""
    for path, collection in collections_of(model):
        bags = collection.embedding_bags if isinstance(collection, EmbeddingBagCollection) else collection.embeddings
        for bag in bags.values():
            del bag._parameters["weight"]
        replacement = (
            ArenaEmbeddingBagCollection if isinstance(collection, EmbeddingBagCollection) else ArenaEmbeddingCollection
        )
        collection.__class__ = replacement
        # A plain attribute: the lookup is no part of the user's module tree.
        object.__setattr__(collection, "_arena_lookup", lookups[path])
