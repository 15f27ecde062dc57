"""``storage_options``: names that no store knows are refused before anything happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import indexlake as il
from indexlake.storage.options import PUBLIC_OPTIONS, SECRET_OPTIONS, WITHOUT_EFFECT
from tests.support.servers import S3Server


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endpont": "x"}, "Unknown storage option 'endpont'. Did you mean 'endpoint'?"),
        ({"aws_access_key_id": "x"}, "Did you mean 'access_key_id'?"),
        ({"AWS_SECRET_ACCESS_KEY": "x"}, "Did you mean 'secret_access_key'?"),
        ({"virtual_host_style": "true"}, "Did you mean 'enable_virtual_host_style'"),
        ({"zzz": "x"}, "Known options: access_key_id, "),
        ({"bucket": "x"}, "write it into the address: storage='s3://bucket/prefix'"),
        ({"allow_anonymous": True}, "storage_options['allow_anonymous'] must be a string, not bool: write 'true'."),
        ({"session_token": None}, "storage_options['session_token'] must be a string, not NoneType."),
        ([("endpoint", "x")], "storage_options must be a dict of strings, not list."),
    ],
)
@pytest.mark.parametrize("storage", ["s3://bucket/x", None])
def test_what_no_store_knows_is_refused(tmp_path: Path, given: object, said: str, storage: str | None) -> None:
    with pytest.raises(il.StorageError) as caught:
        il.connect(tmp_path / "lake", storage=storage, storage_options=given)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_the_names_are_those_of_opendal() -> None:
    from opendal.config import S3Config

    known = PUBLIC_OPTIONS | SECRET_OPTIONS | WITHOUT_EFFECT
    assert known == set(S3Config.__annotations__) - {"scheme", "bucket", "root"}


def test_the_options_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()
    assert {name for name in PUBLIC_OPTIONS | SECRET_OPTIONS if f"`{name}`" not in page} == set()


def test_a_store_without_keys_says_how_to_give_them(tmp_path: Path, s3: S3Server, monkeypatch: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    options = {"endpoint": s3.endpoint, "region": "us-east-1", "disable_ec2_metadata": "true"}
    with pytest.raises(il.StorageError, match=r"no keys for the object store\. Give access_key_id and "):
        il.connect(tmp_path / "lake", storage=f"s3://{s3.bucket()}/x", storage_options=options)
