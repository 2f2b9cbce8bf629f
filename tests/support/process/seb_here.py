"""A `seb` command in this process: a tenth of the time of a process of its own."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.process.bridge import NOWHERE, EndedCommand

from bridge.cli import main

_DEFAULTS = {"SEB_IMDS__URL": NOWHERE, "SEB_HTTP__LISTEN": ""}


class LeftError(BaseException):
    """The command has ended its process, which is that of the tests too."""

    def __init__(self, code: int) -> None:
        self.code = code


def _leave(code: int) -> None:
    raise LeftError(code)


Here = Callable[..., EndedCommand]


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    """Runs a command with these variables and no other of ours: one that starts nothing."""

    def run(*arguments: str, **env: str) -> EndedCommand:
        with monkeypatch.context() as patch:
            for name in list(os.environ):
                if name.startswith("SEB_"):
                    patch.delenv(name)
            for name, value in {**_DEFAULTS, **env}.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["seb", *arguments])
            patch.setattr(os, "_exit", _leave)
            with pytest.raises((SystemExit, LeftError)) as ended:
                main()
        out, err = capsys.readouterr()
        code = ended.value.code if isinstance(ended.value, (SystemExit, LeftError)) else None
        return EndedCommand(int(code or 0), out, err)

    return run
