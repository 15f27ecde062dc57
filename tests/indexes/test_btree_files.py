"""Files of key segments: those of the first version are read, and damage is noticed wherever it is."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from indexlake.errors import CorruptionError
from indexlake.expr.test import All, ColumnTest
from indexlake.indexes.btree import bloom
from indexlake.indexes.btree.header import FENCE_STEP, HEADER_SIZE, parse
from indexlake.indexes.btree.kind import BTree
from indexlake.indexes.btree.segment import Segment
from indexlake.indexes.keys import KeyColumn, hash_keys
from indexlake.storage import Storage
from indexlake.storage.checksum import Checksums
from indexlake.storage.input_file import in_memory
from tests.indexes.index_rows import column, fields_of, index_of, opened

KIND = BTree()


def version_1(keys: KeyColumn) -> bytes:
    """A file as the first release wrote it: the keys of one block in the order of their positions."""
    order = keys.argsort()
    ordered = keys.take(order)
    common = ordered.common_prefix()
    prefixes = ordered.prefixes(len(common)).astype("<u8")
    sections = [
        common,
        prefixes[::FENCE_STEP].tobytes(),
        bloom.build(hash_keys(ordered), bloom.block_count(len(keys))).tobytes(),
        prefixes.tobytes(),
        order.astype("<u4").tobytes(),
    ]
    listed = ordered.to_list()
    width = 8
    if ordered.is_int:
        sections += [b"", b""]
    else:
        lengths = [len(key) for key in listed]  # type: ignore[arg-type]
        width = lengths[0] if len(set(lengths)) == 1 else 0
        offsets = np.cumsum([0, *lengths]).astype("<u4").tobytes()
        sections += [b"" if width else offsets, b"".join(listed)]  # type: ignore[arg-type]
    flags = ordered.is_int | 2 * (len(set(listed)) == len(listed))
    spans: list[int] = []
    body = b""
    for section in sections:
        at = 32 + 16 * len(sections) + len(body)
        body += bytes(-at % 64)
        spans += [32 + 16 * len(sections) + len(body), len(section)]
        body += section
    head = struct.pack("<8sHBxIQQ", b"ILKEYSEG", 1, flags, FENCE_STEP, len(keys), width)
    return head + struct.pack(f"<{len(spans)}Q", *spans) + body


@pytest.mark.parametrize("type", [pa.int64(), pa.binary(4), pa.string()], ids=str)
def test_a_file_of_the_first_version_answers_as_it_did(type: pa.DataType) -> None:
    random = np.random.default_rng(1)
    (field,) = fields = fields_of([type])
    index = index_of(fields, 1)
    array = column(type, 300, random, nulls=False)
    keys = KeyColumn.from_arrays([field.codec], [array])
    segment = KIND.open(index, in_memory([version_1(keys)]))
    new = segment_of_rows(index, fields, [array])
    assert segment.starts == new.starts == (0, 300)
    assert segment.unique is new.unique is False
    assert segment.key_slots().tolist() == new.key_slots().tolist()
    for key in keys:
        assert segment.find(key) == new.find(key)
    middle = array[17].as_py()
    for op in ("=", "<", ">=", "is null", "is not null"):
        test = ColumnTest("f1", op, () if op.startswith("is") else (middle,))
        probe = KIND.probe(index, fields, test)
        assert probe is not None
        assert segment.ask(probe).slots().tolist() == new.ask(probe).slots().tolist()
        assert segment.ask(probe).count == new.ask(probe).count
    assert segment.values() is None
    merged = opened(index, KIND.merge(index, [(segment, [0]), (new, [0])]))
    assert merged.starts == (0, 300, 600)
    assert merged.find(keys[5]) == [*new.find(keys[5]), *(300 + slot for slot in new.find(keys[5]))]


def segment_of_rows(index: Any, fields: Any, arrays: list[pa.Array]) -> Any:
    builder = KIND.builder(index, fields, lasting=True)
    builder.add(arrays)
    builder.end_block()
    return opened(index, builder.content())


def content_with_all_sections() -> tuple[bytes, list[pa.Array]]:
    random = np.random.default_rng(2)
    fields = fields_of([pa.string(), pa.int64(), pa.string()])
    arrays = [column(f.type, 60, random) for f in fields]
    builder = KIND.builder(index_of(fields, 2), fields, lasting=True)
    builder.add(arrays)
    builder.end_block()
    return b"".join(bytes(piece) for piece in builder.content().pieces), arrays


def ask(segment: Segment) -> list[Any]:
    fields = fields_of([pa.string(), pa.int64()])
    index = index_of(fields, 2)
    answers: list[Any] = []
    for tests in (
        [ColumnTest("f1", "=", ("a",)), ColumnTest("f2", "=", (1,))],
        [ColumnTest("f1", ">=", ("a",))],
        [ColumnTest("f1", "is null")],
    ):
        probe = KIND.probe(index, fields, All(tuple(tests)))
        assert probe is not None
        answers += [segment.ask(probe).slots().tolist(), segment.ask(probe).count]
    answers.append([part.tolist() for part in segment.in_order(None, descending=False)])
    answers += [segment.keys().to_list(), segment.nulls().tolist(), segment.starts]
    answers.append(pa.Table.from_batches(segment.rows(np.array([1, 59]))).to_pylist())
    return answers


def test_every_flipped_byte_of_a_file_with_all_sections_is_noticed() -> None:
    storage = Storage.open("memory://")
    good, _ = content_with_all_sections()
    header = parse("x", len(good), good[:HEADER_SIZE])
    assert header.partial is not None
    assert header.values is not None
    assert header.values.size > 0
    checksums = Checksums.of(good)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        with storage.create_file("x.btree", overwrite=True) as file:
            file.write(bytes(bad))
        with pytest.raises(CorruptionError, match=r"x\.btree"):
            Segment(storage.open_file("x.btree", checksums))


def test_each_section_of_a_large_file_is_verified_when_it_is_read() -> None:
    storage = Storage.open("memory://")
    good, _ = content_with_all_sections()
    checksums = Checksums.of(good, 64)  # chunks as small as sections
    with storage.create_file("good") as file:
        file.write(good)
    expected = ask(Segment(storage.open_file("good", checksums)))
    header = parse("x", len(good), good[:HEADER_SIZE])
    assert header.partial is not None
    sections = {
        "starts": header.starts, "values": header.values, "value_ends": header.value_ends, "bloom": header.bloom,
        **{f"{n}": getattr(header.run, n) for n in ("fences", "prefixes", "positions", "offsets", "keys")},
        **{f"partial_{n}": getattr(header.partial, n) for n in ("fences", "prefixes", "positions", "offsets", "keys")},
    }  # fmt: skip
    for name, section in sections.items():
        assert section is not None, name
        assert section.size > 0, name
        bad = bytearray(good)
        for at in range(section.start, section.start + section.size):
            bad[at] ^= 1
        with storage.create_file("bad", overwrite=True) as file:
            file.write(bytes(bad))
        with pytest.raises(CorruptionError, match="bad"):
            ask(Segment(storage.open_file("bad", checksums)))
    assert ask(Segment(storage.open_file("good", checksums))) == expected


def test_nonsense_in_a_header_is_refused_or_harmless() -> None:
    """Bytes that agree with their checksums and still cannot be true: no other error than CorruptionError."""
    good, _ = content_with_all_sections()
    refused = 0
    for at in range(8, HEADER_SIZE, 8):
        for value in (0, 1, 63, 2**32, 2**63, 2**64 - 1):
            bad = good[:at] + value.to_bytes(8, "little") + good[at + 8 :]
            try:
                ask(Segment(in_memory([bad])))
            except CorruptionError:
                refused += 1
    assert refused > 100
    for size in (0, 1, 40, HEADER_SIZE - 1, HEADER_SIZE, len(good) - 1):
        with pytest.raises(CorruptionError):
            Segment(in_memory([good[:size]]))


@pytest.mark.parametrize("name", ["starts", "value_ends", "values", "offsets"])
def test_sections_that_contradict_themselves_are_refused(name: str) -> None:
    good, _ = content_with_all_sections()
    header = parse("x", len(good), good[:HEADER_SIZE])
    section = header.run.offsets if name == "offsets" else getattr(header, name)
    bad = good[: section.start] + b"\x01" * section.size + good[section.start + section.size :]
    with pytest.raises(CorruptionError, match="contradicts itself"):
        ask(Segment(in_memory([bad])))


def test_a_filter_has_the_same_bits_however_its_hashes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven bits for each hash, in one block of 64 bytes, however many pieces the filter is built in."""
    random = np.random.default_rng(5)
    ends = np.array([0, 1, (1 << 64) - 1], np.uint64)
    hashes = np.concatenate([ends, random.integers(0, 1 << 64, 3_000, np.uint64)])
    blocks = bloom.block_count(len(hashes))
    expected = bytearray(blocks * bloom.BLOCK_BYTES)
    for hash_ in hashes.tolist():
        places = hash_ * 0x9E3779B97F4A7C15 % (1 << 64)
        for probe in range(7):
            bit = 512 * bloom.block_of(hash_, blocks) + (places >> 9 * probe & 511)
            expected[bit // 8] |= 1 << bit % 8
    assert bloom.build(hashes, blocks).tobytes() == expected
    runs = [np.sort(run) for run in np.array_split(hashes, 7)]
    for piece in (1, 7, blocks):
        monkeypatch.setattr(bloom, "_PIECE_BLOCKS", piece)
        assert b"".join(words.tobytes() for words in bloom.pieces(lambda: runs, blocks)) == expected
