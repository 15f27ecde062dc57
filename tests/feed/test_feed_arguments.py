"""What can be asked of a feed, what comes back, and which questions are errors."""

from __future__ import annotations

import pickle
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import indexlake as il
from indexlake.schema import ROW_ID


@pytest.fixture
def table(local_lake: il.Lake, new_table: Any) -> il.Table:
    """Two inserts, an update, a delete."""
    table: il.Table = new_table(local_lake)
    table.insert([{"id": 1, "v": 10, "s": "a"}, {"id": 2, "v": 20, "s": "b"}])
    table.insert({"id": 3, "v": 30, "s": None})
    table.update({"v": 11}, "id = 1")
    table.delete("id = 2")
    return table


def first(table: il.Table) -> int:
    return table.history()[0].snapshot_id


def test_columns_are_those_of_the_table_then_the_kind_of_change_and_its_snapshot(table: il.Table) -> None:
    feed = table.changes(first(table))
    assert feed.schema.names == ["id", "v", "s", "_change_type", "_snapshot_id"]
    assert feed.schema.field("_change_type").type == pa.string()
    assert feed.schema.field("_snapshot_id").type == pa.int64()
    assert feed.to_arrow().schema == feed.schema
    with_id = table.changes(first(table), with_row_id=True)
    assert with_id.schema.names == [*feed.schema.names, ROW_ID]
    assert with_id.to_arrow().drop_columns(ROW_ID) == feed.to_arrow()


def test_a_feed_goes_everywhere_that_a_scan_goes(table: il.Table) -> None:
    feed = table.changes(first(table))
    rows = feed.to_pylist()
    assert len(rows) == 6
    assert list(feed) == rows
    assert pa.Table.from_batches(feed.to_batches()).to_pylist() == rows
    assert pa.table(feed).to_pylist() == rows
    assert feed.to_polars().to_dicts() == rows
    assert feed.to_pandas()["_change_type"].tolist() == [r["_change_type"] for r in rows]
    assert feed.to_duckdb().count("*").fetchall() == [(6,)]
    found = duckdb.sql("select _change_type, count(*) from feed group by 1 order by 1").fetchall()
    assert found == [("delete", 1), ("insert", 3), ("update_postimage", 1), ("update_preimage", 1)]
    assert feed.count() == 6
    assert pa.schema(feed) == feed.schema


def test_a_feed_is_fixed_when_it_is_made(table: il.Table) -> None:
    feed = table.changes(first(table))
    rows = feed.to_pylist()
    table.insert({"id": 9, "v": 0, "s": ""})
    assert feed.to_pylist() == rows
    following = table.changes(feed.until)
    assert following.since == feed.until
    assert [(c["_change_type"], c["id"]) for c in following] == [("insert", 9)]
    assert table.changes(following.until).to_pylist() == []
    assert table.changes(following.until).to_arrow().schema == feed.schema


def test_columns_can_be_chosen(table: il.Table) -> None:
    everything = table.changes(first(table), with_row_id=True).to_arrow()
    for columns in (["s", "ID"], [], ["v", ROW_ID], "v", ["v", "_change_type"]):
        found = table.changes(first(table), columns=columns).to_arrow()
        named = [columns] if isinstance(columns, str) else columns
        wanted = [{"ID": "id"}.get(c, c) for c in named if not c.startswith("_")]
        wanted += ["_change_type", "_snapshot_id", *([ROW_ID] if ROW_ID in named else [])]
        assert found == everything.select(wanted)
    with pytest.raises(il.SchemaError, match="no column 'w'"):
        table.changes(0, columns=["w"])
    with pytest.raises(il.SchemaError, match="twice"):
        table.changes(0, columns=["v", "V"])


def test_a_predicate_chooses_among_changes_and_may_name_their_kind(local_lake: il.Lake, table: il.Table) -> None:
    def ids(where: str, **options: Any) -> list[int]:
        return table.changes(first(table), where=where, **options).to_arrow().column("id").to_pylist()

    assert ids("id = 1") == [1, 1, 1]
    assert ids("v > $v", params={"v": 10}) == [2, 3, 1, 2]
    assert ids("_change_type = 'delete'") == [2]
    assert ids("_change_type like 'update%' and v = 11") == [1]
    assert ids(f"_snapshot_id > {local_lake.snapshot_id - 1}") == [2]
    assert ids(f"{ROW_ID} >= 0", columns=["id"]) == [1, 2, 3, 1, 1, 2]
    assert ids("s is null", columns=["id"]) == [3]
    assert table.changes(first(table), where="s is null").count() == 1
    with pytest.raises(il.ExpressionError):
        table.changes(first(table), where="nothing = 1")
    with pytest.raises(il.ExpressionError):
        table.changes(first(table), where="v + 1")


