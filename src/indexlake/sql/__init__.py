"""Embedded SQL: ``lake.sql(text)``.

A text is taken apart by keyword (``statement``).  Queries are answered by DuckDB over scan plans of one snapshot, with
columns, predicates and limits pushed into each scan (``query``, ``table_references``, ``planned_query``), or by a
scan alone where that is all there is to them (``plain_select``).  Everything that changes something is handed to the
operations that the Python interface has (``changes``, ``definitions``).
"""
