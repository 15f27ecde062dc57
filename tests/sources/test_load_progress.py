"""The progress bar: only when it takes long and somebody sees it, or when it is asked for."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import redirect_stderr

import pyarrow as pa
import pytest

import indexlake as il
from indexlake.display import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def slow(count: int, seconds: float) -> Iterator[pa.RecordBatch]:
    for n in range(count):
        time.sleep(seconds)
        yield pa.record_batch({"id": pa.array([n])})


@pytest.fixture
def numbers(lake: il.Lake) -> il.Table:
    return lake.create_table("[bold]numbers", pa.schema({"id": pa.int64()}))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    return Terminal()


def test_nothing_is_shown_without_a_terminal(numbers: il.Table, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    numbers.insert(slow(5, 0.01))
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_shown_on_a_terminal_after_a_while(numbers: il.Table, screen: Terminal):
    with redirect_stderr(screen):
        numbers.insert(slow(12, 0.02))
    assert "loading main.[bold]numbers" in screen.getvalue()
    assert "12 rows" in screen.getvalue()
    assert "rows/s" in screen.getvalue()


def test_quick_work_shows_nothing(numbers: il.Table, screen: Terminal):
    with redirect_stderr(screen):
        numbers.insert([{"id": 1}])
        numbers.insert(pa.table({"id": [1]}))
    assert screen.getvalue() == ""


def test_it_can_be_switched_off_and_on(numbers: il.Table, screen: Terminal, write):
    path = write("a.csv", "id\n1\n2\n")
    with redirect_stderr(screen):
        numbers.insert(slow(6, 0.02), progress=False)
        assert screen.getvalue() == ""
        numbers.insert(path, progress=True)
    assert "2 rows" in screen.getvalue()
    assert "MiB" in screen.getvalue()


def test_an_error_ends_the_bar(numbers: il.Table, screen: Terminal, write):
    with redirect_stderr(screen), pytest.raises(il.ConstraintError):
        numbers.insert([write("a.csv", "id\n1\n"), write("b.csv", "id\nx\n")], progress=True)
    assert "1 rows" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[?25h")  # the cursor is back
