"""Trains a model of clicks from Python: makes a small click log, trains, and scores it.

python examples/quickstart.py
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import elastichost as eh

generator = np.random.default_rng(7)
customer, item = generator.integers(0, 100, 60_000), generator.integers(0, 50, 60_000)
price = generator.gamma(2.0, 20.0, 60_000)
taste = (generator.normal(size=(100, 3)) @ generator.normal(size=(3, 50)))[customer, item]
clicked = generator.random(60_000) < 1 / (1 + np.exp(-(1.2 * taste - 0.03 * (price - 40) - 1)))
log = pa.table({"clicked": clicked.astype(np.int64), "price": price, "customer": customer, "item": item})
pq.write_table(log.slice(0, 50_000), "train.parquet")
pq.write_table(log.slice(50_000), "test.parquet")

run = eh.train(
    name="quickstart",
    model="elastichost.models:dlrm",
    model_args={"bottom": [16, 8], "top": [32, 1]},
    data=eh.Data(
        train="train.parquet",
        test="test.parquet",
        label="clicked",
        dense=["price"],
        categorical=["customer", "item"],
        dense_transform="log1p",
    ),
    tables={"default": eh.Table(dim=8)},
    train={"epochs": 4, "batch_size": 256, "optimizer_dense": {"lr": 0.003}},
)
print(f"AUC {run.metrics['auc']:.3f}; the files of the run are in {run.dir}")
print(run.predict("test.parquet").slice(0, 5).to_pylist())
