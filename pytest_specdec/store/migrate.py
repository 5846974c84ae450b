"""Older schema versions: one pure function from each version to the next, applied in order."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any


Document = dict[str, Any]
Step = Callable[[Document], Document]

#: The version that this release writes.
SCHEMA_VERSION = 2

# What an exactness case says of the steps that decided it, where it knows of none.
_NO_STEPS: Mapping[str, Any] = {"steps": [], "reasons": [], "partings": [], "invariant": 0, "refused": ""}


def _from_1(document: Document) -> Document:
    """Entries have no anchor yet, which an entry may do without; exactness knew one step only."""
    return {**document, "entries": {key: _with_steps(entry) for key, entry in document["entries"].items()}}


def _with_steps(entry: Document) -> Document:
    if entry["kind"] != "exactness":
        return entry
    cases = [{**_NO_STEPS, **case} for case in entry["measurement"]["cases"]]
    return {**entry, "measurement": {**entry["measurement"], "cases": cases}}


#: From a version to the function that makes a document of the next one, ``schema_version`` aside.
STEPS: Mapping[int, Step] = {1: _from_1}


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
