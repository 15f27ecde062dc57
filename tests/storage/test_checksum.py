from __future__ import annotations

import os

import pytest

from indexlake.errors import CorruptionError
from indexlake.storage.checksum import CHUNK_SIZE, ChecksumBuilder, Checksums


@pytest.mark.parametrize("size", [0, 1, CHUNK_SIZE, CHUNK_SIZE + 1, 5 * CHUNK_SIZE - 1])
def test_checksums_built_in_pieces_equal_those_of_the_whole(size: int) -> None:
    data = os.urandom(size)
    builder = ChecksumBuilder()
    for at in range(0, size, 99_991):
        builder.update(data[at : at + 99_991])
    assert builder.finish() == Checksums.of(data)


def test_checksums_round_trip_as_bytes() -> None:
    checksums = Checksums.of(os.urandom(3 * CHUNK_SIZE + 5))
    assert Checksums.from_bytes(checksums.to_bytes()) == checksums
    assert len(checksums.to_bytes()) == 13 + 4 * 8


def test_each_flipped_bit_changes_its_chunk() -> None:
    data = bytearray(os.urandom(512))
    checksums = Checksums.of(data)
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert not checksums.matches(0, data)
        data[bit // 8] ^= 1 << bit % 8
    assert checksums.matches(0, data)


def test_damaged_checksums_are_corruption() -> None:
    whole = Checksums.of(os.urandom(3 * CHUNK_SIZE)).to_bytes()
    for damaged in (b"", whole[:5], whole[:-1], whole[:-8], whole + bytes(8), b"\x09" + whole[1:]):
        with pytest.raises(CorruptionError):
            Checksums.from_bytes(damaged)
