"""The cache directory: remembered hashes of model files, and model files made here.

Everything in it can be deleted at any time. Entries are written to a temporary name and renamed, so that
concurrent runs see whole files only; an entry that cannot be read is made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import sys
import time
from dataclasses import asdict
from dataclasses import astuple
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_specdec.models.errors import ModelError


if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping

_APP = "pytest-specdec"
_CHUNK = 1 << 20
_ABANDONED_S = 3600.0
# Coarsest modification time in use (FAT): a younger file may still change without its stamp changing.
_SETTLED_NS = 2_000_000_000
_HEX_256 = re.compile(r"[0-9a-f]{64}")


def cache_dir(environ: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return the cache directory; it need not exist yet.

    `SPECDEC_CACHE` if set; else `pytest-specdec` in `~/Library/Caches` on macOS, in `%LOCALAPPDATA%` on
    Windows, in `$XDG_CACHE_HOME` or `~/.cache` elsewhere.
    Raises `ModelError` when there is no home directory to put it in.
    """
    env = os.environ if environ is None else environ
    try:
        if env.get("SPECDEC_CACHE"):
            return Path(env["SPECDEC_CACHE"]).expanduser().absolute()
        if platform == "darwin":
            return Path.home() / "Library" / "Caches" / _APP
        base = env.get("LOCALAPPDATA" if platform == "win32" else "XDG_CACHE_HOME", "")
        # The XDG specification says to ignore relative paths.
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / _APP
    except RuntimeError as error:
        raise ModelError(f"no home directory for the cache ({error}); set SPECDEC_CACHE") from error


@dataclass(frozen=True, slots=True)
class Stamp:
    """What stands for a file's content: its real path, size in bytes, modification time in ns."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path, descriptor: int) -> Stamp:
        """Take the stamp of the file that was opened at `path`; raises `OSError`."""
        info = os.fstat(descriptor)
        return cls(os.path.realpath(path), info.st_size, info.st_mtime_ns)


def _entry(stamp: Stamp, cache: Path) -> Path:
    key = hashlib.sha256(repr(astuple(stamp)).encode(errors="surrogateescape"))
    return cache / "hashes" / f"{key.hexdigest()[:32]}.json"


def _recall(stamp: Stamp, cache: Path) -> str | None:
    try:
        entry = json.loads(_entry(stamp, cache).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or any(entry.get(key) != value for key, value in asdict(stamp).items()):
        return None
    found = entry.get("sha256")
    return found if isinstance(found, str) and _HEX_256.fullmatch(found) else None


def _remember(stamp: Stamp, sha256: str, cache: Path) -> None:
    if time.time_ns() - stamp.mtime_ns < _SETTLED_NS:
        return
    # A cache that cannot be written costs time, not the run.
    with contextlib.suppress(OSError), replacing(_entry(stamp, cache)) as temporary:
        temporary.write_text(json.dumps({**asdict(stamp), "sha256": sha256}), encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; rename it at the end, remove it on any error.

    Leftovers of killed processes are swept when they are older than an hour. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _ABANDONED_S:
                leftover.unlink()
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sha256_of(path: Path, cache: Path, *, fresh: bool = False) -> str:
    """Return the SHA-256 of a file as 64 hex digits.

    Remembered in `cache` by path, size and modification time; `fresh` reads the file in any case.
    Raises `ModelError` when the file cannot be read, or changes while it is read.
    """
    try:
        with path.open("rb") as file:
            # Of the open file: another one may be renamed to this path at any time.
            before = Stamp.of(path, file.fileno())
            if not fresh:
                known = _recall(before, cache)
                if known is not None:
                    return known
            digest = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            after = Stamp.of(path, file.fileno())
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    if before != after:
        raise ModelError(f"{path} changed while it was read; wait until it is written, then run again")
    _remember(after, digest.hexdigest(), cache)
    return digest.hexdigest()
