"""Small transactions of the catalog that an open lake uses now: ``lake.convert`` may replace it at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from indexlake.errors import ConvertedError

if TYPE_CHECKING:
    from indexlake.catalog.driver import Catalog, Transaction

T = TypeVar("T")


class User(Protocol):
    """Has the catalog that the lake uses now."""

    catalog: Catalog


def commit_in(user: User, work: Callable[[Transaction], T]) -> T:
    """Do something in a transaction and commit it; once more if the lake was converted before it began."""
    while True:
        catalog = user.catalog
        try:
            with catalog.transaction() as tx:
                result = work(tx)
                tx.commit()
                return result
        except ConvertedError:
            if user.catalog is catalog:
                raise
