"""The columns that tell what happened to a row, and their words."""

CHANGE_TYPE = "_change_type"
SNAPSHOT_ID = "_snapshot_id"
DELETE, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, INSERT = "delete", "update_preimage", "update_postimage", "insert"
