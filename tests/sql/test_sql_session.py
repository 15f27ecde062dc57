"""Several statements in one text, prepared statements with parameters, and settings: what is remembered, and where."""

from __future__ import annotations

import threading

import duckdb
import pytest

import indexlake as il
from indexlake.sql.parse.refused_calls import REFUSED


def test_every_statement_of_a_text_has_its_result(lake: il.Lake) -> None:
    last = lake.sql("""
        create table t (id int);
        insert into t values (1), (2);
        select id from t order by id;
        delete from t where id = 1 returning id;
        select count(*) from t
    """)
    created, inserted, selected, deleted, counted = last.results
    assert counted is last
    assert (created.rows, inserted.rows, last.scalar()) == (0, 2, 1)
    assert selected.fetchall() == [(1,), (2,)]  # as it was then
    assert deleted.fetchall() == [(1,)]
    assert lake.sql("select 1").results[0].scalar() == 1


def test_results_inside_a_transaction_show_what_it_had_written_by_then(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    last = lake.sql("begin; insert into t values (1); select count(*) from t; insert into t values (2); commit")
    assert last.results[2].scalar() == 1
    with lake.transaction() as tx:
        assert tx.sql("insert into t values (3); select count(*) from t").scalar() == 3


def test_a_prepared_statement_takes_the_parameters_of_the_call(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, v varchar); prepare ins as insert into t values ($1, $2)")
    for n in range(3):
        assert lake.sql("execute ins($1, $2)", [n, f"v{n}"]).inserted == 1
    lake.sql("execute ins(?, 'x')", [7])
    lake.sql("prepare one as select v from t where id = $id")
    assert lake.sql("execute one(id := $key)", {"key": 2}).scalar() == "v2"
    before = lake.snapshot_id
    lake.sql("execute ins(8, 'later')")
    assert lake.sql("execute one(id := 8)", at=before).fetchall() == []
    with lake.transaction() as tx:
        tx.sql("execute ins(9, 'own')")
        assert tx.sql("execute one(id := 9)").scalar() == "own"
        tx.rollback()
    assert lake.sql("execute one(id := 9)").fetchall() == []


def test_a_text_may_prepare_and_execute(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    last = lake.sql("prepare p as insert into t values (?), (?); execute p(1, 2); execute p(?, ?)", [3, 4])
    assert [r.rows for r in last.results] == [0, 2, 2]
    assert lake.sql("prepare q as select id from t where id > ?; execute q(3)").fetchall() == [(4,)]


def test_a_prepared_change_is_a_change(lake: il.Lake) -> None:
    lake.sql("create table t (id int); prepare p as insert into t values ($1)")
    snapshot = lake.snapshot_id
    with pytest.raises(il.OwnershipError, match="read-only"):
        lake.sql("execute p(1)", at=snapshot)
    lake.sql("execute p(1)", token="once")
    lake.sql("execute p(1)", token="once")
    assert lake.sql("select count(*) from t").scalar() == 1


def test_a_prepared_statement_sees_a_table_that_has_changed(lake: il.Lake) -> None:
    lake.sql("create table t (id int); insert into t values (1); prepare p as select * from t")
    lake.sql("alter table t add column v varchar default 'new'")
    assert lake.sql("execute p").fetchall() == [(1, "new")]
    lake.sql("drop table t")
    with pytest.raises(il.NotFoundError):
        lake.sql("execute p")


def test_errors_show_where_they_are_in_the_prepared_text(lake: il.Lake) -> None:
    lake.sql("create table t (id int)")
    with pytest.raises(il.ExpressionError) as error:
        lake.sql("prepare p as select id,\n nosuch from t where id = $1")
    assert "line 2:  nosuch from t" in str(error.value)
    lake.sql("prepare p as select id,\n (id || 'x')::int from t where id = $1; insert into t values (1)")
    with pytest.raises(il.ExpressionError) as error:
        lake.sql("execute p(1)").fetchall()
    with pytest.raises(il.ExpressionError, match=r"has the parameters \$1; 2 given"):
        lake.sql("execute p(1, 2)")


def test_threads_share_prepared_statements(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key); prepare p as insert into t values ($1)")
    workers = [threading.Thread(target=lake.sql, args=("execute p($1)", [n])) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert lake.sql("select sum(id) from t").scalar() == 15


def test_a_setting_holds_for_the_queries_of_this_lake(lake: il.Lake) -> None:
    before = lake.sql("select current_setting('threads'), current_setting('memory_limit')").fetchone()
    lake.sql("select 1 as begun").fetchall()
    lake.sql("set threads = 1; set explain_output = 'optimized_only'; set memory_limit = '300MB'")
    assert lake.sql("select current_setting('threads'), current_setting('explain_output')").fetchone() == (
        1,
        "optimized_only",
    )
    lake.sql("reset threads; reset memory_limit; reset explain_output")
    after = lake.sql("select current_setting('threads'), current_setting('memory_limit')").fetchone()
    assert after == before
    assert lake.sql("select current_setting('explain_output')").scalar() == "PHYSICAL_ONLY"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("attach 'x.db' as x", "il.connect"),
        ("install httpfs", "Extensions cannot be installed"),
        ("load httpfs", "extension"),
        ("set temp_directory = '/tmp'", "cannot be changed"),
        ("create sequence", "the name of the sequence"),
        ("set nosuch = 1", "'nosuch'"),
    ],
)
def test_a_refusal_says_what_to_do_instead_and_where(lake: il.Lake, text: str, instead: str) -> None:
    with pytest.raises(il.ExpressionError, match=instead) as error:
        lake.sql(f"select 1;\n{text}")
    assert "line 2: " in str(error.value)


REFUSED_CALLS = [
    "call enable_logging(storage='file', storage_path='anything')",
    "from enable_logging(level='debug')",
    'select * from t, "Enable_Logging" ()',
    "from system.main.enable_logging()",
    "from query('from enable_logging()')",
    "from query('from enable' || '_logging()')",
    "from query($$from query('from enable_logging()')$$)",
    "set threads = (select count(*) from query('from enable_logging()'))",
    "create macro m() as table from enable_logging()",
    "create view v as from disable_logging()",
    "prepare p as call truncate_duckdb_logs()",
    "from by_text('from enable_logging()')",
    "from json_execute_serialized_sql(json_serialize_sql('from enable_logging()'))",
    "call enable_profiling(format='json', save_location='anything')",
    "call disable_profiling()",
    "call force_checkpoint()",
    "from checkpoint()",
    "from duckdb_logs_parsed('QueryLog')",
    "from query_table($1)",
]


def test_functions_that_change_the_engine_are_refused(lake: il.Lake) -> None:
    lake.sql("create table t (a int); insert into t values (1); create macro by_text(f) as table from query(f)")
    for text in REFUSED_CALLS:
        with pytest.raises(il.ExpressionError, match=r"cannot be called here|as (one )?constants?"):
            lake.sql(text, ["t"] if "$1" in text else None)
    assert lake.sql("select 42, count(*) from t").fetchall() == [(42, 1)]
    assert lake.sql("from by_text('select 5')").scalar() == 5
    lake.sql("create table checkpoint (a int); insert into checkpoint (a) values (3)")
    assert lake.sql("with query(a) as (from checkpoint) select a from query").scalar() == 3


READING = {
    "duckdb_approx_database_count", "duckdb_columns", "duckdb_connection_count", "duckdb_constraints",
    "duckdb_coordinate_systems", "duckdb_databases", "duckdb_dependencies", "duckdb_extensions",
    "duckdb_external_file_cache", "duckdb_functions", "duckdb_indexes", "duckdb_keywords", "duckdb_memory",
    "duckdb_optimizers", "duckdb_prepared_statements", "duckdb_schemas", "duckdb_secret_types", "duckdb_secrets",
    "duckdb_sequences", "duckdb_settings", "duckdb_table_sample", "duckdb_tables", "duckdb_temporary_files",
    "duckdb_types", "duckdb_variables", "duckdb_views", "generate_series", "glob", "histogram", "histogram_values",
    "icu_calendar_names", "json_each", "json_tree", "parquet_bloom_probe", "parquet_file_metadata",
    "parquet_full_metadata", "parquet_kv_metadata", "parquet_metadata", "parquet_scan", "parquet_schema",
    "pg_timezone_names", "pragma_collations", "pragma_database_size", "pragma_metadata_info", "pragma_platform",
    "pragma_show", "pragma_storage_info", "pragma_table_info", "pragma_user_agent", "pragma_version", "query",
    "query_table", "range", "read_blob", "read_csv", "read_csv_auto", "read_json", "read_json_auto",
    "read_json_objects", "read_json_objects_auto", "read_ndjson", "read_ndjson_auto", "read_ndjson_objects",
    "read_parquet", "read_text", "repeat", "repeat_row", "sniff_csv", "summary", "test_all_types",
    "test_vector_types", "unnest", "which_secret",
}  # fmt: skip


def test_every_table_function_of_duckdb_is_known_to_read_only_or_is_refused() -> None:
    with duckdb.connect() as plain:
        found = plain.execute(
            "select distinct function_name from duckdb_functions() where function_type in ('table', 'table_macro')"
        ).fetchall()
    unknown = {name for (name,) in found} - READING - REFUSED.keys()
    assert not unknown, "decide whether a text may call them"


def test_no_setting_can_make_a_lake_unusable(lake: il.Lake) -> None:
    for word in ("set", "set global", "pragma"):
        with pytest.raises(il.ExpressionError, match="cannot be changed"):
            lake.sql(f"{word} max_expression_depth = 1")
        lake.sql(f"{word} debug_verify_vector = 'dictionary_operator'")  # which would end the process
        assert lake.sql("select current_setting('debug_verify_vector')").scalar() == "NONE"
    for name in ("progress_bar_time = -1", "streaming_buffer_size = '0B'"):
        with pytest.raises(il.ExpressionError, match="cannot be changed"):
            lake.sql(f"set {name}")
    shown = "select current_setting('memory_limit')"
    before = lake.sql(shown).scalar()
    for name in ("memory_limit", "max_memory", "Memory_Limit"):
        for value in ("'0B'", "'1e-9GB'", "'.5 kb'", "'1000 bytes'", "'15MB'"):
            with pytest.raises(il.ExpressionError, match="at least 16MB"):
                lake.sql(f"set {name} = {value}")
        lake.sql(f"set {name} = '20MB'; set threads = 1")
        assert lake.sql(shown).scalar() != before
        lake.sql(f"reset {name}; reset worker_threads")
        assert lake.sql(shown).scalar() == before
    assert lake.sql("select sum(i) from range(1000) r(i)").scalar() == 499_500


def test_settings_that_change_a_meaning_reach_every_way_of_answering(lake: il.Lake) -> None:
    lake.sql("create table t (k varchar primary key, a int); insert into t values ('x', 1), ('y', null)")
    texts = "select a from t where k = 'X'", "select k from t order by a limit 1", "select a from t where k = 'x'"
    for _ in range(2):  # the second time by the short cut
        assert [lake.sql(text).fetchall() for text in texts] == [[], [("x",)], [(1,)]]
    lake.sql("set default_collation = 'nocase'; set default_null_order = 'nulls_first'")
    assert [lake.sql(text).fetchall() for text in texts] == [[(1,)], [("y",)], [(1,)]]
    with pytest.raises(il.ExpressionError, match="Spark does not apply default_collation, default_null_order"):
        lake.sql("select a from t", engine="spark")
    lake.sql("reset default_collation; reset default_null_order")
    assert [lake.sql(text).fetchall() for text in texts] == [[], [("x",)], [(1,)]]


def test_a_setting_that_is_refused_changes_nothing(lake: il.Lake) -> None:
    lake.sql("create table t (k int primary key); insert into t values (1)")
    with pytest.raises(il.ExpressionError):
        lake.sql("set default_order = 'sideways'")
    assert "answered by the scan alone" in str(lake.sql("explain select k from t order by k limit 1"))


def test_times_are_stored_in_utc_whatever_zone_is_set(lake: il.Lake) -> None:
    lake.sql("set timezone = 'Asia/Tokyo'; create table t (a timestamptz)")
    lake.sql("insert into t values ('2024-01-01 00:00:00')")
    assert str(lake.table("t").schema.field("a").type) == "timestamp[us, tz=UTC]"
    assert lake.sql("select a::varchar from t").scalar() == "2024-01-01 00:00:00+09"
    lake.sql("reset timezone")
    assert lake.sql("select a::varchar from t").scalar() == "2023-12-31 15:00:00+00"


def test_definitions_are_asked_for_while_others_define_and_write(lake: il.Lake) -> None:
    problems: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for n in range(3):
                name = f"t{own}_{n}"
                lake.sql(f"create table {name} (a int primary key, b int default 3 check (b > 0), c as (a + b))")
                lake.sql(f"prepare p_{name} as select * from {name} where a = $1")
                lake.sql(f"insert into {name} (a) values (1)")
                assert lake.sql(f"describe select * from {name}").count() == 3
                assert lake.sql(f"select count(*) from duckdb_columns() where table_name = '{name}'").scalar() == 3
        except BaseException as error:
            problems.append(error)

    workers = [threading.Thread(target=work, args=(own,)) for own in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []


def test_a_statement_that_repeats_a_key_ends_its_transaction(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key, n int unique); insert into t values (1, 1)")
    for text in ("insert into t values (1, 2)", "insert into t values (3, 1)", "update t set n = 2"):
        with lake.transaction() as tx:
            tx.sql("insert into t values (2, 2)")
            with pytest.raises(il.DuplicateKeyError):
                tx.sql(text)
            with pytest.raises(il.OwnershipError, match="This transaction is failed"):
                tx.sql("select 1")
    assert lake.sql("from t").fetchall() == [(1, 1)]


def test_keys_that_another_transaction_has_taken_are_refused_at_once(lake: il.Lake) -> None:
    lake.sql("create table t (id int primary key)")
    with lake.transaction() as tx:
        tx.sql("insert into t values (1)")
        lake.sql("insert into t values (2)")
        tx.sql("insert into t values (3)")
        with pytest.raises(il.DuplicateKeyError):
            tx.sql("insert into t values (2)")


def test_a_merge_whose_rows_another_transaction_has_added_is_a_conflict(lake: il.Lake) -> None:
    lake.sql("create table t (a int, id int, primary key (a, id))")
    tx = lake.transaction()
    lake.sql("insert into t values (2, 5)")
    tx.sql("merge into t using (values (2, 5)) s(a, id) on t.a = s.a and t.id = s.id when not matched then insert")
    with pytest.raises(il.ConflictError):
        tx.commit()
    assert lake.sql("from t").fetchall() == [(2, 5)]


@pytest.mark.parametrize("count", [1, 100])
def test_an_index_that_the_transaction_drops_holds_no_longer(lake: il.Lake, count: int) -> None:
    lake.sql(
        "create table t (id int primary key, u int); create unique index by_u on t (u); insert into t values (1, 1)"
    )
    with lake.transaction() as tx:
        tx.sql("insert into t values (2, 2)")
        tx.sql("drop index by_u")
        tx.sql("insert into t values (3, 1), (4, 2)")
        tx.sql("insert into t select range + 10, 1 from range($1)", [count])
    assert lake.sql("select count(*) from t").scalar() == 4 + count
