"""From a query's text to one whose scans are planned, all of them in one read transaction."""

from __future__ import annotations

from functools import partial

from indexlake.snapshots.reading import Reading
from indexlake.snapshots.time_travel import snapshot_number
from indexlake.sql.parse.parameters import Parameters
from indexlake.sql.parse.statement import Query
from indexlake.sql.plan.at_clause import At
from indexlake.sql.plan.plain_select import plain_select
from indexlake.sql.plan.query import ParsedQuery
from indexlake.sql.plan.query_tables import parse_query
from indexlake.sql.plan.snapshot import Viewpoint, newest_snapshot, read_together
from indexlake.sql.plan.table_plan import Choice, plan_point, plan_tables
from indexlake.sql.plan.table_references import analyse
from indexlake.sql.run.definitions_in_duckdb import answers
from indexlake.sql.run.engine import Engine
from indexlake.sql.run.engine_errors import translating
from indexlake.sql.run.planned_query import PlannedQuery
from indexlake.sql.run.scan_answers import point_answer, scan_answer
from indexlake.sql.run.searches import WantedSearch


def plan_query(
    engine: Engine,
    view: Viewpoint,
    query: Query,
    parameters: Parameters,
    *,
    points: bool = True,
    scans_only: bool = False,
) -> PlannedQuery:
    """Find the tables, decide what their scans give, and plan all of them in one read transaction.

    ``points``: a select by primary key is no scan then.  ``scans_only``: the whole text will be evaluated over what
    the scans give.
    """
    parsed = _parsed(engine, query)
    planned = PlannedQuery(engine, view, parsed, parameters)
    if parsed.mentions:
        planned.constants = answers(engine, view, parsed.fragment, parsed.mentions)
    if not parsed.references and not parsed.searches:
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
        if scans_only:
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

    places = read_together(view, [*wanted, *searched], plan)
    snapshots = [t.found.snapshot for t in planned.tables] + [place.snapshot for place in places]
    if snapshots:
        planned.snapshot_id = min(snapshots)
    with view.lake._pins.pin(planned.snapshot_id):
        planned.searches = tuple(s.run(view, place) for s, place in zip(searches, places, strict=True))
    return planned


def _parsed(engine: Engine, query: Query) -> ParsedQuery:
    found = query.__dict__.get("parsed")
    if found is None:
        with translating(query.text.source, query.text.spliced()):
            found = parse_query(query.text, engine.syntax_tree)
        query.__dict__["parsed"] = found
    return found


def _at(engine: Engine, view: Viewpoint, at: At | None, parameters: Parameters) -> int | None:
    """The snapshot that ``at (…)`` asks for."""
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
