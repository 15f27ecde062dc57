"""Names of files are built and parsed by one module; what it did not build, nobody may delete."""

import re
from pathlib import Path
from typing import get_args

import pytest

from indexlake.blocks.new_block import NewFile
from indexlake.blocks.writer import EXTENSIONS
from indexlake.storage import Storage
from indexlake.storage.names import TABLES, FileName, Role, new_writer_id, table_folder, unfinished

WRITER = "0123456789ab"
ATTEMPT = "0123456789abcdef0123456789abcdef"
NAME = f"{WRITER}-{ATTEMPT}"


@pytest.mark.parametrize("role", get_args(Role))
@pytest.mark.parametrize("extension", sorted({*EXTENSIONS.values(), "keys"}))
def test_what_is_built_is_parsed(role, extension):
    name = FileName.new(7, role, new_writer_id(), extension)
    assert FileName.parse(name.path) == name
    assert name.finished


@pytest.mark.parametrize(
    ("role", "extension", "path"),
    [
        ("data", "vortex", f"tables/12/data/{NAME}.vortex"),
        ("history", "parquet", f"tables/12/history/{NAME}.parquet"),
        ("index", "keys", f"tables/12/index/{NAME}.keys"),
        ("stage", "arrow", f"tables/12/stage/{NAME}.arrow"),
    ],
)
def test_names_on_disk_do_not_change(role, extension, path):
    name = FileName(12, role, WRITER, ATTEMPT, extension)
    assert name.path == path
    assert FileName.parse(path) == name
    assert path.startswith(f"{table_folder(12)}/")
    assert NewFile(path, 1, b"").writer_id == WRITER


def test_no_name_is_used_twice():
    assert len({FileName.new(1, "data", WRITER, "vortex").path for _ in range(100)}) == 100
    assert len({new_writer_id() for _ in range(100)}) == 100
    assert len({unfinished("file") for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "path",
    [
        "",
        "indexlake.json",
        "tables",
        "tables/readme",
        "tables/1/data/notes.txt",
        "tables/1/data/abc-def.vortex",
        f"tables/1/{NAME}.vortex",
        f"tables/one/data/{NAME}.vortex",
        f"tables/1/data/more/{NAME}.vortex",
        f"tables/1/Data/{NAME}.vortex",
        f"tables/1/data/{NAME}",
        f"tables/1/data/..{NAME}.vortex",
        f"tables/1/data/{NAME.upper()}.vortex",
        f"tables/1/data/{WRITER}0-{ATTEMPT}.vortex",
        f"tables/1/data/{WRITER}-{ATTEMPT}0.vortex",
        f"other/tables/1/data/{NAME}.vortex",
        f"spill/1/data/{NAME}.vortex",
    ],
)
def test_foreign_files_are_not_ours(path):
    assert FileName.parse(path) is None


@pytest.mark.parametrize("role", get_args(Role))
def test_unfinished_files_are_recognised(role):
    whole = FileName.new(3, role, WRITER, "vortex")
    folder, _, file = whole.path.rpartition("/")
    half = FileName.parse(f"{folder}/{unfinished(file)}")
    assert half is not None
    assert not half.finished
    assert (half.table_id, half.role, half.writer_id, half.attempt) == (3, role, WRITER, whole.attempt)
    assert re.fullmatch(r"vortex\.[0-9a-f]{12}\.tmp", half.extension)
    assert half.path.startswith(f"{folder}/.{file}.")


def test_a_file_that_is_being_written_bears_the_name_of_its_writer(tmp_path):
    storage = Storage.open(str(tmp_path))
    name = FileName.new(5, "data", WRITER, "vortex")
    with storage.create_file(name.path) as out:
        out.write(b"half")
        (found,) = storage.list(TABLES)
        half = FileName.parse(found.path)
    assert half is not None
    assert (half.writer_id, half.finished) == (WRITER, False)
    assert [p.name for p in Path(tmp_path, "tables/5/data").iterdir()] == [name.path.rpartition("/")[2]]


@pytest.mark.parametrize(
    "path",
    [
        f"tables/1/data/{NAME}.vortex",
        f"tables/1/data/.{NAME}.vortex",
        f"tables/1/data/.{NAME}.vortex.0123456789ab.tmp",
        f"tables/1/future/{NAME}.suffix",
        f"tables/0012/data/{NAME}.vortex",
        f"tables/1/data/{NAME}.",
        f"tables/1/data/{NAME}.a.b",
        f"tables/1/data/{NAME}.a\nb",
        f"tables/1/data/{NAME}.a/b",
    ],
)
def test_what_vacuum_deleted_before_the_names_had_a_module_it_still_deletes(path):
    before = re.compile(r"tables/(\d+)/[a-z]+/\.?([0-9a-f]{12})-[0-9a-f]{32}\.").match(path)
    now = FileName.parse(path)
    assert before is not None
    assert now is not None
    assert (now.table_id, now.writer_id) == (int(before[1]), before[2])
