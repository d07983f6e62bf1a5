"""Eight published recommendation models as plain torch + torchrec modules. They import nothing of elastichost.

Each name is a build function for `model.build`, e.g. `build = "elastichost.models:dlrm"`:

    build(tables: list[EmbeddingBagConfig], num_dense: int, *, num_labels: int = 1, **args) -> torch.nn.Module
    module(dense float32 [B, num_dense], sparse KeyedJaggedTensor) -> logits [B], or [B, num_labels] when that is > 1

`two_towers` is for `model.outputs = "loss"`: its module takes torchrec's Batch and returns the loss too.

The names load on first use: importing this package does not import torch. The folder can be copied and used alone.

Modules:
    networks/   one module for each model
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .networks.dcn import build as dcn
    from .networks.deepfm import build as deepfm
    from .networks.din import build as din
    from .networks.dlrm import build as dlrm
    from .networks.mmoe import build as mmoe
    from .networks.two_towers import build as two_towers
    from .networks.wide_deep import build as wide_deep
    from .networks.xdeepfm import build as xdeepfm

__all__ = ["dcn", "deepfm", "din", "dlrm", "mmoe", "two_towers", "wide_deep", "xdeepfm"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The modules are in a subpackage: here, a submodule would replace the build function of the same name.
    build = import_module(f".networks.{name}", __name__).build
    globals()[name] = build
    return build


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
