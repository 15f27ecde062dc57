"""Records of the redo log: what is written is read, and what is damaged is not."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap, BitMap64

import indexlake as il
from indexlake.hot.memory import record
from indexlake.hot.memory.record import Change, Commit, commit_of, is_evidence, pack, parts

_AT = 1_700_000_000_000_000
_VALUES = [0, 1, -1, 2**63 - 1, -(2**63), None, b"", b"text", bytes(range(256)), b"x" * 100_000]


def _commit(number: int = 7, **changes: Any) -> Commit:
    rows = [(number * 10 + n, (n, value)) for n, value in enumerate(_VALUES)]
    of_table = Change(**{"columns": ("f3", "f12"), "rows": rows, **changes})
    return Commit(
        number, _AT, "insert", '{"rows": 10}', "commit", "token", {"rows": 10, "snapshot_id": number}, {5: of_table}
    )


def _read(data: bytes) -> list[Any]:
    return [content for content, _ in parts(memoryview(data))]


def test_every_value_row_id_and_field_comes_back() -> None:
    (content,) = _read(pack(_commit(), 6))
    assert content[:8] == (
        7, _AT, "insert", '{"rows": 10}', "commit", "token", {"rows": 10, "snapshot_id": 7}, 6
    )  # fmt: skip
    ((table_id, closed, deleted, ids, row_ids, columns),) = content[8]
    assert (table_id, closed, deleted, ids) == (5, None, (), (3, 12))
    assert row_ids == tuple(range(70, 80))
    assert [list(column) for column in columns] == [list(range(10)), _VALUES]


@pytest.mark.parametrize("count", [1, 64, 65, 100_000])
def test_closed_rows_and_deleted_positions_come_back(count: int) -> None:
    closed = BitMap64(range(2**40, 2**40 + 3 * count, 3))
    deleted = {4: BitMap([1, 5]), 9: BitMap(range(1000))}
    commit = commit_of(_read(pack(_commit(closed=closed, deleted=deleted), 6))[0])
    assert (commit.tables[5].closed, commit.tables[5].deleted) == (closed, deleted)
    assert (commit.number, commit.token, commit.result) == (7, "token", {"rows": 10, "snapshot_id": 7})


def test_a_table_without_a_change_is_not_recorded() -> None:
    commit = Commit(7, _AT, "insert", "{}", tables={5: Change(locked=BitMap64([1]))})
    assert _read(pack(commit, 6))[0][8] == ()


def test_reading_ends_at_a_record_that_is_cut_or_changed_anywhere() -> None:
    first, second = (pack(Commit(n, _AT, "insert", "{}", tables={}), n - 1) for n in (7, 8))
    for cut in range(len(second)):
        assert [content[0] for content in _read(first + second[:cut])] == [7]
    for at in range(len(second)):
        changed = bytearray(second)
        changed[at] ^= 1
        assert [content[0] for content in _read(first + bytes(changed) + first)] == [7]


@pytest.mark.parametrize("last", [7, 100, 40_000, 2**20, 2**40])
def test_a_record_after_a_damaged_one_is_evidence_if_it_knew_that_one_to_be_durable(last: int) -> None:
    damaged = b"\x99\x07\xcf" * 30  # looks like records, and is none
    later = pack(Commit(last + 2, _AT, "insert", "{}", tables={}), last + 1)
    for ahead in (0, 1, 11, 12, 200):
        data = memoryview(damaged + bytes(ahead) + later)
        assert is_evidence(data, 0, last)
        assert not is_evidence(data, 0, last + 1), "the same group: nothing of it was synced"
        assert not is_evidence(data[:-1], 0, last)


def test_a_commit_that_is_too_large_for_the_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MOST_BYTES", 100_000)
    with pytest.raises(il.StorageError, match="too large for the redo log"):
        pack(_commit(), 6)
