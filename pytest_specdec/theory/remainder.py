"""Which of a batch's last rows are a remainder: computed by another kernel because a block isn't full.

A kernel that works in blocks of four rows leaves N mod 4 rows to another one (ggml-cpu's repacked matrices
do: gemm on N - N % 4 rows, gemv on the rest). Their bits change with N although no kernel was switched, so
they must be told from the rows that show a threshold. Here rows are compared by digests of their bits;
nothing else is known of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from itertools import pairwise


Rows = Sequence[str]
"""A digest of the bits of each row of one batch."""


def small_batches(rows: Mapping[int, Rows]) -> tuple[int, ...]:
    """Return the r for which a batch of r can stand for the last r rows of a larger batch.

    Where one-token passes are computed like passes of two, r = 1 finds every remainder row by row. Where
    they have a path of their own, batches of 2 and 3 show what a remainder of as many rows looks like.
    """
    if 1 in rows and (2 not in rows or rows[2][0] == rows[1][0]):
        return (1,)
    return tuple(r for r in (2, 3) if r in rows)


def to_place(rows: Mapping[int, Rows], remainder: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the (s, n) for which the rows of n tokens decoded behind a batch of s would tell of a remainder.

    Rows of the batch of n changed in the next larger batch though row 0 didn't: either they were a remainder,
    or the kernel was switched. Behind s tokens, which both batches computed as a batch of s does, they
    are the first rows of a batch as large, and no remainder.
    """
    pairs = []
    for n, after in pairwise(sorted(rows)):
        if rows[n][0] != rows[after][0]:
            continue
        changed = [row for row in range(n - remainder.get(n, 0)) if rows[n][row] != rows[after][row]]
        if not changed:
            continue
        fits = (s for s in rows if s <= changed[0] and rows[s] == rows[n][:s] == rows[after][:s])
        s = max(fits, default=0)
        if s:
            pairs.append((s, n))
    return pairs


def find_remainder(
    rows: Mapping[int, Rows],
    behind: Mapping[tuple[int, int], Rows],
    placed: Mapping[tuple[int, int], Rows] | None = None,
) -> dict[int, int]:
    """Return how many of the last rows of each batch are proven, by equal bits, to be a remainder.

    A row is, when one of these holds:

    * The batch of n = m + r has the bits of the batch of m in its first m rows, and those of the r tokens
      decoded behind that batch as one of their own in its last r rows; and batches of n and of r are
      otherwise computed differently.
    * The same token with the same past, as one of the first rows of another batch of n, has the bits that
      it has in the next larger batch, and not those it has in this one: its place at the end made the
      difference.
    * It has the bits of a row so proven at the same place of another batch, and row 0 of both has the same.

    Args:
        rows: by batch size, the same tokens in each.
        behind: by (m, r), the rows of the r tokens behind the batch of m, decoded as a batch of r.
        placed: by (s, n), the rows of the n tokens behind the batch of s, decoded as a batch of n.
    """
    proven = {*_as_small(rows, behind), *_by_place(rows, placed or {})}
    known = {(rows[n][0], row, rows[n][row]) for n, row in proven}
    found = {}
    for n, bits in rows.items():
        count = 0
        while (bits[0], n - 1 - count, bits[n - 1 - count]) in known:
            count += 1
        found[n] = count
    return found


def _as_small(rows: Mapping[int, Rows], behind: Mapping[tuple[int, int], Rows]) -> Iterator[tuple[int, int]]:
    for (m, r), small in behind.items():
        whole = rows.get(m + r)
        if whole is None or m not in rows or (r in rows and rows[r][0] == whole[0]):
            continue
        if list(whole[:m]) == list(rows[m]) and list(whole[m:]) == list(small):
            yield from ((m + r, row) for row in range(m, m + r))


def _by_place(rows: Mapping[int, Rows], placed: Mapping[tuple[int, int], Rows]) -> Iterator[tuple[int, int]]:
    sizes = sorted(rows)
    for (s, n), first in placed.items():
        after = next((size for size in sizes if size > n), None)
        if after is None:
            continue
        for row in range(s, n):
            if first[row - s] == rows[after][row] != rows[n][row]:
                yield n, row
