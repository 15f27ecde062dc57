"""From a query's text to a query whose scans are planned, all of them in one read transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from indexlake.snapshots.reading import Reading
from indexlake.snapshots.time_travel import snapshot_number
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.statement import Query
from indexlake.sql.parse.table_calls import written_out
from indexlake.sql.parse.token_reader import TableName
from indexlake.sql.plan.at_clause import At
from indexlake.sql.plan.own_names import of_draft
from indexlake.sql.plan.plain_select import plain_select
from indexlake.sql.plan.query import ParsedQuery
from indexlake.sql.plan.query_tables import TEMPORARY, parse_query
from indexlake.sql.plan.snapshot import Viewpoint, ViewsChanged, newest_snapshot, read_together
from indexlake.sql.plan.table_plan import Choice, plan_point, plan_tables
from indexlake.sql.plan.table_references import analyse
from indexlake.sql.plan.views import MAX_DEPTH, View, ViewsNamed, expanded, too_deep
from indexlake.sql.run.definitions_in_duckdb import answers, described
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.planned_query import PlannedQuery
from indexlake.sql.run.scan_answers import point_answer, scan_answer
from indexlake.sql.run.searches import WantedSearch
from indexlake.sql.run.sequence_functions import check_numbers, draft_with_sequences
from indexlake.sql.run.staged_files import StagingFolder, with_local_files


def plan_query(
    engine: Engine,
    view: Viewpoint,
    query: Query,
    parameters: Parameters,
    *,
    points: bool = True,
    scans_only: bool = False,
) -> PlannedQuery:
    """Find the tables, decide what their scans return, and plan all of them in one read transaction.

    ``points``: answer a select by primary key without a scan.  ``scans_only``: the whole text will be evaluated over
    what the scans return.
    """
    seen: list[tuple[TableName, int | None, int]] = []  # the views that have been expanded
    files: list[StagingFolder] = []
    current = query = _reachable(engine, query, parameters, files)
    while True:
        try:
            planned = _planned(engine, view, current, parameters, seen, points=points, scans_only=scans_only)
            planned.files = files
            return planned
        except ViewsNamed as named:
            parsed = parsed_query(engine, current)
            for number, found in named.views.items():
                if number >= len(parsed.references):
                    search = parsed.searches[number - len(parsed.references)]
                    parsed.fragment.source.fail(f"{found.name!r} is a view; search needs a table.", search.call.start)
                if len(seen) >= MAX_DEPTH:
                    raise too_deep(found.name) from None
                reference = parsed.references[number]
                seen.append((reference.table, _at(engine, view, reference.at, parameters), found.number))
            current = _reachable(engine, _with_views(engine, view, current, named.views), parameters, files)
        except ViewsChanged:
            seen, current = [], query


def describe(engine: Engine, view: Viewpoint, query: Query, parameters: Parameters) -> tuple[pa.Table, int | None]:
    """Describe a query, with the keys and defaults that DuckDB shows for its own tables, and tell the snapshot."""
    planned = plan_query(engine, view, query, parameters, points=False, scans_only=True)
    shown = planned.describe()
    asked = described(engine, view, query.text, planned.parameters)
    if asked is not None and asked.select([0, 1]).equals(shown.select([0, 1])):
        shown = asked
    return shown, planned.snapshot_id


def _reachable(engine: Engine, query: Query, parameters: Parameters, files: list[StagingFolder]) -> Query:
    """Return the query with table functions written out, which is cached, and remote files copied here."""
    if "written_out" not in query.__dict__:
        text = written_out(query.text)
        query.__dict__["written_out"] = query if text is query.text else Query(text)
    found, staged = with_local_files(engine, query.__dict__["written_out"], parameters)
    if staged is not None:
        files.append(staged)
    return found


def _with_views(engine: Engine, view: Viewpoint, query: Query, views: Mapping[int, View]) -> Query:
    """Return the query with its views as subqueries; cached with the query as long as the views stay the same."""
    draft = draft_with_sequences(engine, view)
    views = {number: replace(found, text=of_draft(found.text, draft)) for number, found in views.items()}
    known = query.__dict__.setdefault("with_views", {})
    key = view.namespace, tuple((number, found.text, found.columns) for number, found in views.items())
    if key not in known:
        if len(known) > 16:
            known.clear()
        known[key] = Query(expanded(parsed_query(engine, query), views, view.namespace, engine.syntax_tree))
    found: Query = known[key]
    return found


def _planned(
    engine: Engine,
    view: Viewpoint,
    query: Query,
    parameters: Parameters,
    views: Sequence[tuple[TableName, int | None, int]],
    *,
    points: bool,
    scans_only: bool,
) -> PlannedQuery:
    check_numbers(view, query.text)
    parsed = parsed_query(engine, query)
    if engine.temporary_views and (named := _temporary(engine, parsed)):
        raise ViewsNamed(named)
    planned = PlannedQuery(engine, view, parsed, parameters)
    if parsed.mentions:
        shown = dict(answers(engine, view, parsed.fragment, parsed.mentions))
        for number, mention in enumerate(parsed.mentions):
            if mention.described is not None:
                shown[mention.name(number)], _ = describe(engine, view, Query(mention.described), parameters)
        planned.constants = shown
    stored = [seen for seen in views if seen[2] > 0]
    if not parsed.references and not parsed.searches and not stored:
        planned.snapshot_id = newest_snapshot(view)
        return planned
    searches = [WantedSearch(engine, s, parameters) for s in parsed.searches]
    wanted = [(r.table, _at(engine, view, r.at, parameters)) for r in parsed.references]
    searched = [(s.table, _at(engine, view, r.at, parameters)) for s, r in zip(searches, parsed.searches, strict=True)]

    def plan(both: list[Reading]) -> list[Reading]:
        found = both[: len(wanted)]
        key = tuple(f.schema for f in found)
        known = parsed.analyses.get(key)
        if known is None:
            pushed = analyse(parsed, key)
            plain = plain_select(parsed, key[0], pushed[0]) if len(key) == 1 else None
            if len(parsed.analyses) > 16:
                parsed.analyses.clear()
            known = parsed.analyses[key] = [Choice(p) for p in pushed], plain
        choices, plain = known
        if not engine.computes_as_usual:
            choices = [Choice(replace(c.pushed, conjuncts=())) for c in choices]
        if scans_only or engine.changed:
            plain = None
        if points and plain is not None:
            read = plan_point(view.lake, found[0], choices[0], plain, parameters)
            if read is not None:
                planned.without_duckdb = partial(point_answer, read, key[0], plain)
                planned.snapshot_id = found[0].snapshot
                return []
        planned.tables, direct = plan_tables(
            view.lake, parsed.references, found, choices, plain, parameters, counting=not scans_only
        )
        if direct is not None:
            planned.without_duckdb = partial(scan_answer, view.lake, planned.tables[0], direct, parameters.values)
        return both[len(wanted) :]

    places = read_together(view, [*wanted, *searched], plan, stored)
    snapshots = [t.found.snapshot for t in planned.tables] + [place.snapshot for place in places]
    if snapshots:
        planned.snapshot_id = min(snapshots)
    elif not parsed.references:
        planned.snapshot_id = newest_snapshot(view)
    with view.lake._pins.pin(planned.snapshot_id):
        planned.searches = tuple(s.run(view, place) for s, place in zip(searches, places, strict=True))
    return planned


def _temporary(engine: Engine, parsed: ParsedQuery) -> dict[int, View]:
    """Return the references that mean temporary views, which take precedence over anything else of that name."""
    views = engine.temporary_views
    named = (
        (r.number, views.get(r.table.name.lower())) for r in parsed.references if r.table.namespace in (None, TEMPORARY)
    )
    return {number: view for number, view in named if view is not None}


def parsed_query(engine: Engine, query: Query) -> ParsedQuery:
    known = query.__dict__.get("parsed")
    own = frozenset(engine.temporary_tables)
    if known is None or known[0] != own:
        with translating(query.text.source, query.text.spliced()):
            known = own, parse_query(query.text, engine.syntax_tree, own)
        query.__dict__["parsed"] = known
    found: ParsedQuery = known[1]
    return found


def _at(engine: Engine, view: Viewpoint, at: At | None, parameters: Parameters) -> int | None:
    """Return the snapshot that ``at (…)`` asks for."""
    if at is None:
        return None
    value, kind = at.value, at.kind
    spliced = value.spliced(prefix="select (", suffix=")::BIGINT" if kind == "version" else ")::TIMESTAMPTZ")
    with translating(value.source, spliced):
        found = engine.table(spliced.text, parameters.of(value.parameters)).column(0)[0]
    try:
        answer = found.as_py()
    except (OverflowError, ValueError):
        value.source.fail("at (…) needs a timestamp between the years 1 and 9999.", value.start)
    if answer is None:
        value.source.fail("at (…) needs a value.", value.start)
    lake = view.lake
    number = snapshot_number(lake, answer, None) if kind == "version" else snapshot_number(lake, None, answer)
    newest = view.snapshot if view.transaction is None else view.transaction.snapshot_id
    if newest is not None and number > newest:
        value.source.fail(f"Snapshot {number} is later than the one that is read here, {newest}.", value.start)
    return number
