"""Tracebacks show the frames of the user's model alone."""

from __future__ import annotations

from elastichost.user_model.frames import users_frames

TORCH = '  File "/env/site-packages/torch/nn/modules/module.py", line 1, in _call_impl\n    return call()\n'
USER = '  File "/home/user/model.py", line 9, in forward\n    raise ValueError("no")\n'


def test_frames_of_torchs_calls_are_left_out() -> None:
    head, error = "Traceback (most recent call last):\n", "ValueError: no"
    assert users_frames(head + TORCH + USER + TORCH + error) == head + USER + error
    assert users_frames(head + TORCH + error) == error, "nothing is left that a traceback could show"


def test_a_text_without_frames_stays() -> None:
    assert users_frames("two\n    lines") == "two\n    lines"
