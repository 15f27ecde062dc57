"""When the disk is full, a directory read-only, a server flaky or away: typed errors, and no half files."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indexlake.errors import AlreadyExistsError, CorruptionError, StorageError
from indexlake.storage import Storage, faults
from indexlake.storage.checksum import Checksums
from tests.support.flaky_proxy import FlakyProxy
from tests.support.folders import let_others_in
from tests.support.servers import S3Server, free_port

MIB = 1024 * 1024


@pytest.fixture
def behind_proxy(s3: S3Server, proxy: FlakyProxy) -> Storage:
    return Storage.open(f"s3://{s3.bucket()}", {**s3.options, "endpoint": proxy.endpoint})


def put(storage: Storage, path: str, data: bytes) -> Checksums:
    with storage.create_file(path) as out:
        out.write(data)
    return out.checksums


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("failure", ["503", "500", "429", "reset", "cut"])
def test_a_passing_failure_of_the_store_is_retried(behind_proxy: Storage, proxy: FlakyProxy, failure: str) -> None:
    data = os.urandom(2 * MIB)
    proxy.plan = lambda method, path, number: failure if number % 3 != 0 else None
    checksums = put(behind_proxy, "file", data)
    assert behind_proxy.open_file("file", checksums).read() == data
    assert [info.path for info in behind_proxy.list()] == ["file"]
    assert behind_proxy.exists("file")
    behind_proxy.delete("file")
    proxy.plan = lambda method, path, number: None
    assert not behind_proxy.exists("file")


def test_a_passing_failure_during_an_upload_in_parts_is_retried(behind_proxy: Storage, proxy: FlakyProxy) -> None:
    data = os.urandom(20 * MIB)
    proxy.plan = lambda method, path, number: "503" if number % 2 else None
    checksums = put(behind_proxy, "file", data)
    assert any("partNumber" in path for _, path in proxy.requests)
    assert behind_proxy.open_file("file", checksums).read() == data


def test_an_upload_whose_answer_is_lost_succeeds(behind_proxy: Storage, proxy: FlakyProxy) -> None:
    proxy.plan = lambda method, path, number: {1: "lose", 2: "412"}.get(number)
    checksums = put(behind_proxy, "file", b"data")
    assert behind_proxy.open_file("file", checksums).read() == b"data"


def test_an_object_of_another_writer_in_the_way_is_not_taken_for_ours(behind_proxy: Storage, proxy: FlakyProxy) -> None:
    put(behind_proxy, "file", b"theirs")
    proxy.plan = lambda method, path, number: "412" if method == "PUT" else None
    with pytest.raises(AlreadyExistsError, match="'file': the file already exists"):
        put(behind_proxy, "file", b"ours!!")
    assert behind_proxy.open_file("file").read() == b"theirs"


def test_a_lasting_failure_of_the_store_is_a_retryable_storage_error(behind_proxy: Storage, proxy: FlakyProxy) -> None:
    proxy.plan = lambda method, path, number: "503"
    with pytest.raises(StorageError, match="cannot look for 'file'") as caught:
        behind_proxy.exists("file")
    assert caught.value.retryable
    assert len(proxy.requests) > 3


def test_a_failed_upload_leaves_no_object(behind_proxy: Storage, proxy: FlakyProxy) -> None:
    proxy.plan = lambda method, path, number: "403" if "partNumber=3" in path or number == 1 else None
    with pytest.raises(StorageError, match="access denied"):
        put(behind_proxy, "small", b"1")
    with pytest.raises(StorageError, match="access denied"):
        put(behind_proxy, "large", os.urandom(30 * MIB))
    assert list(behind_proxy.list()) == []


def test_an_object_that_disappears_while_open_is_corruption(behind_proxy: Storage) -> None:
    checksums = put(behind_proxy, "file", os.urandom(3 * MIB))
    file = behind_proxy.open_file("file", checksums)
    behind_proxy.delete("file")
    with pytest.raises(CorruptionError, match="'file' is missing"):
        file.read_at(0, 10)


def test_a_server_that_is_away_is_a_storage_error_that_says_so() -> None:
    options = {
        "endpoint": f"http://127.0.0.1:{free_port()}",
        "access_key_id": "somekey1",
        "secret_access_key": "s3cr3t!!",
    }
    storage = Storage.open("s3://bucket/prefix", options)
    with pytest.raises(StorageError, match="Connection refused") as caught:
        put(storage, "file", b"1")
    assert caught.value.retryable
    assert "s3cr3t" not in str(caught.value)


def test_wrong_credentials_are_a_storage_error_without_the_secret(s3: S3Server) -> None:
    options = {**s3.options, "secret_access_key": "wrong-secret"}
    storage = Storage.open(f"s3://{s3.bucket()}", options)
    with pytest.raises(StorageError, match="check the credentials") as caught:
        put(storage, "file", b"1")
    assert not caught.value.retryable
    assert "wrong-secret" not in str(caught.value)


def test_a_missing_bucket_is_a_storage_error(s3: S3Server) -> None:
    with pytest.raises(StorageError, match="the bucket or the storage_options are wrong"):
        put(Storage.open("s3://no-such-bucket", s3.options), "file", b"1")


def test_a_spec_opens_with_the_secrets_given_again(s3: S3Server) -> None:
    storage = Storage.open(f"s3://{s3.bucket()}/p", s3.options)
    put(storage, "file", b"data")
    spec = storage.spec()
    assert s3.secret not in repr(spec)
    assert s3.key not in repr(spec)
    again = spec.open({"access_key_id": s3.key, "secret_access_key": s3.secret})
    assert again.open_file("file").read() == b"data"


@pytest.mark.parametrize(
    "root", ["ftp://host/x", "s3://", "s3://key:secret@bucket/x", "s3://bucket/x?a=b", "s3://b/../x"]
)
def test_a_root_that_is_not_supported_is_refused(root: str) -> None:
    with pytest.raises(StorageError) as caught:
        Storage.open(root)
    assert "secret" not in str(caught.value).replace("storage_options", "")


def test_memory_of_another_process_is_refused() -> None:
    with pytest.raises(StorageError, match="memory is not shared between processes"):
        Storage.open("memory://0123")


@pytest.mark.parametrize("step", ["storage.create", "storage.write", "storage.publish", "storage.published"])
def test_a_full_disk_is_a_storage_error_and_leaves_no_temporary_file(tmp_path: Path, step: str) -> None:
    storage = Storage.open(str(tmp_path))
    previous = faults.install(faults.from_text(f"{step}=enospc"))
    try:
        with pytest.raises(StorageError, match="the disk is full; free space") as caught:
            put(storage, "d/file", b"x" * (3 * MIB))
    finally:
        faults.install(previous)
    assert caught.value.errno == errno.ENOSPC  # type: ignore[attr-defined]
    assert [info.path for info in storage.list()] == (["d/file"] if step == "storage.published" else [])


def test_a_really_full_disk_is_a_storage_error(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        storage = Storage.open(str(small))
        with pytest.raises(StorageError, match="cannot write 'file': the disk is full"):
            put(storage, "file", os.urandom(5 * MIB))
        assert list(storage.list()) == []
        subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
        with pytest.raises(StorageError, match="cannot create 'd/file': the file system is read-only"):
            put(storage, "d/file", b"1")
    finally:
        subprocess.run(["umount", str(small)], check=True)


LIMITED = """
import resource, signal, sys
from indexlake.storage import Storage
from indexlake.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
storage = Storage.open(sys.argv[1])
try:
    with storage.create_file("file") as out:
        out.write(b"x" * (5 << 20))
