"""Settings for opening a lake from environment variables, for programs that take no secrets as arguments."""

from __future__ import annotations

import json
import os

from indexlake.errors import SchemaError

STORAGE_OPTIONS = "INDEXLAKE_STORAGE_OPTIONS"
"""Keys and settings of the object store, as a JSON object."""

CACHE_DIR = "INDEXLAKE_CACHE_DIR"
"""The directory of the local cache of the object store."""


LOG_DIR = "INDEXLAKE_LOG_DIR"
"""The folder of the redo log, for a lake whose newest rows are in memory and whose catalog is on PostgreSQL."""


def storage_options() -> dict[str, str]:
    text = os.environ.get(STORAGE_OPTIONS) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SchemaError(f"{STORAGE_OPTIONS} must be a JSON object with string values.")
    return found


def cache_dir() -> str | None:
    return os.environ.get(CACHE_DIR) or None


def log_dir() -> str | None:
    return os.environ.get(LOG_DIR) or None
