"""Users' own files on an object store, given by full address: ``s3://bucket/folder/file.parquet``."""

from __future__ import annotations

from collections.abc import Mapping

from indexlake.errors import StorageError
from indexlake.storage.storage import Storage


def is_remote(address: str) -> bool:
    return "://" in address


def storage_of(address: str, options: Mapping[str, str] | None, own: Storage | None, how: str) -> tuple[Storage, str]:
    """Return the bucket of an address, and the path inside it.

    Without options, those of the lake's own storage are used if its files are in the same bucket; ``how`` tells the
    user in errors where else to give them.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, path = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise StorageError(
            f"{address!r} is not supported. Use s3://bucket/file or a local path.",
            path=address,
        )
    root = f"s3://{bucket}"
    if options is None:
        if own is None or (own.root != root and not own.root.startswith(f"{root}/")):
            raise StorageError(
                f"{address!r} is not in the bucket of the lake. Pass {how}, or {{}} to use "
                "credentials from the environment.",
                path=address,
            )
        options = own.secrets
    return Storage.open(root, options), path
