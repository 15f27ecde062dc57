"""The Spark session that IndexLake's jobs and reads run on.

``session()`` returns the active session of this process, or creates a local one with settings that suit our data.
Your own session, on any cluster, works just as well: nothing here is needed for correctness.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

from indexlake.errors import JobError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

LOCAL_MASTER = "local[*,4]"
"""All cores; if a worker dies its task is retried, as on a cluster, which plain ``local[*]`` never does."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 has no statistics
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
}
"""Settings of a local session; those that the caller passes take precedence."""


def session(**conf: str) -> SparkSession:
    """The active Spark session, or a new local one.

    Parameters
    ----------
    conf
        Settings of a new session, with underscores for dots, or any names through
        ``**{"spark.master": "local[4]"}``.  A session that is active stays as it is.

    Examples
    --------
    >>> spark = il.spark.session(spark_driver_memory="4g")
    """
    found = active()
    if found is not None:
        return found
    spark = _spark_session()
    check_java()
    wanted = {name if "." in name else name.replace("_", "."): str(value) for name, value in conf.items()}
    master = wanted.pop("spark.master", None) or os.environ.get("SPARK_MASTER", LOCAL_MASTER)
    builder = spark.builder.appName("indexlake").master(master)
    for name, value in {**SETTINGS, **wanted}.items():
        builder = builder.config(name, value)
    # Rows are passed as Arrow here, so Spark's warning about pandas does not apply.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    # The workers have to run this interpreter, which has the right packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return builder.getOrCreate()


def active() -> SparkSession | None:
    """Return the session that this process already has, of this thread or another one, or None."""
    if "pyspark" not in sys.modules:
        return None
    spark = _spark_session()
    found = spark.getActiveSession() or spark._instantiatedSession
    context = getattr(found, "_sc", None)
    return None if context is not None and context._jsc is None else found  # None if it was stopped


def _spark_session() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError(
            "Spark is not installed. Install it with: pip install 'indexlake[spark]', or run the job without it: "
            "lake.pipeline(runner='threads').",
            extra="spark",
        ) from None
    return SparkSession


def check_java() -> None:
    """Raise one clear sentence if Spark could not start."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    what = f"Spark needs Java {OLDEST_JAVA} or newer; "
    advice = " Install a JDK, for example openjdk-17-jre-headless, or use lake.pipeline(runner='threads')."
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME is {home!r} and has no bin/java." if home else "no java was found on the PATH."
        raise JobError(what + where + advice)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{what}{java} does not run: {error}.{advice}") from None
    version = java_version(said)
    if version is None or version < OLDEST_JAVA:
        shown = said.splitlines()[0] if said else "says nothing"
        raise JobError(f"{what}{java} is {version or 'of an unknown version'} ({shown}).{advice}")


def java_version(text: str) -> int | None:
    """Return the feature release printed by ``java -version``: 17 for ``17.0.15``, 8 for ``1.8.0_392``."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
