"""Where settings come from: command line, environment, ini file, in this order."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_specdec.settings import OPTIONS
from pytest_specdec.settings import Option
from pytest_specdec.settings import Settings


def add_options(parser: pytest.Parser) -> None:
    """Declare every option and its ini twin."""
    group = parser.getgroup("specdec", "speculative decoding (pytest-specdec)")
    for option in OPTIONS.values():
        told = "" if option.default in (None, ()) else f" (default: {option.kind.show(option.default)})"
        kwargs: dict[str, Any] = {"action": "append"} if option.kind.repeatable else {}
        group.addoption(
            option.flag,
            dest=option.ini,
            default=None,
            type=_argument(option),
            metavar=option.kind.metavar,
            help=option.help + told,
            **kwargs,
        )
        parser.addini(option.ini, option.help + told, type=option.kind.ini, default=None)


def resolve(config: pytest.Config, environ: Mapping[str, str] | None = None) -> Settings:
    """Settle every setting: command line, else environment, else ini file, else default.

    Relative paths begin where they were written: in the working directory for the command line and the
    environment, at the configuration file for ini values, at rootdir for defaults. An empty environment
    variable counts as unset.

    Raises:
        pytest.UsageError: a value doesn't fit, or two exclude each other; the message names the option,
            variable or ini key.
    """
    values = os.environ if environ is None else environ
    here = config.invocation_params.dir
    settled: dict[str, Any] = {"rootdir": config.rootpath}
    for option in OPTIONS.values():
        kind = option.kind
        if (given := config.getoption(option.ini, None)) is not None:
            value, base = _checked(option.flag, kind.check, given), here
        elif text := values.get(option.variable):
            value, base = _checked(option.variable, kind.read, text), here
        elif (stated := _ini(config, option)) is not None:
            value = _checked(f"{option.ini}{_in(config)}", kind.check, stated)
            base = config.inipath.parent if config.inipath else here
        else:
            value, base = option.default, config.rootpath
        settled[option.name] = kind.locate(value, base)
    settings = Settings(**settled)
    if settings.compares_live:
        for name, set_ in (("update", settings.update != "none"), ("replay", settings.replay is not None)):
            if set_:
                raise pytest.UsageError(
                    f"{OPTIONS[name].flag} and {OPTIONS['against'].flag} exclude each other: against an old "
                    "build, nothing stored is read or written"
                )
        _checked(OPTIONS["against_param"].flag, lambda _: settings.old_arm(), None)
    if settings.replay is not None and settings.update != "none":
        raise pytest.UsageError(
            f"{OPTIONS['update'].flag}={settings.update} and {OPTIONS['replay'].flag} exclude each other: a "
            "replay measures nothing, so there is nothing to record"
        )
    return settings


def _argument(option: Option) -> Callable[[str], Any]:
    # What argparse stores must stay a builtin type: pytest-xdist sends it to its workers.
    def argument(text: str) -> Any:
        from argparse import ArgumentTypeError

        try:
            return option.kind.argument(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return argument


def _ini(config: pytest.Config, option: Option) -> Any:
    try:
        return config.getini(option.ini)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{option.ini}{_in(config)}: {error}") from None


def _in(config: pytest.Config) -> str:
    return f" ({config.inipath})" if config.inipath else ""


def _checked(name: str, convert: Callable[[Any], Any], value: object) -> Any:
    try:
        return convert(value)
    except ValueError as error:
        raise pytest.UsageError(f"{name} {error}") from None
