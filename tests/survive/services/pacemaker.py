"""Pacemaker: three nodes on Corosync, each in mount namespaces of its own, and one web server."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from support.ports import free_port

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import HERE, Unit

COROSYNC = """
system {{
    sched_rr: no
    priority: 0
    move_to_root_cgroup: no
}}
totem {{
    version: 2
    cluster_name: survive
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    token: 30000
    interface {{
        linknumber: 0
        mcastport: {port}
        knet_ping_interval: 500
    }}
}}
logging {{
    to_stderr: yes
    to_syslog: no
}}
quorum {{
    provider: corosync_votequorum
}}
nodelist {{
{nodes}}}
"""
CLUSTER = """
<cib validate-with="pacemaker-3.0" admin_epoch="0" epoch="1" num_updates="0">
  <configuration>
    <crm_config><cluster_property_set id="cluster">
      <nvpair id="fencing" name="stonith-enabled" value="false"/>
    </cluster_property_set></crm_config>
    <nodes/>
    <resources>
      <primitive id="web" class="ocf" provider="heartbeat" type="anything">
        <instance_attributes id="web-is">
          <nvpair id="web-program" name="binfile" value="{python}"/>
          <nvpair id="web-words" name="cmdline_options" value="{words}"/>
        </instance_attributes>
        <operations>
          <op id="web-monitor" name="monitor" interval="10s" timeout="20s"/>
        </operations>
      </primitive>
    </resources>
    <constraints/>
    <rsc_defaults><meta_attributes id="defaults">
      <nvpair id="sticky" name="resource-stickiness" value="1000"/>
    </meta_attributes></rsc_defaults>
  </configuration>
  <status/>
