"""A progress bar for work that takes longer than a second, in a terminal or a notebook.

It is written to standard error, and only if someone can see it, unless the caller says otherwise.  In a script or a
server the library stays silent, and imports nothing for it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

AFTER_SECONDS = 1.0


class ProgressBar:
    """Counts the rows that pass; a context manager.  ``wanted`` None: only for slow work in a terminal or notebook."""

    def __init__(self, label: str, wanted: bool | None = None) -> None:
        self._label = label
        self._wanted = wanted
        self._start = time.monotonic()
        self._rows = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, done: int, total: int, *, rows: int, size: int) -> None:
        """Show how many of the tasks known so far are done, for work that is not a stream of batches."""
        self._rows = rows
        if self._is_wanted() and self._is_due(total):
            figures = f"{done:,} of {total:,} tasks, {rows:,} rows, {size / 2**20:,.1f} MiB"
            self._bar.update(self._task, completed=done, total=total, figures=figures)

    def watch(self, batches: Iterator[pa.RecordBatch], total_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the same batches.  The bar advances by bytes if the source knows them, otherwise by rows."""
        if not self._is_wanted():
            yield from batches
            return
        for batch in batches:
            yield batch
            self._rows += batch.num_rows
            total = getattr(batches, "total", None)
            done = getattr(batches, "done", self._rows)
            if self._is_due(total if total is not None else total_rows):
                self._show(done, in_bytes=total is not None)

    def _is_wanted(self) -> bool:
        return _is_seen() if self._wanted is None else self._wanted

    def _is_due(self, total: int | None) -> bool:
        """Return whether the bar is shown, starting it if the work takes long."""
        if self._bar is None and (self._wanted or time.monotonic() - self._start > AFTER_SECONDS):
            self._begin(total)
        return self._bar is not None

    def _begin(self, total: int | None) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True),
        )  # fmt: skip
        self._task = self._bar.add_task(escape(self._label), total=total, figures="")
        self._bar.start()

    def _show(self, done: int, *, in_bytes: bool) -> None:
        rate = self._rows / max(1e-9, time.monotonic() - self._start)
        figures = f"{self._rows:,} rows, {rate:,.0f} rows/s"
        if in_bytes:
            figures += f", {done / 2**20:,.1f} MiB"
        self._bar.update(self._task, completed=done, figures=figures)


def _is_seen() -> bool:
    if _in_notebook():
        return find_spec("ipywidgets") is not None  # required for a moving bar there
    stderr = sys.stderr
    return stderr is not None and stderr.isatty()


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and "IPKernelApp" in running.config
