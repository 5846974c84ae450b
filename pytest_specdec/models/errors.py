"""What can be wrong with a model; every message names the file or name and says what to do."""

from __future__ import annotations


class ModelError(Exception):
    """A model that cannot be used as asked."""


class ModelNotFound(ModelError):
    """A model that is not on this machine."""
