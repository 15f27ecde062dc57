"""PostgreSQL is the second judge of constraints: the same statements are accepted and refused, with the same rows."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import indexlake as il

STATEMENTS = """
create table t (id int primary key, a int check (a > 0), b int not null default 1 + 1, c varchar unique, \
    check (a > b or b is null), constraint short check (length(c) < 5))
insert into t (id, a, c) values (1, 5, 'x')
insert into t values (2, null, 9, 'y')
insert into t values (3, 1, 2, null)
insert into t values (3, 3, 2, null)
insert into t values (4, 3, 2, null), (5, 0, 2, null)
insert into t values (4, 3, 2, 'x')
insert into t values (4, 3, 2, 'toolong')
insert into t values (4, 3, null, 'd')
insert into t values (4, 30, 2, 'd'), (5, 30, 2, 'e')
update t set a = a - 25 where id = 4
update t set a = a - 30 where id = 4
update t set c = 'e' where id = 4
update t set c = null
update t set b = a where id = 5
update t set b = default where id = 2
insert into t (id, a) values (5, 7) on conflict (id) do nothing
insert into t (id, a) values (5, 9) on conflict (id) do update set a = excluded.a
insert into t (id, a) values (5, 1) on conflict (id) do update set a = excluded.a
delete from t where id = 3
create table g (id int primary key, w int, h int, area int generated always as (w * h) stored, \
    big boolean generated always as (w > 10) stored, check (area < 1000))
insert into g values (1, 2, 3)
insert into g (id, w, h) values (2, 20, 10), (3, null, 1)
insert into g (id, w, h) values (4, 200, 10)
insert into g (id, w, h, area) values (4, 1, 1, 5)
update g set w = w + 1
update g set h = 500 where id = 2
update g set area = 7 where id = 1
update g set h = null where id = 1
insert into g (id, w) values (9, 11)
alter table g drop column w
create table x (id int, v int default 1, w varchar)
insert into x values (1, 1, 'a'), (2, null, 'b')
alter table x alter column v set default 5
insert into x (id) values (3)
alter table x alter column v drop default
insert into x (id) values (4)
alter table x alter column v set not null
update x set v = 0 where v is null
alter table x alter column v set not null
insert into x (id) values (5)
alter table x add column late int default 100
alter table x alter column late set default 200
insert into x (id, v) values (6, 1)
alter table x add constraint positive check (id > 0)
alter table x add constraint small check (id < 3)
alter table x add constraint one unique (w)
insert into x (id, v, w) values (-1, 1, 'q')
insert into x (id, v, w) values (7, 1, 'a')
alter table x alter column v drop not null
insert into x (id, w) values (8, 'n')
alter table x drop constraint positive
insert into x (id, v) values (-2, 1)
alter table x drop constraint nosuch
alter table x drop constraint if exists nosuch
alter table x rename column w to word
insert into x (id, word) values (9, 'a')
alter table x drop constraint one
insert into x (id, word) values (9, 'a')
create table k (a int, b int, c int)
insert into k values (1, 1, 1), (1, 2, null), (2, 1, 3)
alter table k add primary key (c)
alter table k add primary key (a)
insert into k values (1, 1, null)
delete from k where c is null
delete from k where b = 5
alter table k add constraint k_key primary key (a, b)
insert into k values (1, 1, 9)
insert into k (a, c) values (7, 9)
insert into k values (1, 7, 9) on conflict (a, b) do update set c = 0
insert into k values (1, 7, 9) on conflict (a, b) do update set c = 0
alter table k add primary key (a)
create sequence s start 5 increment 3
create table q (id int default nextval('s') primary key, v int check (v > 0))
insert into q (v) values (1)
insert into q (v) values (-1)
insert into q (v) values (2), (3)
insert into q (v) select v + 10 from q where v = 2
insert into q values (default, 4)
insert into q values (nextval('s'), 5)
update q set id = nextval('s') where v = 5
drop sequence s
alter table q alter column id drop default
drop sequence s
insert into q (v) values (9)
create table bad (a int check (nosuch > 1))
create table bad (a int, b int generated always as (nosuch) stored)
create table bad (a int, b double precision generated always as (random()) stored)
""".strip().splitlines()


@pytest.fixture
def judge(postgres_dsn: str) -> Any:
    import psycopg

    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        schema = f"judge_{uuid.uuid4().hex[:12]}"
        connection.execute(f'create schema "{schema}"')
        connection.execute(f'set search_path to "{schema}"')
        yield connection


@pytest.mark.parametrize("dumped", [False, True])
def test_what_postgresql_accepts_we_accept_with_the_same_rows(lake: il.Lake, judge: Any, dumped: bool) -> None:
    import psycopg

    refused = 0
    for text in STATEMENTS:
        theirs = ours = None
        try:
            judge.execute(text)
        except psycopg.Error as error:
            theirs = error
        try:
            lake.sql(text)
        except il.IndexLakeError as error:
            ours = error
        assert (theirs is None) == (ours is None), f"{text}\ntheirs: {theirs}\nours: {ours}"
        refused += ours is not None
        if dumped and not text.startswith(("insert", "create")):
            for name in lake.tables():
                lake.pipeline(runner="threads").dump(name)
        for name in lake.tables():
            table = name.removeprefix("main.")
            key = lambda row: tuple((v is None, v) for v in row)  # noqa: E731
            wanted = sorted(judge.execute(f"select * from {table}").fetchall(), key=key)
            assert sorted(lake.sql(f"select * from {table}").fetchall(), key=key) == wanted, text
    assert 20 < refused < len(STATEMENTS) - 20