</cib>
"""
# What a boot empties, and what may come only after it.
START_COROSYNC = 'rm -rf "$1"/run/* "$1"/tmp/* "$1"/dev/shm/* && shift && exec "$@"'
START_PACEMAKER = "until corosync-quorumtool -s; do sleep 0.2; done; exec pacemakerd"
TRY = "hostname survive && mount -t overlay vm -o lowerdir=/etc:/usr /srv"
FIT = {"online": "true", "standby": "false", "pending": "false", "unclean": "false"}


class Pacemaker(Cluster):
    """The node that runs the web server leads. Each node has an address of 127.0.0.0/8."""

    NAME = "pacemaker"
    TITLE = "Pacemaker"
    NOTE = (
        "The resource is one web server with its data on a shared disk; its address is the same "
        "wherever it runs. `token` is 30 s, as Azure's guides have it, and there is no fencing: "
        "the cluster waits for a node that stands still or boots, and moves nothing."
    )
    TOOLS = ("crm_attribute", "crm_mon", "crm_resource")

    @classmethod
    def missing(cls) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "--uts", "sh", "-c", TRY],
            capture_output=True,
            text=True,
            check=False,
        )
        said = f"its nodes need root and mount namespaces: {done.stderr.strip()}"
        return said if done.returncode else ""

    def __init__(self) -> None:
        super().__init__()
        self._web_port, self._port = free_port(), free_port()
        shared = self.directory / "srv"
        shared.mkdir()
        (shared / "database").touch()
        shutil.copy(HERE / "web.py", shared)
        for vm in self.machines:
            self._furnish(vm.directory)
            tools = vm.directory / "bin"
            tools.mkdir()
            vm.tools = str(tools)
            for each in self.TOOLS:
                command = " ".join(_private(vm.directory, f"/usr/sbin/{each}"))
                (tools / each).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
                (tools / each).chmod(0o755)

    def _furnish(self, directory: Path) -> None:
        """What `private.sh` shows there in place of the machine's own."""
        for each in ("etc/libqb", "etc/corosync", "run/lock", "var/lib/corosync", "dev/shm", "tmp"):
            (directory / each).mkdir(parents=True)
        for each in ("dev/shm", "tmp"):  # its programs have an account of their own
            (directory / each).chmod(0o1777)
        # Without it the sockets have names of the whole machine.
        (directory / "etc" / "libqb" / "force-filesystem-sockets").touch()
        nodes = [
            f"    node {{\n        ring0_addr: {self._address(number)}\n"
            f"        name: {vm.name}\n        nodeid: {number + 1}\n    }}\n"
            for number, vm in enumerate(self.machines)
        ]
        settings = COROSYNC.format(port=self._port, nodes="".join(nodes))
        (directory / "etc" / "corosync" / "corosync.conf").write_text(settings)
        ours = ("var/lib/pacemaker", "var/lib/pacemaker/cib", "var/lib/pacemaker/pengine")
        for each in (*ours, "var/log/pacemaker"):
            (directory / each).mkdir(parents=True)
            shutil.chown(directory / each, "hacluster", "haclient")
        words = f"-SE /srv/web.py {self._web_port} /srv/none /srv/database"
        cluster = CLUSTER.format(python=Path(sys.executable).resolve(), words=words)
        cib = directory / "var/lib/pacemaker/cib/cib.xml"
        cib.write_text(cluster)
        cib.chmod(0o600)
        shutil.chown(cib, "hacluster", "haclient")

    @staticmethod
    def _address(number: int) -> str:
        return f"127.7.0.{number + 1}"

    def units(self, number: int) -> Mapping[str, Unit]:
        vm = self.machines[number].directory
        corosync = ["sh", "-c", START_COROSYNC, "sh", str(vm), *_private(vm, "corosync", "-f")]
        pacemaker = _private(vm, "sh", "-c", START_PACEMAKER)
        env = {"PCMK_logfile": "/var/log/pacemaker/pacemaker.log"}
        return {"corosync": Unit(command=corosync), "pacemaker": Unit(command=pacemaker, env=env)}

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        return {"PACEMAKER_NODE": self.machines[number].name}

    def _look(self, number: int) -> ET.Element:
        """The cluster as a node sees it."""
        vm = self.machines[number]
        command = [f"{vm.tools}/crm_mon", "-1", "--inactive", "--output-as=xml"]
        done = subprocess.run(
            command, env=vm.environment, check=True, capture_output=True, timeout=20
        )
        return ET.fromstring(done.stdout)

    def leader(self) -> int:
        up = next(number for number, vm in enumerate(self.machines) if vm.is_up)
        node = self._look(up).find("./resources/resource[@active='true']/node")
        names = [vm.name for vm in self.machines]
        return names.index("" if node is None else node.attrib["name"])

    def is_whole(self) -> bool:
        # The cluster learns of a node's death when `token` is over: what counts is what it knows.
        return all(self._sees_all(number) for number, vm in enumerate(self.machines) if vm.is_up)

    def _sees_all(self, number: int) -> bool:
        seen = self._look(number)
        nodes = [each.attrib for each in seen.findall("./nodes/node")]
        fit = [each for each in nodes if FIT.items() <= each.items()]
        quorum = seen.find("./summary/current_dc[@with_quorum='true']")
        web = seen.findall("./resources/resource[@active='true']/node")
        return len(fit) == MEMBERS and quorum is not None and len(web) == 1

    def client(self) -> Mapping[str, Any]:
        return {"kind": "web", "url": f"http://127.0.0.1:{self._web_port}"}

    def versions(self) -> str:
        pacemaker = subprocess.check_output(["/usr/sbin/pacemakerd", "--version"], text=True)
        corosync = subprocess.check_output(["/usr/sbin/corosync", "-v"], text=True)
        _, of_corosync, _ = corosync.split("'", 2)
        return f"Pacemaker {pacemaker.split()[1]}, Corosync {of_corosync}"


def _private(vm: Path, *command: str) -> list[str]:
    """A command that finds the VM's own files."""
    return ["unshare", "--mount", "--uts", "sh", str(HERE / "private.sh"), str(vm), *command]
