"""docs/console-install.md, "Without the package": a service and a command, from a checkout."""

from __future__ import annotations

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import Machine, missing

pytestmark = pytest.mark.timeout(900)


def test_the_same_as_with_the_package() -> None:
    """The account, the folders, a service that is ready, and a command with its settings: a value
    that a shell would run is not run.
    """
    if why := missing():
        pytest.skip(why)
    page = PageBlocks("docs/console-install.md", by="tests/ground/test_console_without_package.py")
    with Machine() as machine:
        machine.run(page.take("Without the package"), network=True, timeout=600)
        machine.file("/etc/seb/console.env").write_text(
            "SEB_CONSOLE_SOURCE__WEBHOOK__KIND=webhook\n"
            "SEB_CONSOLE_ENROLL_KEY_FILE=/etc/seb/console/enroll.key\n"
            'SEB_CONSOLE_ROLES={"viewer": ["group:$(touch /run/ran)", "group:a;touch /run/ran"]}\n'
        )
        machine.run("""
            install -m 0640 -g seb-console /dev/null /etc/seb/console/enroll.key
            openssl rand -base64 32 > /etc/seb/console/enroll.key
            seb console check
            systemctl enable -q --now seb-console
        """)
        eventually(
            lambda: machine.outcome("curl -fsS http://127.0.0.1:9470/readyz").returncode == 0,
            what="a console that is ready",
            timeout=120,
        )
        assert "SEB_SINK__CONSOLE__SECRET=" in machine.run("seb console enroll vm-a")
        assert machine.outcome("test -e /run/ran").returncode == 1
    assert page.left() == []