def test_a_range_is_open_below_and_closed_above(table: il.Table) -> None:
    commits = [s.snapshot_id for s in table.history()]
    assert table.changes(commits[1], commits[2]).to_arrow().column("id").to_pylist() == [3]
    assert table.changes(commits[2], commits[2]).count() == 0
    assert table.changes(commits[2], until=commits[3]).until == commits[3]


def test_a_feed_from_before_the_table_begins_with_its_creation(table: il.Table) -> None:
    feed = table.changes(0)
    assert feed.since == first(table) - 1
    assert feed.to_pylist() == table.changes(first(table)).to_pylist()
    assert table.changes(datetime(1999, 1, 1, tzinfo=UTC)).count() == 6


def test_moments_name_snapshots_as_at_does(local_lake: il.Lake, table: il.Table) -> None:
    times = {s.snapshot_id: s.committed_at for s in table.history()}
    commits = list(times)
    for snapshot, moment in times.items():  # to the microsecond
        assert table.changes(moment).since >= snapshot
    feed = table.changes(times[commits[1]], times[commits[3]])
    assert feed.since == table.at(time=times[commits[1]])._snapshot
    assert feed.until == table.at(time=times[commits[3]])._snapshot
    elsewhere = times[commits[1]].astimezone(timezone(timedelta(hours=-7)))
    assert table.changes(elsewhere).since == feed.since
    assert table.changes(datetime.now(UTC) + timedelta(days=1)).count() == 0
    for wrong in (datetime(2026, 1, 1), "1", 1.0, True, -1, None):
        with pytest.raises(il.SchemaError, match=r"since .*a datetime with a time zone"):
            table.changes(wrong)  # type: ignore[arg-type]
    with pytest.raises(il.SchemaError, match=r"until .*a datetime with a time zone"):
        table.changes(0, datetime(2026, 1, 1))


def test_ranges_that_do_not_exist_are_errors(local_lake: il.Lake, table: il.Table, new_table: Any) -> None:
    last = local_lake.snapshot_id
    with pytest.raises(il.NotFoundError, match=f"no snapshot {last + 1} yet; the newest is {last}"):
        table.changes(last + 1)
    with pytest.raises(il.NotFoundError, match=f"no snapshot {last + 1} yet"):
        table.changes(0, last + 1)
    with pytest.raises(il.SchemaError, match="since is later than until"):
        table.changes(last, last - 1)
    young = new_table(local_lake)
    with pytest.raises(il.NotFoundError, match="was created in snapshot"):
        young.changes(0, last)
    with local_lake.transaction() as tx, pytest.raises(il.NotFoundError, match="was created in snapshot"):
        tx.table(young.name).changes(0, last)


def test_a_dropped_table_has_a_feed_up_to_its_drop(local_lake: il.Lake, table: il.Table) -> None:
    feed, last = table.changes(0), local_lake.snapshot_id
    rows = feed.to_pylist()
    local_lake.drop_table(table.name)
    assert feed.to_pylist() == rows
    assert table.changes(0, last).to_pylist() == rows
    assert local_lake.at(last).table(table.name).changes(0).to_pylist() == rows
    with pytest.raises(il.NotFoundError, match="was dropped"):
        table.changes(0)


def test_a_view_of_the_past_ends_where_it_is(local_lake: il.Lake, table: il.Table) -> None:
    commits = [s.snapshot_id for s in table.history()]
    view = table.at(commits[2])
    assert view.changes(0).until == commits[2]
    assert view.changes(0).to_pylist() == table.changes(0, commits[2]).to_pylist()
    assert view.changes(0, commits[1]).until == commits[1]
    with pytest.raises(il.NotFoundError, match=f"until={commits[3]}"):
        view.changes(0, commits[3])
    with pytest.raises(il.SchemaError, match="later than until"):
        view.changes(commits[3])


