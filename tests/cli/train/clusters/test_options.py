"""Options of one cluster are refused for another."""

from __future__ import annotations

from typing import Any

import pytest

from elastichost.cli.train.clusters.options import ClusterName, ClusterOptions, check_options
from elastichost.errors import ConfigError


@pytest.mark.parametrize(
    ("cluster", "given", "message"),
    [
        (None, {"partition": "long"}, "--partition needs --for"),
        (ClusterName.SLURM, {"image": "x"}, "--image is an option for kubernetes, not for slurm"),
        (ClusterName.RAY, {"mount": ["a:/b"]}, "--mount is an option for kubernetes"),
        (ClusterName.KUBERNETES, {"image": "x", "time": "1:00"}, "--time is an option for slurm"),
        (ClusterName.KUBERNETES, {}, "--for kubernetes needs --image"),
    ],
)
def test_refused(cluster: ClusterName | None, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_options(cluster, ClusterOptions(**given), as_json=False)


def test_json_is_for_the_forecast_only() -> None:
    with pytest.raises(ConfigError, match="--json and --for exclude each other"):
        check_options(ClusterName.RAY, ClusterOptions(), as_json=True)
    check_options(None, ClusterOptions(), as_json=True)
    check_options(ClusterName.SLURM, ClusterOptions(partition="p", cores=4, nodes=2), as_json=False)
