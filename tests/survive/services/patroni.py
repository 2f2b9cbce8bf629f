"""PostgreSQL under Patroni: three members, with an etcd of their own beside them."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import requests
from support.ports import free_port
from support.postgresql import executable

from tests.survive.cluster import MEMBERS, Cluster
from tests.survive.machine import ORDINARY_USER, Unit


class Patroni(Cluster):
    """Patroni's defaults for every time limit; asynchronous replicas."""

    NAME = "patroni"
    TITLE = "PostgreSQL with Patroni"
    NOTE = (
        "The clients' connection string names all members. A client that finds no leader tries "
        "again after 20 ms, and each try counts as failed; a leader that stands still answers "
        "late, and fails nothing. The gap with `seb` is the switchover itself: PostgreSQL ends on "
        "the old leader before it begins on the new one."
    )
    TOOLS = ("curl", "systemctl")

    def __init__(self) -> None:
        super().__init__()
        self._etcd_port, self._etcd_peer = free_port(), free_port()
        self._ports = [free_port() for _ in range(MEMBERS)]
        self.apis = [f"http://127.0.0.1:{free_port()}" for _ in range(MEMBERS)]
        self._etcd: subprocess.Popen[bytes] | None = None
        for number in range(MEMBERS):
            self._write_settings(number)

    def _write_settings(self, number: int) -> None:
        machine = self.machines[number]
        home = machine.directory / "postgresql"
        home.mkdir()
        if ORDINARY_USER is not None:
            shutil.chown(home, ORDINARY_USER)
        settings = {
            "scope": "survive",
            "name": machine.name,
            "restapi": {
                "listen": self.apis[number].removeprefix("http://"),
                "connect_address": self.apis[number].removeprefix("http://"),
            },
            "etcd3": {"hosts": f"127.0.0.1:{self._etcd_port}"},
            "bootstrap": {
                "dcs": {"postgresql": {"use_pg_rewind": True}},
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self._ports[number]}",
                "connect_address": f"127.0.0.1:{self._ports[number]}",
                "data_dir": str(home / "data"),
                "bin_dir": str(Path(executable("postgres")).resolve().parent),
                "pgpass": str(home / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "postgres"},
                    "rewind": {"username": "postgres"},
                },
                "parameters": {"unix_socket_directories": str(home), "shared_buffers": "16MB"},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
            },
        }
        # YAML can be JSON.
        (machine.directory / "patroni.yml").write_text(json.dumps(settings, indent=1))

    def start_shared(self) -> None:
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._etcd_peer}"
        command = ["etcd", "--name", "dcs", "--data-dir", str(self.directory / "dcs")]
        command += ["--listen-client-urls", url, "--advertise-client-urls", url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"dcs={peer}"]
        with (self.directory / "dcs.log").open("wb") as log:
            self._etcd = subprocess.Popen(command, stdout=log, stderr=log)

    def stop_shared(self) -> None:
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()

    def units(self, number: int) -> Mapping[str, Unit]:
        settings = self.machines[number].directory / "patroni.yml"
        return {"patroni": Unit(command=["/usr/bin/patroni", str(settings)], user=ORDINARY_USER)}

    def recipe_environment(self, number: int) -> Mapping[str, str]:
        others = [url for each, url in enumerate(self.apis) if each != number]
        return {
            "PATRONI_NAME": self.machines[number].name,
            "PATRONI_SELF": self.apis[number],
            "PATRONI_OTHERS": " ".join(others),
        }

    def _get(self, path: str) -> Any:
        for url in self.apis:
            try:
                return requests.get(f"{url}/{path}", timeout=2).json()
            except requests.RequestException:
                continue
        raise OSError("no member answers")

    def leader(self) -> int:
        names = [
            each["name"] for each in self._get("cluster")["members"] if each["role"] == "leader"
        ]
        return [machine.name for machine in self.machines].index(names[0])

    def is_whole(self) -> bool:
        for url in self.apis:
            requests.get(f"{url}/health", timeout=2).raise_for_status()
        members = self._get("cluster")["members"]
        fit = [each for each in members if each["role"] == "leader" or each["lag"] == 0]
        return len(fit) == MEMBERS and not self._get("config").get("seb_turn")

    def prepare_once(self) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.execute("CREATE TABLE n (n bigint PRIMARY KEY)")

    @property
    def _dsn(self) -> str:
        ports = ",".join(map(str, self._ports))
        hosts = ",".join(["127.0.0.1"] * MEMBERS)
        return (
            f"postgresql://postgres@/postgres?host={hosts}&port={ports}"
            "&target_session_attrs=read-write&connect_timeout=2"
        )

    def client(self) -> Mapping[str, Any]:
        return {"kind": "postgresql", "dsn": self._dsn}

    def versions(self) -> str:
        server = subprocess.check_output([executable("postgres"), "--version"], text=True).split()[
            2
        ]
        patroni = subprocess.check_output(["/usr/bin/patroni", "--version"], text=True).split()[1]
        return f"PostgreSQL {server}, Patroni {patroni}, etcd beside them"
