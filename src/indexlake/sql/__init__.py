"""Embedded SQL: ``lake.sql(text)``.  Imports point from ``run`` to ``plan`` to ``parse``."""
