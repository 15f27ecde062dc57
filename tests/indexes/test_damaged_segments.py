"""A segment that is damaged or gone is named by the error, which says how to write it anew from the blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import indexlake as il
from tests.indexes.test_index_rules import rows, table

KINDS = {
    "primary": None, "by_a": ("a", "btree"), "by_hash": ("a", "hash"), "places": (["x", "y"], "rtree"),
    "words": ("note", "bm25"), "near": ("vec", "hnsw"),
}  # fmt: skip


def look(t: il.Table, name: str) -> object:
    """Ask something that only reads blocks through the index of that name."""
    match name:
        case "primary":
            return t.get(30)
        case "by_a" | "by_hash":
            return t.scan("a = 3", order_by="id").to_pylist()
        case "places":
            return t.scan("x between 3 and 5 and y between -1000 and 1000", order_by="id").to_pylist()
        case "words":
            return t.search("note", "late", k=100).to_pylist()
        case _:
            return t.search("vec", [1, 2], k=7).to_pylist()


@pytest.mark.parametrize("how", ["damaged", "missing"])
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_segment_can_be_written_anew(two_handles: tuple[il.Lake, il.Lake], name: str, how: str) -> None:
    first, lake = two_handles
    t = table(first)
    for start in (0, 20, 40):
        t.insert(rows(start, 20))
    t.delete("id = 31")
    if (definition := KINDS[name]) is not None:
        t.create_index(name, definition[0], kind=definition[1])
    before, snapshot = look(t, name), first.snapshot_id
    t.delete("id > 40 and id <> 53")
    first.pipeline("threads").compact("t")
    now = look(t, name)
    coverage = next(c for c in first._readings.latest(t._table_id).indexes.values() if c.index.name == name)
    for link in coverage.links.values():
        file = Path(lake.storage.root) / link.segment.path
        if file.exists():
            file.chmod(0o600)
            file.unlink() if how == "missing" else file.write_bytes(bytes(b ^ 255 for b in file.read_bytes()))

    t = lake.table("t")  # through a handle that has opened none of them yet
    lake._files.use_indexes = "always"
    advice = re.escape("lake.pipeline().build_index(table, rebuild=True)")
    with pytest.raises(il.CorruptionError, match=rf"{how}.*{advice}"):
        look(t, name)

    built = lake.pipeline("threads").build_index("t", name, rebuild=True)
    assert [result.blocks for result in built.values()] == [4]  # three of them are only seen in the past
    assert look(t, name) == now
    assert look(t.at(snapshot), name) == before
    t.upsert(rows(20, 20))
    lake._files.use_indexes = "never"
    everything = look(t, name) if name != "primary" else t.scan("id = 30").to_pylist()[0]
    lake._files.use_indexes = "always"
    assert look(t, name) == everything
