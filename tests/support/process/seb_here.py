"""A `seb` command in this process, for what ends before it has started anything: a tenth of the
time of a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.process.bridge import NOWHERE, Ended

from bridge.cli import main


def seb_here(
    *arguments: str,
    home: Path,
    env: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Ended:
    """The outcome of the command, with these variables and no other of ours."""
    with monkeypatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("SEB_"):
                patch.delenv(name)
        for name, value in {"SEB_IMDS__URL": NOWHERE, **env}.items():
            patch.setenv(name, value)
        patch.chdir(home)
        patch.setattr(sys, "argv", ["seb", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    out, err = capsys.readouterr()
    return Ended(int(ended.value.code or 0), out, err)
