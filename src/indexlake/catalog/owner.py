"""Who owns the files: a small file at the storage root names the lake and the copy of its catalog that owns them.

A copy of a catalog, such as a restored backup, knows different files from the original; only the owner may delete any.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from indexlake.catalog import tables
from indexlake.errors import NotFoundError, StorageError
from indexlake.storage import Storage
from indexlake.storage.names import OWNER

if TYPE_CHECKING:
    from indexlake.lake import Lake


def check_owner(lake: Lake) -> None:
    """Check that the mark at the storage root names this lake and this copy of its catalog."""
    record = tables.read_lake(lake.catalog)
    assert record is not None
    found = marked_owner(lake.storage)
    if found is None:
        raise StorageError(
            f"The storage root has no {OWNER}, so it is unclear whose files these are, and nothing is deleted. "
            "Open the lake for writing once, which creates it.",
            path=OWNER,
        )
    if found != (record.lake_id, record.incarnation):
        raise StorageError(
            f"The files at {lake.storage.root} belong to lake {found[0]}, incarnation {found[1]}; this catalog is "
            f"{record.lake_id}, incarnation {record.incarnation}: a copied or restored catalog must not delete the "
            "files of the living one. To take the files over with this catalog call lake.adopt().",
            path=OWNER,
        )


def marked_owner(storage: Storage) -> tuple[str, int] | None:
    """Return (lake id, incarnation) from the mark, or None without a mark."""
    try:
        with storage.open_file(OWNER) as f:
            mark = json.loads(f.read())
        return mark["lake_id"], mark["incarnation"]
    except NotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StorageError(
            f"{OWNER} at the storage root is damaged, so it is unclear whose files these are, and nothing is deleted. "
            "If they are this lake's, lake.adopt() rewrites it.",
            path=OWNER,
        ) from None


def adopt(lake: Lake) -> int:
    """Make this catalog the owner of the files; the previous owner can no longer delete any."""
    record = tables.next_incarnation(lake.catalog)
    write_mark(lake.storage, record, overwrite=True)
    return record.incarnation


def write_mark(storage: Storage, record: tables.LakeRecord, *, overwrite: bool) -> None:
    """Write the mark that says whose files these are."""
    with storage.create_file(OWNER, overwrite=overwrite) as out:
        out.write(json.dumps({"lake_id": record.lake_id, "incarnation": record.incarnation}).encode())
