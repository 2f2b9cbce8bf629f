"""docs/linux.md, steps 7 and 9, and docs/prepare-and-recover.md, on the same machine."""

from __future__ import annotations

import shlex

import pytest
from support.eventually import eventually
from support.ground.doc_page import PageBlocks
from support.ground.nspawn import SOURCE, Machine
from support.ground.service import show, this_run

PREPARE = "docs/prepare-and-recover.md"
pytestmark = pytest.mark.timeout(600)


def test_drain(machine: Machine, page: PageBlocks) -> None:
    """examples/drain.sh runs within the unit: it waits for connections, marks, and unmarks."""
    prepare = PageBlocks(PREPARE)
    settings = shlex.quote(prepare.file("/etc/seb/seb.env"))
    machine.run(f"printf %s {settings} >> /etc/seb/seb.env")
    machine.run(prepare.take("On Linux"))
    machine.run("echo Environment=DRAIN_PORT=9 >> /etc/systemd/system/seb.service.d/drain.conf")
    machine.file("/etc/systemd/system/imds.service").write_text(
        "[Service]\nExecStart=/opt/seb/bin/seb simulate user-reboot --speed 60 --loop\n"
    )
    machine.run("systemctl daemon-reload; systemctl restart imds seb")
    marks = "ls /run/drain | wc -l; stat -c %a /run/drain"
    for wanted in ("1", "0"):
        eventually(
            lambda wanted=wanted: machine.run(marks).split() == [wanted, "755"],  # type: ignore[misc]
            what=f"{wanted} marks",
            timeout=120,
        )
    assert "sink_down" not in this_run(machine)


def test_marks_outlive_a_restart(machine: Machine) -> None:
    """A restart of the bridge does not put the VM back into service."""
    machine.run("systemctl stop seb; touch /run/drain/of-another-event; systemctl start seb")
    assert "of-another-event" in machine.run("ls /run/drain")
    machine.run("rm /run/drain/of-another-event")


def test_a_service_is_stopped(machine: Machine, page: PageBlocks) -> None:
    """Part 7's account and rule of polkit let a program stop that service, and no other."""
    for name in ("haproxy", "other"):
        unit = "[Service]\nExecStart=/bin/sleep infinity\n"
        machine.file(f"/etc/systemd/system/{name}.service").write_text(unit)
    machine.file("/usr/local/bin/stop.sh").write_text(
        "#!/bin/sh\nsystemctl --no-ask-password stop other.service && exit 65\n"
        "exec systemctl --no-ask-password stop haproxy.service\n"
    )
    settings = 'KIND=program COMMAND=/usr/local/bin/stop.sh TYPES=[\\"seb.event.*\\"]'
    machine.run(f"""
        chmod 755 /usr/local/bin/stop.sh
        for each in {settings}; do echo "SEB_SINK__STOP__$each" >> /etc/seb/seb.env; done
        systemctl daemon-reload; systemctl start haproxy other
    """)
    machine.run(page.take("A permanent account"))
    machine.run(page.take("A program that starts or stops another service"))
    eventually(
        lambda: machine.run("systemctl is-active haproxy || :").strip() == "inactive",
        what="the end of haproxy",
        timeout=90,
    )
    assert machine.run("systemctl is-active other").strip() == "active"
    assert show(machine, "DynamicUser") == "yes"


def test_logs_directory(machine: Machine) -> None:
    """Part 7's line for the file sink lets it write below /var/log."""
    machine.run("""
        printf '[Service]\nLogsDirectory=seb\n' > /etc/systemd/system/seb.service.d/logs.conf
        echo SEB_SINK__FILE__PATH=/var/log/seb/records.jsonl >> /etc/seb/seb.env
        systemctl daemon-reload; systemctl restart seb
    """)
    eventually(
        lambda: machine.outcome("test -s /var/log/seb/records.jsonl").returncode == 0,
        what="records in the file",
    )


def test_remove(machine: Machine, page: PageBlocks) -> None:
    """Step 9 leaves no file, no account and no unit."""
    stop, rest = page.take("9. Remove").split("\n", 1)
    machine.run(stop)
    assert show(machine, "Result") == "success", this_run(machine)[-3000:]
    machine.run(rest)
    machine.run(page.take("9. Remove"))
    left = machine.run(f"""
        find / -xdev \\( -path {SOURCE} -o -path /proc -o -path /var/log/journal \\) -prune -o \\
          \\( -iname '*seb*' -o -name 'scheduled-events*' -o -path /run/drain \\) -print |
          grep -vE '^(/usr/(share|lib|bin|sbin)|/etc/(alternatives|hosts)|/sys)/' || :
        getent passwd seb || :
        systemctl list-unit-files --no-legend 'seb*' || :
        systemctl --failed --no-legend
    """)
    assert left.split() == []


def test_everything_was_executed(page: PageBlocks) -> None:
    """No command of the page is left out."""
    assert page.left() == []
