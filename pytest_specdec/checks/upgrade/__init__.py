"""An old build and a new one, measured side by side: what changed, and whether it is a regression."""

from __future__ import annotations

from pytest_specdec.checks.upgrade.judging import judge


__all__ = ["judge"]
