"""The package's own names."""

from __future__ import annotations

import importlib

import indexlake as il


def test_expr_is_a_function_also_after_the_package_of_that_name_was_imported():
    assert importlib.import_module("indexlake.expr").compile is not None
    assert il.expr("total * 0.9") == il.Expression("total * 0.9")


def test_every_public_name_exists_and_has_a_docstring():
    for name in il.__all__:
        assert getattr(il, name).__doc__, name
