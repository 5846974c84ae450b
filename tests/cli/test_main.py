from __future__ import annotations

import argparse
import subprocess
import sys
import types

import pytest

from pytest_specdec import cli


def install(monkeypatch: pytest.MonkeyPatch, run: object) -> None:
    """Put a command of its own under the name "curve"."""
    module = types.ModuleType("specdec_test_command")
    vars(module).update(add_arguments=lambda parser: parser.add_argument("word"), run=run)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, "curve", (module.__name__, "test"))


def test_the_commands_exit_code_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments.word)
        return cli.UNDECIDED

    install(monkeypatch, run)
    assert cli.main(["curve", "hello"]) == 2
    assert seen == ["hello"]


@pytest.mark.parametrize("argv", [[], ["curve"], ["unheard-of"], ["curve", "a", "--unknown"]])
def test_bad_usage_ends_with_three(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 3
    assert "usage: specdec" in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "curve" in out
    assert "baseline" in out


def test_an_interrupt_has_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    install(monkeypatch, run)
    assert cli.main(["curve", "x"]) == 130
    assert capsys.readouterr().err == "specdec: interrupted\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    program = (
        "import sys, types; from pytest_specdec import cli; m = types.ModuleType('m');"
        "m.add_arguments = lambda parser: None; m.run = lambda a: print('x' * 1000000) or 0;"
        "sys.modules['m'] = m; cli.COMMANDS['curve'] = ('m', 'test'); sys.exit(cli.main(['curve']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), told) == (0, "")


def test_help_imports_no_command() -> None:
    program = (
        "import sys\nfrom pytest_specdec import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in sys.modules if m in ('numpy', 'pandas', 'llama_cpp')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
