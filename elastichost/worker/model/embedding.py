"""Replaces the torchrec collections of the user's model by lookups in the arena, in place.

While the user's `build` runs, collections are constructed on the meta device (no memory, no initialisation). Afterwards
the class of each collection object is changed to a subclass whose forward gets the rows from a lookup. Changing the
class of the object, instead of replacing child modules, also works for collections held in lists or attributes. The
key values that a collection receives are row numbers of its tables, made by the pipeline, not the raw ids.
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

# The num_embeddings of a dynamic table while a model is built. No memory of that size is ever allocated.
DYNAMIC_ROWS = 1 << 40

Collection: TypeAlias = Any  # torchrec has no types: an EmbeddingBagCollection or an EmbeddingCollection


class CollectionLookup(Protocol):
    """A source of the rows of one collection's embeddings for a batch."""

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
    """While active, every torchrec collection is constructed on the meta device, whatever device its caller names.

    The initialisation of its tables is skipped: on the meta device it has no effect, but takes 1 to 2 ms per table.
    """
    bag_init, sequence_init = EmbeddingBagCollection.__init__, EmbeddingCollection.__init__

    def on_meta(original: Any) -> Any:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            # `device` is the third positional parameter of EmbeddingBagCollection, the second of EmbeddingCollection
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
    """The num_embeddings of each table, by name, that the user's build receives."""
    return {table.name: table.rows or DYNAMIC_ROWS for table in tables}


def collections_of(model: nn.Module) -> list[tuple[str, Collection]]:
    """The model's collections as (module path, collection), in module order.

    Raises ModelError for a collection that cannot be replaced, and for a meta parameter outside of collections.
    """
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
                f"parameter {name!r} is on the meta device, but in no EmbeddingBagCollection or EmbeddingCollection",
                hint="create it on the CPU in build(), or put the table into a collection",
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
            raise ModelError(f"module {path!r} is a weighted EmbeddingBagCollection; set is_weighted=False in build()")
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
                        beta1=settings.optimizer.beta1,
                        beta2=settings.optimizer.beta2,
                        weight_decay=settings.optimizer.weight_decay,
                    ),
                    init_low=low,
                    init_high=high,
                    precision=settings.precision,
                )
            )
    if not specs:
        raise ModelError(
            "the model has no EmbeddingBagCollection or EmbeddingCollection",
            hint="build() receives the tables' configs: pass them to torchrec.EmbeddingBagCollection(tables=...)",
        )
    return tuple(specs)


def _table_of(
    path: str, config: EmbeddingBagConfig | EmbeddingConfig, by_feature: Mapping[str, TableSpec]
) -> TableSpec:
    owners = {by_feature[f].name if f in by_feature else "" for f in config.feature_names}
    if len(owners) != 1 or "" in owners:
        raise ModelError(
            f"table {config.name!r} of module {path!r} has features {list(config.feature_names)}, which do not all "
            "belong to one table of the job file",
            hint=f"the columns of data.categorical are {sorted(by_feature)}",
        )
    table = by_feature[config.feature_names[0]]
    expected = table.rows or DYNAMIC_ROWS
    if config.num_embeddings != expected:
        raise ModelError(
            f"table {config.name!r} of module {path!r} has num_embeddings {config.num_embeddings}, but its ids come "
            f"from table {table.name!r} of the job file, which has {expected}",
            hint="use the num_embeddings that build() received",
        )
    return table


def replace_collections(model: nn.Module, lookups: Mapping[str, CollectionLookup]) -> None:
    """Replaces every collection in place. lookups: by module path. The meta parameters are removed, so that
    `model.parameters()` returns exactly the dense part."""
    for path, collection in collections_of(model):
        bags = collection.embedding_bags if isinstance(collection, EmbeddingBagCollection) else collection.embeddings
        for bag in bags.values():
            del bag._parameters["weight"]
        replacement = (
            ArenaEmbeddingBagCollection if isinstance(collection, EmbeddingBagCollection) else ArenaEmbeddingCollection
        )
        collection.__class__ = replacement
        # Set as a plain attribute, so that the lookup does not become part of the user's module tree.
        object.__setattr__(collection, "_arena_lookup", lookups[path])