except StorageError as error:
    print(error)
print([info.path for info in storage.list()])
"""


def test_a_file_size_limit_is_a_storage_error(tmp_path: Path) -> None:
    done = run_python(LIMITED, str(tmp_path))
    assert "cannot write 'file': the file would pass the size limit" in done.stdout, done.stderr
    assert done.stdout.endswith("[]\n")


FORBIDDEN = """
import os, sys
from indexlake.storage import Storage
from indexlake.errors import StorageError
if os.geteuid() == 0:
    os.setuid(65534)
storage = Storage.open(sys.argv[1])
for call, path in ((storage.create_file, "other"), (storage.delete, "file")):
    try:
        call(path)
    except StorageError as error:
        print(error)
print(storage.open_file("file").read())
"""


def test_a_directory_without_write_permission_is_a_storage_error(tmp_path: Path) -> None:
    lake = tmp_path
    put(Storage.open(str(lake)), "file", b"data")
    let_others_in(lake)
    lake.chmod(0o555)
    done = run_python(FORBIDDEN, str(lake))
    lake.chmod(0o755)
    assert "cannot create 'other': permission denied" in done.stdout, done.stderr
    assert "cannot delete 'file': permission denied" in done.stdout
    assert "b'data'" in done.stdout


def test_a_file_in_place_of_a_directory_is_a_storage_error(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    put(storage, "a", b"1")
    with pytest.raises(StorageError, match="cannot create 'a/b': a part of the path is a file"):
        storage.create_file("a/b")
    (tmp_path / "d").mkdir()
    with pytest.raises(StorageError, match="the path is a directory"):
        storage.open_file("d")


WRITE = """
import sys
from indexlake.storage import Storage
with Storage.open(sys.argv[1]).create_file("d/file") as out:
    out.write(b"x" * (3 << 20))
"""


@pytest.mark.parametrize("step", ["storage.create", "storage.write", "storage.publish", "storage.published"])
def test_a_killed_writer_leaves_the_whole_file_or_a_temporary_one(tmp_path: Path, step: str) -> None:
    done = run_python(WRITE, str(tmp_path), INDEXLAKE_FAULTS=f"{step}=kill")
    assert done.returncode == -signal.SIGKILL, done.stderr
    storage = Storage.open(str(tmp_path))
    paths = [info.path for info in storage.list()]
    assert storage.exists("d/file") == (step == "storage.published")
    assert all(path == "d/file" or path.endswith(".tmp") for path in paths)
    with storage.create_file("d/file", overwrite=True) as out:
        out.write(b"again")
    assert storage.open_file("d/file", out.checksums).read() == b"again"


def test_a_read_error_is_a_storage_error_and_the_next_read_works(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path))
    file = storage.open_file("file", put(storage, "file", b"data"))
    previous = faults.install(faults.from_text("storage.read:1=error"))
    try:
        with pytest.raises(StorageError, match="cannot read 'file': the device reported an input/output error"):
            file.read()
        assert file.read() == b"data"
    finally:
        faults.install(previous)


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of kill, error, enospc"):
        faults.from_text("storage.read=explode")
