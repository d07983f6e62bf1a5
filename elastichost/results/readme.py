"""The README of an export: what is in it and how it is loaded, with the names of its own columns. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elastichost.results.description import Preprocess

__all__ = ["readme"]

SCORES = """\
```python
import sys

import pyarrow.parquet as pq

sys.path.insert(0, "DIR")                      # this directory
from reader import Scorer

scorer = Scorer("DIR")
prepared = scorer.preprocessor.prepare(pq.read_table("FILE"))
probabilities = scorer.scores(prepared)        # float32 [rows{labels}]
```
"""
TORCHREC = """\
## As a torchrec model

```python
import pyarrow.parquet as pq
import torch
from preprocess import Preprocessor
from reader import load_model, model_inputs
{imports}
model = load_model("DIR")                      # torch.nn.Module, in evaluation mode
dense, sparse = model_inputs(Preprocessor("DIR"), pq.read_table("FILE"))
with torch.no_grad():
    output = {call}
```
"""
BATCH = """\
model(Batch(dense_features=dense, sparse_features=sparse, labels=torch.zeros({labels})))[1][1]  # logits"""
PROGRAM = """\
## As a program, with torch alone

```python
import torch
{imports}
program = torch.export.load("DIR/model.pt2").module()
dense = torch.zeros(2, {dense})                     # float32 [B, {dense}]
values = tuple(torch.tensor([0, 0, 0]) for _ in range({features}))   # for each feature int64 [n]: rows of its table
offsets = tuple(torch.tensor([0, 1, 3]) for _ in range({features}))  # for each feature int64 [B + 1]
probabilities = program(dense, values, offsets)   # float32 [B{labels}]
```

B and every n may be any number. Sample i has the ids `values[offsets[i]:offsets[i + 1]]` of a feature: none, one or
many. The features are, in this order: {names}. A value is a row of the feature's table, not an id: `preprocess.py` maps
ids to rows by `preprocess.json` and `ids.safetensors`.
"""


def readme(preprocess: Preprocess) -> str:
    """The text of README.md."""
    model, is_program = preprocess.model, preprocess.format == "pt2"
    labels = f", {preprocess.num_labels}" if preprocess.num_labels > 1 else ""
    fbgemm = " and fbgemm-gpu" if model.needs_fbgemm else ""
    needs = f"torch{fbgemm}" if is_program else "torch and torchrec"
    parts = [
        f"# {preprocess.job}, after {preprocess.samples_trained:,} samples\n",
        f"Export `{preprocess.id}`. It needs {needs}, and for the preprocessing numpy, pyarrow and safetensors.\n",
        f"Numbers: {_listed(preprocess.dense)}. Ids: {_kinds(preprocess)}. Other kinds are refused.\n",
        SCORES.format(labels=labels),
    ]
    if is_program:
        parts.append(
            PROGRAM.format(
                imports="import fbgemm_gpu  # registers operators that the program uses\n" if fbgemm else "",
                dense=preprocess.num_dense,
                features=len(preprocess.features),
                labels=labels,
                names=_listed(preprocess.features),
            )
        )
    else:
        is_loss = model.outputs == "loss"
        sizes = "len(dense)" if preprocess.num_labels == 1 else f"len(dense), {preprocess.num_labels}"
        call = BATCH.format(labels=sizes) if is_loss else f"model(dense, sparse)              # {model.outputs}"
        imports = "from torchrec.datasets.utils import Batch\n" if is_loss else ""
        parts.append(TORCHREC.format(imports=imports, call=call))
    return "\n".join(parts)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _kinds(preprocess: Preprocess) -> str:
    kinds = {name: table.key_kind for table in preprocess.tables for name in table.features}
    lists = preprocess.list_features or ()
    one = {"int": "integer", "string": "text"}
    many = {"int": "list of integers", "string": "list of texts"}
    told = ((name, (many if name in lists else one)[kinds[name]]) for name in preprocess.features)
    return ", ".join(f"`{name}` ({kind})" for name, kind in told)
