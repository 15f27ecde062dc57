"""The settings of an object store that ``storage_options`` may hold."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from indexlake.errors import StorageError

PUBLIC_OPTIONS = frozenset(
    {
        "allow_anonymous",
        "assume_role_duration_seconds",
        "checksum_algorithm",
        "default_acl",
        "default_storage_class",
        "disable_config_load",
        "disable_ec2_metadata",
        "disable_list_objects_v2",
        "enable_request_payer",
        "enable_virtual_host_style",
        "endpoint",
        "profile",
        "region",
        "role_arn",
        "role_session_name",
        "server_side_encryption",
        "skip_signature",
    }
)
"""Options that are not secret: they may be printed and stored in plans."""

SECRET_OPTIONS = frozenset(
    {
        "access_key_id",
        "assume_role_session_tags",
        "external_id",
        "secret_access_key",
        "server_side_encryption_aws_kms_key_id",
        "server_side_encryption_customer_algorithm",
        "server_side_encryption_customer_key",
        "server_side_encryption_customer_key_md5",
        "session_token",
    }
)

WITHOUT_EFFECT = frozenset(
    {
        "batch_max_operations",
        "delete_max_size",
        "disable_stat_with_override",
        "disable_write_with_if_match",
        "enable_versioning",
        "enable_write_with_append",
    }
)
"""Old options that OpenDAL still accepts."""

_KNOWN = PUBLIC_OPTIONS | SECRET_OPTIONS | WITHOUT_EFFECT
_IN_ADDRESS = ("bucket", "root", "scheme")


def checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the options; refuse unknown names and values that are not strings."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise StorageError(f"storage_options must be a dict of strings, not {type(options).__name__}.")
    for name, value in options.items():
        if name in _IN_ADDRESS:
            raise StorageError(
                f"storage_options has {name!r}; write it into the address: storage='s3://bucket/prefix'."
            )
        if name not in _KNOWN:
            raise StorageError(f"Unknown storage option {name!r}. {_hint(str(name))}")
        if not isinstance(value, str):
            hint = f": write {str(value).lower()!r}" if isinstance(value, bool) else ""
            raise StorageError(f"storage_options[{name!r}] must be a string, not {type(value).__name__}{hint}.")
    return dict(options)


def _hint(name: str) -> str:
    plain = name.lower().replace("-", "_").removeprefix("aws_").removeprefix("s3_")
    near = [plain] if plain in _KNOWN else get_close_matches(plain, sorted(PUBLIC_OPTIONS | SECRET_OPTIONS), 3, 0.5)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Known options: {', '.join(sorted(_KNOWN))}."
