"""Rewords errors for the command line, so that they advise something that can be typed there."""

from __future__ import annotations

import re

_NO_PARAMETERS = "; the command line has no parameters, write the value into the text"

_WORDS = {
    r"Use il\.spark\.session\(\) or lake\.pipeline\(runner='threads'\)": "Use --runner threads",
    r"lake\.pipeline\(runner='threads'\)": "--runner threads",
    r"runner='(\w*)' is not known\. Use 'threads' or 'spark', or leave it out": r"--runner is threads or spark, not \1",
    r"Pass create=True to il\.connect to create one\.": "`indexlake load` creates one from files.",
    r"A read-only connection does not create one\.": "`indexlake load` creates one from files.",
    r"il\.connect takes a folder, a postgresql:// address or ':memory:'": "A lake is a folder or a PostgreSQL address",
    r"Connect again \(il\.connect\)\.": "Run the command again.",
    r"il\.files\(…, format=[^)]*\)": "--format parquet, csv, json or arrow",
    r"Unknown storage option ('[^']*')\.": r"Unknown storage option \1 in INDEXLAKE_STORAGE_OPTIONS.",
    r"the storage_options are": "INDEXLAKE_STORAGE_OPTIONS is",
    r"\bstorage_options\b": "INDEXLAKE_STORAGE_OPTIONS",
    r"\bcache_dir\b": "INDEXLAKE_CACHE_DIR",
    r"pass log_dir=, the same folder each time": "set INDEXLAKE_LOG_DIR to a folder, the same each time",
    r" first, or connect with read_only=True to read what its last checkpoint holds": " first",
    r"lake\.convert\(hot=('\w*')\)": r"`indexlake convert`",
    r"Connect once without read_only=True\.": "Run the command once where the folder can be written to.",
    r"To read the lake, connect with read_only=True; to write, make the folder writable\.": "Make it writable.",
    r"; to read only, connect with read_only=True": "",
    r", or connect with read_only=True": "",
    r"This lake was opened with read_only=True\. Connect without it to write\.": "The folder cannot be written to.",
    r"cluster_by names columns of one table: give its name too": "--cluster-by is about one table: give --table",
    r"cluster_by=\[…\]": "--cluster-by",
    r"\bpartial=True\b": "--partial",
    r"lake\.cluster_table\(.*?\) sorts its rows .*create_table\(…, layout=\"clustered\"\)\.": (
        "A new table is clustered with `create table … with (layout = 'clustered')` in SQL."
    ),
    r"; give params=(?:\{.*?\}|\[…\])(?: with it)?": _NO_PARAMETERS,
}  # fmt: skip
"""Phrases of the Python interface, and what replaces them; earlier patterns take precedence."""

_PATTERNS = [(re.compile(pattern), words) for pattern, words in _WORDS.items()]


def in_command_line(text: str) -> str:
    """Return the text with advice that can be typed."""
    for pattern, words in _PATTERNS:
        text = pattern.sub(words, text)
    return text
