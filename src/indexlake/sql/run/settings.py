"""The settings of the engine that a text may change, for every query of this open lake that begins afterwards.

The engine keeps track of those that change what a query means: while one is set, everything is computed by DuckDB, as
our own expressions do not know them.  Those that only test DuckDB are checked but not applied: they can make it slow or
crash the process.
"""

from __future__ import annotations

import re

from indexlake.errors import NotFoundError
from indexlake.sql.parse import statement as st
from indexlake.sql.parse.fragment import Spliced
from indexlake.sql.parse.token_reader import DATABASE
from indexlake.sql.parse.tokens import Source, text_literal
from indexlake.sql.plan.snapshot import Viewpoint
from indexlake.sql.run.engine import MEANINGS, ORDERINGS, Engine
from indexlake.sql.run.engine_errors import translating

SETTINGS = ORDERINGS | MEANINGS | {
    "threads", "worker_threads", "external_threads", "memory_limit", "max_memory", "max_temp_directory_size",
    "explain_output", "enable_progress_bar", "perfect_ht_threshold", "prefer_range_joins",
    "ordered_aggregate_threshold", "merge_join_threshold", "nested_loop_join_threshold", "pivot_filter_threshold",
    "scheduler_process_partial", "dynamic_or_filter_threshold", "late_materialization_max_rows",
    "enable_external_file_cache", "enable_object_cache", "parquet_metadata_cache", "disable_parquet_prefetching",
    "prefetch_all_parquet_files", "validate_external_file_cache", "asof_loop_join_threshold", "checkpoint_threshold",
    "wal_autocheckpoint", "wal_autocheckpoint_entries", "auto_checkpoint_skip_wal_threshold",
    "immediate_transaction_mode", "disabled_optimizers", "enable_fsst_vectors", "index_scan_percentage",
    "index_scan_max_count", "partitioned_write_flush_threshold", "partitioned_write_max_open_files",
    "write_buffer_row_group_count", "write_buffer_row_group_memory_limit", "enable_http_metadata_cache",
    "lambda_syntax", "storage_compatibility_version", "force_compression", "disabled_compression_methods",
    "force_bitpacking_mode", "max_vacuum_tasks", "vacuum_rebuild_indexes", "preserve_insertion_order", "pivot_limit",
    "enable_caching_operators", "storage_block_prefetch", "zstd_min_string_length", "experimental_metadata_reuse",
    "geometry_minimum_shredding_size", "variant_minimum_shredding_size", "force_variant_shredding",
    "enable_optimistic_write", "default_block_size", "temp_file_encryption", "allocator_flush_threshold",
    "allocator_bulk_deallocation_flush_threshold", "allocator_background_threads", "catalog_error_max_schemas",
    "deprecated_using_key_syntax",
}  # fmt: skip
"""Besides those that change what a query means: how fast it is answered, the order of its rows without ORDER BY, what
is reported about it, which spellings are accepted, and how DuckDB keeps a database of its own."""

NAMESPACE = ("schema", "search_path")
_TESTS = re.compile("debug_.*|verify_.*")
_OTHER_NAMES = {
    "max_memory": "memory_limit", "worker_threads": "threads", "wal_autocheckpoint": "checkpoint_threshold",
    "null_order": "default_null_order",
}  # fmt: skip
_LEAST_MEMORY = 16_000_000
"""With less, DuckDB could not even be given more again."""
_MEMORY = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([bkmgt])\w*\s*", re.IGNORECASE)
_UNITS = {"b": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def set_setting(
    engine: Engine, view: Viewpoint, name: str, value: object, statement: st.Setting, source: Source
) -> None:
    """Change or, if ``value`` is None, reset a setting."""
    name = _OTHER_NAMES.get(name, name)
    if name in NAMESPACE:
        engine.namespace = _namespace(view, value, statement, source)
        return
    is_test = _TESTS.fullmatch(name) is not None
    if name not in SETTINGS and not is_test:
        if _is_so(engine, name, value):
            return
        source.fail(
            f"The setting {name!r} cannot be changed. It may change the results of queries, or this engine does not "
            "have it. Settings such as threads and memory_limit can.",
            statement.place,
        )
    written = None
    if statement.value is not None:
        size = _MEMORY.fullmatch(str(value)) if name == "memory_limit" else None
        if size is not None and float(size[1]) * _UNITS[size[2].lower()] < _LEAST_MEMORY:
            source.fail("The engine needs a memory_limit of at least 16MB.", statement.value.start)
        written = "null" if value is None else str(value) if isinstance(value, int) else text_literal(str(value))
    with translating(source, Spliced(name, (0,), ((statement.place, False),))):
        engine.set(name, written, applied=not is_test)


def _namespace(view: Viewpoint, value: object, statement: st.Setting, source: Source) -> str:
    """Return the namespace that USE names: the first of a search path, which always ends in ``main``."""
    first, *others = ["main"] if value is None else [part.strip().strip('"') for part in str(value).split(",")]
    wanted = "main" if first.lower() == DATABASE else first.removeprefix(f"{DATABASE}.")
    if any(other.lower() not in ("main", f"{DATABASE}.main") for other in others):
        source.fail("A search path is a single namespace; main is always searched after it.", statement.place)
    for namespace in [*view.within.namespaces(), "main"]:
        if namespace.lower() == wanted.lower():
            return namespace
    raise NotFoundError(
        str(source.error(f"There is no schema {wanted!r}: CREATE SCHEMA makes it.", statement.place)), name=wanted
    )


def _is_so(engine: Engine, name: str, value: object) -> bool:
    """Return whether a setting already has the value it is to be set to."""
    known = engine.table("select value from duckdb_settings() where name ilike $name", {"name": name}).column(0)
    if value is None:
        return bool(len(known))
    return bool(len(known)) and known[0].as_py() is not None and known[0].as_py().lower() == str(value).lower()
