"""Taking secrets out of text before anyone reads it: logs, messages, what the run's folder says of the run.

Two nets. The values of environment variables that hold secrets are known, and are taken out wherever they appear; and
some things look like secrets whoever they belong to (access keys, user and password in an address, signatures of
presigned addresses). Nothing of farm puts a secret into text: these are for libraries' messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pyarrow as pa

HIDDEN = "[hidden]"
SECRET_NAME = re.compile(
    r"^AWS_(SECRET|SESSION|ACCESS_KEY)|TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE_KEY|API_?KEY|ACCESS_KEY", re.I
)
_NOT_SECRET = re.compile(r"_(FILE|PATH|URI|URL|DIR)$", re.I)  # where a secret is, not what it is
_SHORTEST = 6  # characters: a shorter value would blot out ordinary words
_PATTERNS = (
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"(?<=://)[^/@\s'\"]+(?=@)"), HIDDEN),
    (re.compile(r"(?i)\b(X-Amz-(?:Signature|Credential|Security-Token)=)[^&\s'\"]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b((?:aws_)?(?:secret_access_key|session_token|password)\s*[=:]\s*)[^\s&'\"]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b(Authorization:\s*)\S.*"), rf"\1{HIDDEN}"),
)


def secrets_of(environment: Mapping[str, str] | None = None) -> list[str]:
    """Values of variables that hold secrets, the longest first."""
    found = {
        value
        for name, value in (os.environ if environment is None else environment).items()
        if SECRET_NAME.search(name) and not _NOT_SECRET.search(name) and len(value) >= _SHORTEST
    }
    return sorted(found, key=lambda value: (-len(value), value))


def redacted_table(table: pa.Table) -> pa.Table:
    """`table` with its column `message`, if it has one, without secrets."""
    place = table.schema.get_field_index("message")
    if place < 0 or table.column(place).null_count == table.num_rows:
        return table
    told = [text and redacted(text) for text in table.column(place).to_pylist()]
    return table.set_column(place, table.schema.field(place), pa.array(told, table.schema.field(place).type))


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """`text` without secrets."""
    for secret in secrets_of(environment):
        text = text.replace(secret, HIDDEN)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text
