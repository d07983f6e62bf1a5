"""What every section of the job file is, and how its values are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

__all__ = ["Section", "refuse"]


class Section(BaseModel):
    """Frozen, nothing unknown, no silent conversions (a quoted number is not a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refuse(allowed: str) -> PydanticCustomError:
    return PydanticCustomError("allowed", "allowed: {allowed}", {"allowed": allowed})
