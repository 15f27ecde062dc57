"""What somebody meets who has only read the documentation: odd keys, wrong tables, and advice that has to be true."""

from __future__ import annotations

import pytest

from indexlake.pipeline.meta import publish_meta
from tests.partitions.clustered_tables import clustered, metas, rows
from tests.support.lakes import connect


@pytest.mark.parametrize("key", [-5, 1000])
def test_a_meta_file_says_the_same_whoever_reads_the_catalog(tmp_path, key):
    with connect(tmp_path / "lake") as lake:
        t = clustered(lake)
        t.insert(rows(0, 200))
        lake.pipeline().merge("s.t")
        lake.pipeline().split("s.t", at=key)  # the block is of another partition now, and its record is replaced
        assert lake.pipeline().verify().problems == ()
        with connect(tmp_path / "lake") as other:
            assert publish_meta(other, t._table_id) is None, "nothing has changed"
        assert lake.pipeline().verify().problems == ()
        assert len(metas(lake, t._table_id)) > 0
