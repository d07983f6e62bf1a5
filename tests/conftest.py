"""For all tests: nothing is read from, or written to, the history of whoever runs them."""

from __future__ import annotations

import os

os.environ["ELASTICHOST_HISTORY"] = "off"
