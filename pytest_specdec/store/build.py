"""Build identity: one version of llama-cpp-python can be many builds of llama.cpp."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any


_VERSIONS = {
    "llama_cpp_python": "llama-cpp-python",
    "ggml_version": "ggml",
    "ggml_commit": "commit",
}
# Features named in one phrase: a build for another processor differs in dozens.
_LISTED = 8


def build_identity(hello: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the llama.cpp build behind a worker's hello.

    Package version, ggml's version and commit (None where the worker could not tell), SHA-256 by library file
    name (no folders: they name users), and llama.cpp's system info, which lists what was compiled in.
    """
    libraries = hello.get("libraries") or {}
    return {
        "llama_cpp_python": hello.get("llama_cpp_python"),
        "ggml_version": hello.get("ggml_version"),
        "ggml_commit": hello.get("ggml_commit"),
        "libraries": {re.split(r"[/\\]", str(name))[-1]: str(digest) for name, digest in libraries.items()},
        "system_info": str(hello.get("system_info") or "").strip(),
    }


def build_id(build: Mapping[str, Any]) -> str:
    """A short name for a build: package version, commit, and a digest of the whole identity."""
    known = [str(build[key])[:9] for key in ("llama_cpp_python", "ggml_commit") if build.get(key)]
    return "-".join([*known, build_digest(build)])


def build_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What tells two builds apart, old first, one phrase each; empty for the same build.

    Where the package's version is the same, the first phrase begins by saying so: the same version built with
    other flags is another build.
    """
    found = [
        f"{label} {old.get(key) or 'unknown'} → {new.get(key) or 'unknown'}"
        for key, label in _VERSIONS.items()
        if old.get(key) != new.get(key)
    ]
    libraries = _changed(old.get("libraries") or {}, new.get("libraries") or {})
    if libraries:
        found.append(f"other binaries: {', '.join(libraries)}")
    before = _features(str(old.get("system_info") or ""))
    after = _features(str(new.get("system_info") or ""))
    features = [f"+{name}" for name in after if name not in before]
    features += [f"-{name}" for name in before if name not in after]
    if features:
        more = f" and {len(features) - _LISTED} more" if len(features) > _LISTED else ""
        found.append(f"system info differs: {', '.join(features[:_LISTED])}{more}")
    version = old.get("llama_cpp_python")
    if found and version and version == new.get("llama_cpp_python"):
        found[0] = f"same version {version}, other build: {found[0]}"
    return found


def build_digest(build: Mapping[str, Any]) -> str:
    """A digest of the whole identity, eight hexadecimal digits: equal for the same build only."""
    canonical = json.dumps(build, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "backslashreplace")).hexdigest()[:8]


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _features(system_info: str) -> list[str]:
    return [part for part in (" ".join(piece.split()) for piece in re.split(r"[|:]", system_info)) if part]
