"""Property tests take the same examples on every run and no clock: a loaded machine must not fail them."""

from __future__ import annotations

from hypothesis import settings


settings.register_profile("specdec", deadline=None, database=None, derandomize=True)
settings.load_profile("specdec")
