"""Keys of many blocks, compared through their segments in small tasks, against plain sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexlake.blocks.new_block import NewBlock, NewFile
from indexlake.blocks.row_ids import RowIds
from indexlake.indexes.btree.writer import Entries, segment_content
from indexlake.indexes.index import Index
from indexlake.indexes.keys import KeyColumn, encode_key
from indexlake.indexes.kind import SegmentFile
from indexlake.pipeline import key_tasks
from indexlake.pipeline.runner import ThreadRunner
from indexlake.storage import Storage
from indexlake.types import codec_for

KINDS: dict[str, tuple[list[Any], Any]] = {
    "int": ([codec_for(pa.int64())], st.tuples(st.integers(-20, 20))),
    "text": ([codec_for(pa.string())], st.tuples(st.text("ab", max_size=12))),
    "composite": (
        [codec_for(pa.int32()), codec_for(pa.string())],
        st.tuples(st.integers(0, 3), st.text("a\0", max_size=3)),
    ),
}


INDEX = Index(7, "primary", "btree", (1,), (), True, {}, 1, None, 1, 1)


def keys_of(codecs: list[Any], rows: list[tuple[Any, ...]]) -> list[Any]:
    return [encode_key(codecs, [c.encode_one(v) for c, v in zip(codecs, row, strict=True)]) for row in rows]


def segment(storage: Storage, name: str, keys: KeyColumn, starts: list[int]) -> SegmentFile:
    content = segment_content(Entries(keys, np.arange(len(keys)), starts))
    with storage.create_file(name) as file:
        for piece in content.pieces:
            file.write(piece)
    return SegmentFile(7, name, file.checksums.size, file.checksums.to_bytes(), (), content.low, content.high)


def block(storage: Storage, name: str, codecs: list[Any], rows: list[tuple[Any, ...]]) -> NewBlock:
    ints = len(codecs) == 1 and codecs[0].kind == "int"
    column = KeyColumn.from_keys(keys_of(codecs, rows), ints=ints)
    made = segment(storage, name, column, [0, len(rows)])
    file = NewFile(name, 0, b"")
    return NewBlock(file, "vortex", len(rows), RowIds.from_range(0, len(rows)), b"", 0, (made,), {}, (0, 0))


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_key_in_two_rows_is_found_and_nothing_else(kind: str, data: Any) -> None:
    codecs, row = KINDS[kind]
    several = data.draw(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=4))
    most = data.draw(st.sampled_from([1, 3, 1_000]))
    storage = Storage.open("memory://")
    blocks = [block(storage, f"s{n}", codecs, rows) for n, rows in enumerate(several)]
    everything = [key for rows in several for key in keys_of(codecs, rows)]
    with pytest.MonkeyPatch.context() as m:
        m.setattr(key_tasks, "KEYS_PER_TASK", most)
        found = key_tasks.first_repeated(storage, INDEX, blocks, ThreadRunner(storage), lambda: None)
    repeated = {key for key in everything if everything.count(key) > 1}
    assert found in repeated if repeated else found is None


@pytest.mark.parametrize("kind", sorted(KINDS))
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_probe_finds_the_living_holders_of_new_keys(kind: str, data: Any) -> None:
    codecs, row = KINDS[kind]
    old = data.draw(st.lists(row, min_size=1, max_size=20, unique=True))
    new = data.draw(st.lists(st.lists(row, min_size=1, max_size=20, unique=True), min_size=1, max_size=3))
    dead = data.draw(st.sets(st.integers(0, len(old) - 1)))
    from pyroaring import BitMap

    storage = Storage.open("memory://")
    segments = [block(storage, f"n{n}", codecs, rows).segments[0] for n, rows in enumerate(new)]
    # The old rows are in the second block of a segment; the first one has the same keys and is another block's.
    ints = len(codecs) == 1 and codecs[0].kind == "int"
    column = KeyColumn.from_keys(keys_of(codecs, old) * 2, ints=ints)
    there = segment(storage, "old", column, [0, len(old), 2 * len(old)])
    task = key_tasks.ProbeTask(INDEX, 9, there, 1, BitMap(dead).serialize() if dead else None, tuple(segments))
    found = key_tasks.run_probe(storage, task, lambda: None)
    held = keys_of(codecs, old)
    wanted = [(9, held.index(key), key) for rows in new for key in keys_of(codecs, rows) if key in held]
    assert sorted(found, key=repr) == sorted((w for w in wanted if w[1] not in dead), key=repr)


def test_a_segment_gives_its_keys_between_two_bounds(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    codecs, _ = KINDS["text"]
    rows = [(f"k{n:03}",) for n in range(100)]
    opened = INDEX.open(storage, block(storage, "s.keys", codecs, rows).segments[0])
    assert opened.rows_between(b"k010", b"k020") == (10, 20)
    assert opened.rows_between(None, b"k000") == (0, 0)
    assert opened.rows_between(b"k0995", None) == (100, 100)
    assert opened.sample(3) == [b"k000", b"k049", b"k099"]
