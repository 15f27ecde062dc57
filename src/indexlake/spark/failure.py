"""Explains what Spark raises in a sentence: a worker's own exception, and what is wrong with the worker's Python.

The workers of a session may run a different Python from this process.  Whether a job failed because of that is found
out by a small job that needs nothing of ours.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = {
    "indexlake": "indexlake",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "vortex": "vortex-data",
    "opendal": "opendal",
    "pyroaring": "pyroaring",
    "xxhash": "xxhash",
}
"""The modules that tasks import, and the packages that provide them."""

_ANOTHER_PYTHON = re.compile(
    r"ModuleNotFoundError|ImportError|Can't get attribute|has no attribute|PYTHON_VERSION_MISMATCH|Cannot run program"
)
_LOOK = """
def look(names):
    import platform, sys
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec

    found = {}
    for module, package in names.items():
        try:
            found[module] = version(package) if find_spec(module) else None
        except PackageNotFoundError:
            found[module] = ""
        except Exception:
            found[module] = None
    return sys.executable, platform.python_version(), found
"""


def reason_of(error: BaseException, spark: SparkSession | None = None) -> str:
    """Return the sentence in Spark's error that says what happened, without Java's class names and stack traces."""
    text = str(error)
    told = _of_worker(text) or _of_spark(text) or type(error).__name__
    return told if spark is None or not _ANOTHER_PYTHON.search(text) else with_workers(told, spark)


def _of_worker(text: str) -> str | None:
    """Return the first line of the exception that ended a Python worker: the last exception, if it has causes."""
    found = None
    for trace in text.split("Traceback (most recent call last):")[1:]:
        for line in trace.splitlines():
            if line.strip() and not line[0].isspace():
                found = line.strip()
                break
    return None if found is None else re.sub(r"^(?:\w+\.)+(?=\w+(?:Error|Exception)\b)", "", found)


def _of_spark(text: str) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    aborted = [line for line in lines if "aborted due to" in line]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    others = [line for line in lines if not line.startswith(("An error occurred while calling", "at ", ":"))]
    told = next(iter([*aborted, *causes[-1:], *others]), None)
    return None if told is None else re.sub(r"^[:\s]*(?:[\w$]+\.)+[\w$]*(?:Exception|Error):\s*", "", told)


def with_workers(told: str, spark: SparkSession) -> str:
    """Add which Python the workers run, what it lacks, and how to give them another one."""
    here = f"this process runs {sys.executable}"
    advice = f"Set PYSPARK_PYTHON={sys.executable}, or a Python with the same packages, before you make the session."
    try:
        python, number, found = _looked(spark)
    except Exception:  # they cannot run anything
        return f"{told.rstrip('.')}. The workers run {_configured(spark)}; {here}. {advice}"
    missing = [MODULES[name] for name, there in found.items() if there is None]
    other = [
        f"{MODULES[name]} {there} (here {ours})"
        for name, there in found.items()
        if there and (ours := _version(MODULES[name])) and ours != there
    ]
    lacks = f", which has no {', '.join(missing)}" if missing else ""
    has = f"{' and' if missing else ', which'} has {', '.join(other)}" if other else ""
    if not lacks and not has:
        return told
    return f"{told.rstrip('.')}. The workers run Python {number} at {python}{lacks}{has}; {here}. {advice}"


def _looked(spark: SparkSession) -> tuple[str, str, dict[str, str | None]]:
    """Return the workers' Python, its version and its packages, by a function that needs none of our modules."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(_LOOK, namespace)
    (found,) = spark.sparkContext.parallelize([dict(MODULES)], 1).map(namespace["look"]).collect()
    return found  # type: ignore[no-any-return]


def _configured(spark: SparkSession) -> str:
    return str(getattr(spark.sparkContext, "pythonExec", None) or os.environ.get("PYSPARK_PYTHON", "python3"))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
