"""What things look like: text that reads no rows, HTML that escapes everything and never raises."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import indexlake as il
from indexlake import display

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def t(lake: il.Lake) -> il.Table:
    t = lake.create_table(
        "sales.orders", pa.schema({"id": pa.int64(), "city": pa.string()}), primary_key="id", defaults={"city": EVIL}
    )
    t.insert([{"id": n, "city": f"city {n}"} for n in range(25)])
    return t


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_statistics_name_only_what_is_there(lake: il.Lake, t: il.Table):
    assert str(t.stats()).splitlines()[-1] == "  0 blocks of 0 bytes"
    lake.pipeline(runner="threads").dump("sales.orders")
    t.update({"city": "Oslo"}, "id < 2")
    t.update({"city": "Lima"}, "id = 1")
    line = str(t.stats()).splitlines()[-1]
    assert re.fullmatch(r"  1 block of [\d,]+ bytes, 2 deleted rows in them, 1 superseded row in the hot store", line)


def test_a_lake_shows_its_tables_without_counting_rows(lake: il.Lake, t: il.Table, tmp_path: Path):
    assert repr(lake).startswith("<Lake ")
    assert str(tmp_path / "lake") in repr(lake)
    assert "sales.orders" in text_of(lake._repr_html_())
    lake.close()
    assert "closed" in text_of(lake._repr_html_())


def test_a_view_of_the_past_and_a_pipeline_name_their_lake(lake: il.Lake, t: il.Table, tmp_path: Path):
    place = tmp_path / "lake" / "catalog.sqlite"
    assert repr(lake.at(1)) == f"<Lake {place} at snapshot 1>"
    assert repr(lake.pipeline()) == f"<Pipeline of {place} on threads, or on Spark for more than 1,073,741,824 bytes>"
    assert re.fullmatch(rf"<Pipeline of {place} on \d+ threads>", repr(lake.pipeline(runner="threads")))


def test_a_job_shows_its_progress_in_words(lake: il.Lake, t: il.Table):
    lake.pipeline(runner="threads").dump("sales.orders")
    assert "1 of 1 task, 25 rows" in repr(lake.jobs())


def test_a_table_shows_its_columns_and_key_and_no_rows(lake: il.Lake, t: il.Table):
    assert repr(t) == "<Table sales.orders: id int64, city string, primary key (id)>"
    assert "at snapshot 1:" in repr(t.at(1))
    shown = text_of(t._repr_html_())
    assert "Table sales.orders" in shown
    assert "id int64 not null" in shown
    assert "city 1" not in shown
    lake.close()
    assert repr(t) == "<Table sales.orders>"
    assert "is closed" in text_of(t._repr_html_())


def test_the_text_of_a_scan_describes_it_and_runs_nothing(t: il.Table):
    scan = t.scan("nope = 1", columns=["id"], order_by=[("id", "desc")], limit=3, offset=2)
    assert (
        repr(scan) == "<Scan of sales.orders, where nope = 1, columns id, order by [('id', 'desc')], limit 3, offset 2>"
    )
    assert scan.snapshot_id is None


def test_the_html_of_a_scan_shows_its_first_rows_and_leaves_it_as_it_is(t: il.Table):
    scan = t.scan(order_by="id")
    shown = text_of(scan._repr_html_())
    assert "city 9" in shown
    assert "city 10" not in shown
    assert "The first 10 rows." in shown
    assert scan.snapshot_id is None
    t.insert({"id": -1, "city": "later"})
    assert scan.count() == 26
    assert "later" in text_of(t.scan(order_by="id", limit=2)._repr_html_())
    assert "The first" not in text_of(t.scan(limit=2)._repr_html_())


def test_the_html_of_a_scan_with_an_error_is_the_error(t: il.Table):
    shown = t.scan("nope = '<b>'")._repr_html_()
    assert "ExpressionError" in shown
    assert "<b>'" not in shown


def test_the_html_of_a_scan_for_update_locks_nothing(lake: il.Lake, t: il.Table):
    with lake.transaction() as tx:
        scan = tx.table("sales.orders").scan("id = 1", for_update=True)
        assert "city 1" not in scan._repr_html_()
        assert tx.write_set.empty


def test_explanations_results_and_statistics_show_themselves(lake: il.Lake, t: il.Table):
    assert "hot rows: 25" in text_of(t.scan().explain()._repr_html_())
    result = t.insert({"id": 100})
    assert f"snapshot {result.snapshot_id}" in text_of(result._repr_html_())
    assert "26 rows at snapshot" in t.stats()._repr_html_()
    with lake.transaction() as tx:
        assert "Not committed yet." in tx.table("sales.orders").insert({"id": 101})._repr_html_()
        tx.rollback()


def test_history_and_jobs_are_lists_that_print_as_tables(lake: il.Lake, t: il.Table):
    lake.pipeline().dump("sales.orders")
    history = t.history()
    assert isinstance(history, list)
    assert history[0].operation == "create table"
    assert repr(history).splitlines()[0].split() == ["snapshot_id", "committed_at", "operation", "summary"]
    assert "create table" in text_of(history._repr_html_())
    assert "create table" in text_of(history[0]._repr_html_())
    assert "dump" in repr(lake.jobs())
    assert "dump" in lake.jobs()._repr_html_()
    assert repr(display.Listing()) == "[]"
    assert history[1:] == list(history)[1:]


def test_names_and_data_are_escaped_everywhere(lake: il.Lake):
    name = f"main.{EVIL}"
    t = lake.create_table(name, pa.schema({EVIL: pa.string()}), defaults={EVIL: EVIL})
    result = t.insert([{EVIL: EVIL}, {EVIL: None}])
    lake.pipeline().dump(name)
    quoted = '"' + EVIL.replace('"', '""') + '"'
    shown = [
        lake._repr_html_(), t._repr_html_(), t.scan()._repr_html_(), t.scan(quoted + " = '<b>'")._repr_html_(),
        t.scan(EVIL)._repr_html_(), t.scan().explain()._repr_html_(), t.stats()._repr_html_(), result._repr_html_(),
        t.history()._repr_html_(), lake.jobs()._repr_html_(), display.html_text(EVIL),
        display.html_table([EVIL], [[EVIL]], caption=EVIL, note=EVIL), display.html_facts(EVIL, {EVIL: EVIL}),
        display.html_table(["a"], [[{EVIL: [EVIL]}]]), display.html_rows(pa.table({EVIL: [EVIL]})),
    ]  # fmt: skip
    for html in shown:
        assert "<script" not in html
        assert 'alert("x")' not in html
    assert sum("&lt;script&gt;" in html for html in shown) >= 12


def test_long_and_strange_values_are_cut_and_shown():
    assert display.cell("x" * 500) == "x" * 79 + "…"
    assert display.cell("two\nlines") == "two lines"
    assert display.cell(1234567) == "1,234,567"
    assert display.cell(True) == "True"
    assert display.cell(datetime(2024, 1, 1, tzinfo=UTC)) == "2024-01-01 00:00:00+00:00"
    far = pa.table({"t": pa.array([2**62], pa.timestamp("s"))})
    assert "t: timestamp[s]" in display.html_rows(far)
    many = display.html_table(["n"], ([n] for n in range(1000)))
    assert many.count("<tr>") == display.TABLE_ROWS + 1
    assert f"The first {display.TABLE_ROWS} rows." in many
    assert display.text_table(["n", "name"], [[1, "a"], [10, "b"]]).splitlines() == [
        " n  name",
        "──  ────",
        " 1  a",
        "10  b",
    ]
