"""Older schema versions: one pure function from each version to the next, applied in order."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any


Document = dict[str, Any]
Step = Callable[[Document], Document]

#: The version that this release writes.
SCHEMA_VERSION = 1

#: From a version to the function that makes a document of the next one, ``schema_version`` aside.
STEPS: Mapping[int, Step] = {}


class MigrationError(ValueError):
    """No way from a document's version to the one asked for."""


def migrate(
    document: Document, *, steps: Mapping[int, Step] | None = None, to: int = SCHEMA_VERSION
) -> Document:
    """A document of schema version ``to``, made from one of the same or an older version (left as it is).

    Raises:
        MigrationError: a step is missing, or one of them stumbles over the document.
    """
    steps = STEPS if steps is None else steps
    version = document["schema_version"]
    while version < to:
        if version not in steps:
            raise MigrationError(f"its schema {version} is older than any this release can read")
        try:
            document = {**steps[version](document), "schema_version": version + 1}
        # A damaged document stumbles wherever the damage is.
        except Exception as error:
            raise MigrationError(
                f"its schema {version} is damaged ({type(error).__name__}: {error})"
            ) from error
        version += 1
    return document
