"""Which kernels compute a batch of N tokens."""

from __future__ import annotations

from pytest_specdec import within_baseline


@within_baseline("kernels")
def test_kernel_paths_are_the_stored_ones() -> None:
    """The kernel map changes at the same batch sizes as in this machine's baseline; exact under any load."""
