"""Load, compact and scan on a cluster of two executors, which never come to know the catalog.

By command, as it starts five Java processes: python -m pytest -m long tests/spark/test_cluster.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import indexlake as il
from tests.spark.cluster_driver import ROWS
from tests.spark.standalone import HOST, standalone
from tests.support.servers import S3Server, free_port

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())])
EXPECTED = [
    [n, "changed" if n % 10 == 3 else f"row {n}", n % 7] for n in range(2 * ROWS) if n % 4 != 0
]  # what the driver's updates and deletes leave
CHUNK = 8 << 20
PLACES = (
    "jobs", "stages?details=true", "executors", "environment", "allexecutors",
    "sql?details=true&planDescription=true&length=100",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_executors_load_compact_and_scan_and_hold_no_key_of_the_catalog(
    s3: S3Server, postgres_dsn: str, tmp_path: Path
) -> None:
    password, schema = f"password{uuid.uuid4().hex}", f"lake_{uuid.uuid4().hex[:12]}"
    # The server asks for no password, and takes any.
    address = re.sub(r"//(\w+):?\w*@", rf"//\1:{password}@", postgres_dsn)
    assert password in address
    lake = {
        "catalog": address,
        "catalog_schema": schema,
        "storage": f"s3://{s3.bucket()}/some/prefix",
        "storage_options": s3.options,
    }
    with il.connect(**lake, automatic=False) as made:
        config = il.TableConfig(block_row_count=190)  # enough files for more than one task of a scan
        made.create_table("t", SCHEMA, primary_key="id", config=config)
    events = tmp_path / "events"
    events.mkdir()
    with standalone(workers=2) as cluster:
        conf = {
            "spark.master": cluster.url,
            "spark.cores.max": "2",
            "spark.executor.memory": "600m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # begin when both executors are there
            "spark.ui.enabled": "true",
            "spark.ui.port": str(free_port()),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": events.as_uri(),
            "spark.driver.memory": "600m",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.4",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.minTaskRuntime": "1s",
        }
        given = {
            "conf": conf,
            "lake": lake,
            "path": address.replace(f":{password}", ""),
            "options": {
                "catalog_password": password,
                "catalog_schema": schema,
                **{f"storage.{name}": value for name, value in s3.options.items()},
            },
        }
        with driver(given) as said:
            assert said["rows"]["to_spark"] == EXPECTED
            assert said["rows"]["format"] == EXPECTED
            for step, tasks in said["tasks"].items():
                assert len(tasks) == 2, (step, tasks)
                assert min(tasks.values()) > 0, f"one executor did nothing in {step}: {tasks}"

            assert said["speculative"] >= 2, "a task of the load and one of the compaction were run twice"

            processes = cluster.executors()
            assert len(processes) >= 4, "an executor and a Python worker on each worker, at least"
            shown = b"".join(told_at_start(pid) for pid in processes)
            assert b"CoarseGrainedExecutorBackend" in shown
            assert password.encode() not in shown, "the command lines and the environments"
            assert s3.secret.encode() not in shown
            held = {secret for pid in processes for secret in held_by(pid, s3.secret, password)}
            assert s3.secret in held, "executors open the storage, and what they hold can be found"
            assert password not in held, "the catalog's password is not in their memory"
            for place in PLACES:
                text = fetch(f"{said['page']}/api/v1/applications/{said['application']}/{place}")
                assert len(text) > 100, place
                assert password not in text, place
                assert s3.secret not in text, place
        logs = [path for path in [*events.rglob("*"), *cluster.folder.rglob("*")] if path.is_file()]
        told = b"".join(path.read_bytes() for path in logs)
        assert b"IndexLakeScan" in told, "the plans are in the event log"
        assert password.encode() not in told
        assert s3.secret.encode() not in told
    with il.connect(**lake, automatic=False) as again:
        t = again.table("t")
        assert sorted([row["id"], row["name"], row["n"]] for row in t.scan().to_pylist()) == EXPECTED
        assert t.get(13) == {"id": 13, "name": "changed", "n": 6}
        verified = again.pipeline(runner="threads").verify()
        assert verified.ok
        assert verified.unreachable_files >= 2, "what the slow attempts had written is not in the table"


@contextmanager
def driver(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the driver until it has said what it found; it ends with this block."""
    top = str(Path(__file__).parents[2])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.cluster_driver"], cwd=top, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "SPARK_LOCAL_IP": HOST},
    ) as process:  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line, f"the driver ended with {process.wait(30)}"
            yield json.loads(line)
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def fetch(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return str(answer.read(), "utf-8")


def told_at_start(pid: int) -> bytes:
    """The command line and the environment of a process; nothing of one that is gone."""
    with suppress(ProcessLookupError, FileNotFoundError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def held_by(pid: int, *secrets: str) -> set[str]:
    """Those that the memory of a process has somewhere, as bytes or in Java's two bytes a character."""
    found: set[str] = set()
    with suppress(ProcessLookupError, FileNotFoundError):  # a Python worker that was not needed any more
        for chunk in memory(pid):
            for secret in secrets:
                if secret.encode() in chunk or secret.encode("utf-16-le") in chunk:
                    found.add(secret)
    return found


def memory(pid: int) -> Iterator[bytes]:
    """What a process may write to, in overlapping pieces."""
    with open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            low, high = (int(end, 16) for end in place.split("-"))
            for start in range(low, high, CHUNK):
                with suppress(OSError):  # of devices, and what was given back meanwhile
                    yield os.pread(file.fileno(), min(CHUNK + 200, high - start), start)