def test_a_transaction_sees_the_changes_of_what_was_committed_when_it_began(
    local_lake: il.Lake, table: il.Table
) -> None:
    with local_lake.transaction() as tx:
        inside = tx.table(table.name)
        inside.insert({"id": 50, "v": 0, "s": ""})
        table.insert({"id": 60, "v": 0, "s": ""})
        feed = inside.changes(0)
        assert feed.until == tx.snapshot_id
        assert feed.to_pylist() == table.changes(0, tx.snapshot_id).to_pylist()
        with pytest.raises(il.NotFoundError, match="until="):
            inside.changes(0, local_lake.snapshot_id)
    assert [c["id"] for c in table.changes(feed.until)] == [60, 50]


def test_a_column_with_a_name_of_the_feed_can_be_left_out(local_lake: il.Lake, new_table: Any) -> None:
    schema = pa.schema({"id": pa.int64(), "_Change_Type": pa.string()})
    table = new_table(local_lake, schema)
    table.insert({"id": 1, "_Change_Type": "mine"})
    with pytest.raises(il.SchemaError, match=r"'_Change_Type'.*columns="):
        table.changes(0)
    assert [c["id"] for c in table.changes(0, columns=["id"])] == [1]
    assert table.changes(0, columns=["id"], where="_change_type = 'insert'").count() == 1


def test_names_in_quotes_and_in_another_case_are_found(local_lake: il.Lake, new_table: Any) -> None:
    schema = pa.schema({'a "b".c': pa.int64(), "Straße": pa.string()})
    table = new_table(local_lake, schema, 'a "b".c')
    table.insert({'a "b".c': 1, "Straße": "x"})
    found = table.changes(0, where='"A ""B"".C" = 1', columns=["straße"]).to_pylist()
    assert [c["Straße"] for c in found] == ["x"]


def test_an_empty_table_has_an_empty_feed(local_lake: il.Lake, new_table: Any) -> None:
    table = new_table(local_lake)
    assert table.changes(0).to_pylist() == []
    assert table.changes(0).count() == 0
    assert table.changes(0).to_arrow().schema.names[-2:] == ["_change_type", "_snapshot_id"]
    table.truncate()
    local_lake.pipeline().dump(table.name)
    assert table.changes(0).to_pylist() == []


def test_it_says_what_it_is(table: il.Table) -> None:
    feed = table.changes(0, where="id > 1", columns=["id"])
    assert repr(feed) == (
        f"<Changes of {table.name} after snapshot {feed.since} up to {feed.until}, where id > 1, columns id>"
    )
    html = feed._repr_html_()
    assert "_change_type" in html
    assert "id &gt; 1" in html
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(feed)


def test_a_feed_that_is_read_slowly_is_pinned_where_it_begins(local_lake: il.Lake, table: il.Table) -> None:
    from indexlake.pipeline import maintenance

    since = table.history()[1].snapshot_id
    stream = table.changes(since).to_batches()
    next(stream)
    (pin,) = [pin for pin in local_lake._pins.held if pin.snapshot == since]
    pin.started -= maintenance.PIN_AFTER + 1
    assert min(local_lake._maintenance._held_snapshots()) == since
    assert list(stream) == []
    assert pin not in local_lake._pins.held


def test_jobs_that_run_while_a_feed_is_read_change_nothing(local_lake: il.Lake, new_table: Any) -> None:
    table = new_table(local_lake, block_row_count=50)
    for n in range(10):
        table.insert([{"id": n * 100 + i, "v": i, "s": "x"} for i in range(30)])
        table.update({"v": -1}, f"id % 100 = 3 and id / 100 < {n}")
    wanted = table.changes(0).to_pylist()
    stream = table.changes(0).to_batches()
    found = next(stream).to_pylist()
    local_lake.pipeline().dump(table.name)
    table.truncate()
    local_lake.pipeline().dump(table.name)
    found += [row for batch in stream for row in batch.to_pylist()]
    assert found == wanted


def test_one_feed_may_be_read_by_several_threads(table: il.Table) -> None:
    feed = table.changes(0)
    wanted, results = feed.to_pylist(), []
    threads = [threading.Thread(target=lambda: results.append(feed.to_pylist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 4
