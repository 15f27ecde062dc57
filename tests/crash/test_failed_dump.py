"""A background dump that fails is shown, logged and tried again; writes do not notice."""

from __future__ import annotations

import errno
import logging
import time
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.pipeline import maintenance
from tests.crash.failing import failing
from tests.support.waiting import wait_until

SCHEMA = pa.schema([pa.field("id", pa.int64(), False)])
CONFIG = il.TableConfig(inline_row_count_limit=50, direct_write_row_count=100_000, block_row_count=100)


@pytest.mark.parametrize("step", ["storage.publish", "storage.write", "dump.commit"])
def test_a_failed_dump_is_shown_logged_and_tried_again_and_never_blocks_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    monkeypatch.setattr(maintenance, "RETRY_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "indexlake")
    with il.connect(tmp_path / "lake") as lake:
        t = lake.create_table("t", SCHEMA, primary_key="id", config=CONFIG)

        def failed() -> list[str]:
            return [job.error or "" for job in lake.jobs() if job.kind == "dump" and job.state == "failed"]

        begun = time.monotonic()
        with failing(step, code=errno.ENOSPC, always=True):
            for n in range(300):
                t.insert({"id": n})
            wait_until(lambda: len(failed()) >= 2, "the failed dump is not tried again")
            attempts = len(failed())
            assert attempts <= 2 + (time.monotonic() - begun) / 0.2, "it is tried again at its own pace"
            assert len(t) == 300
            assert t.stats().hot_rows == 300
        assert all("disk is full" in error or "No space" in error or "disk" in error for error in failed())
        assert any("tried again" in record.message for record in caplog.records)
        wait_until(lambda: t.stats().hot_rows < 50, "the dump does not come through when the fault is gone")
        assert sorted(t.scan().to_arrow().column("id").to_pylist()) == list(range(300))
        assert "done" in {job.state for job in lake.jobs() if job.kind == "dump"}
    leftovers = [path for path in (tmp_path / "lake" / "files").rglob("*") if path.name.startswith(".")]
    assert leftovers == [], "an aborted file leaves nothing behind"


def test_a_failing_heartbeat_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BEAT_SECONDS", 0.05)
    with il.connect(tmp_path / "lake") as lake:
        t = lake.create_table("t", SCHEMA, config=il.TableConfig(direct_write_row_count=10))
        t.insert(pa.table({"id": range(20)}))

        def expires() -> int:
            return int(next(iter(lake.catalog.query("select expires_at from indexlake_writer")))[0])

        with failing("sql.begin", always=True) as failure:
            wait_until(lambda: failure.count >= 2, "the heart stops at the first failure")
        before = expires()
        wait_until(lambda: expires() > before, "no heartbeat after the fault is gone")


def test_a_heartbeat_survives_errors_that_nobody_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "BEAT_SECONDS", 0.05)
    with il.connect(tmp_path / "lake") as lake:
        calls = 0
        held = lake._pins.held

        class Surprising:
            """What a set does that another thread changes while it is looked at."""

            def __iter__(self) -> object:
                nonlocal calls
                calls += 1
                raise RuntimeError("Set changed size during iteration")

        t = lake.create_table("t", SCHEMA, config=il.TableConfig(direct_write_row_count=10))
        t.insert(pa.table({"id": range(20)}))
        monkeypatch.setattr(lake._pins, "held", Surprising())
        wait_until(lambda: calls >= 3, "the heart stops at the first surprise")
        monkeypatch.setattr(lake._pins, "held", held)
