"""The base class of every section of the job file, and the error for a value that is refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

__all__ = ["Section", "refuse"]


class Section(BaseModel):
    """A section of the job file: frozen, without unknown keys, and without silent conversions (a quoted number is not a
    number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refuse(allowed: str) -> PydanticCustomError:
    """The error of a validator that refuses a value. `allowed`: what it accepts, for the message."""
    return PydanticCustomError("allowed", "allowed: {allowed}", {"allowed": allowed})
