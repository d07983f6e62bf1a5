"""What a client of S3 is made with."""

from __future__ import annotations

import pytest

from elastichost.datasets.sources.transports.addresses import parsed
from elastichost.datasets.sources.transports.s3_options import s3_options
from elastichost.errors import DataError


def test_the_address_says_more_than_the_environment() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://here:9000", "AWS_REGION": "r1"}
    found = s3_options(parsed("s3://b/a"), environ)
    assert found == {"endpoint_override": "here:9000", "scheme": "http", "region": "r1"}
    found = s3_options(parsed("s3://b/a?endpoint_override=https://there/s3/&region=r2&anonymous=true"), environ)
    assert found == {"endpoint_override": "there/s3", "scheme": "https", "region": "r2", "anonymous": True}
    assert s3_options(parsed("s3://b/a?endpoint_override=h:1&scheme=http"), {})["scheme"] == "http"
    both = {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "http://s3"}
    assert s3_options(parsed("s3://b/a"), both)["endpoint_override"] == "s3"


def test_without_an_endpoint_the_region_is_that_of_the_bucket() -> None:
    assert "region" not in s3_options(parsed("s3://b/a"), {"AWS_REGION": "elsewhere"})


def test_an_unknown_option_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(DataError, match="unknown option 'regoin'") as caught:
        s3_options(parsed("s3://b/a?regoin=x"), {})
    assert "region" in caught.value.hint
