"""The whole demo: a console, nine VMs, their stories, and an end that leaves nothing."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from console import http_client
from console.config.groups import GroupSettings
from console.config.settings import ConsoleSettings
from console.demo import stories
from console.demo.stories import Stories
from console.demo.vms import DemoVm
from console.service.console import Console
from wire.keys import generate, public

_READY_SECONDS: Final = 30.0
_RULE: Final = json.dumps(
    [{"name": "user-reboots", "event_type": ["Reboot"], "event_source": ["User"]}]
)

_CLUSTER: Final = GroupSettings.model_validate(
    {"name": "etcd", "match": {"name": ["etcd-*"]}, "approve": {}}
)
_PREPARES: Final = json.dumps(
    ["ping", "-n", "4", "127.0.0.1"] if sys.platform == "win32" else ["sleep", "3"]
)
"""Stands for a program that drains the VM: it takes three seconds."""


class Demo:
    """Everything that the demo starts; the caller removes `directory`."""

    def __init__(self, directory: Path, *, listen: str, on_ready: Callable[[str], None]) -> None:
        self._directory = directory
        self._listen = listen
        self._on_ready = on_ready
        self._key = os.urandom(32)
        self._trust = directory / "trust.jwks"
        self._stories = Stories()
        self.vms: list[DemoVm] = []

    def run(self) -> None:
        """Run until Ctrl-C or SIGTERM. Raises `ConfigurationError`, `OSError`."""
        key_file = self._directory / "enroll.key"
        key_file.touch(mode=0o600)
        key_file.write_text(base64.b64encode(self._key).decode(), encoding="ascii")
        control = self._directory / "control.jwk"
        jwk = generate(issuer=f"http://{self._listen}", kid=None, alg="EdDSA")
        control.touch(mode=0o600)
        control.write_text(json.dumps(jwk), encoding="ascii")
        self._trust.write_text(json.dumps({"keys": [public(jwk)]}), encoding="ascii")
        # Only these settings count: no variable and no file can point the demo elsewhere.
        settings = ConsoleSettings(
            listen=self._listen,
            state_dir=self._directory,
            source={"webhook": {"kind": "webhook"}},
            enroll_key_file=key_file,
            pull=True,
            key=control,
            groups=(_CLUSTER,),
        )
        console = Console(settings)
        self._stories.start(self._begin)
        try:
            console.run()
        finally:
            self._end()

    def _begin(self) -> None:
        """Start the VMs and their stories, once the console answers."""
        if not self._answers():
            return
        self._on_ready(f"http://{self._listen}/")
        wait = self._stories.wait
        web = [self._vm(f"web_{n}", site="amsterdam", scale_set="web") for n in range(3)]
        self._stories.start(lambda: stories.host_update(web, wait))
        # A visitor should see the shared event first: the other VMs start once it is there.
        if any(stories.has_looked(vm, wait) for vm in web):
            return
        preparing = {
            "SEB_SINK__DRAIN__KIND": "program",
            "SEB_SINK__DRAIN__COMMAND": _PREPARES,
            "SEB_SINK__DRAIN__PREPARES": "true",
        }
        cluster = [self._vm(f"etcd-{n}", site="dublin", settings=preparing) for n in (1, 2, 3)]
        self._stories.start(lambda: stories.overlap(cluster, wait))
        database = self._vm("db-1", site="dublin", settings={"SEB_APPROVAL__RULES": _RULE})
        self._stories.start(lambda: stories.user_reboot(database, wait))
        spot = self._vm("spot-1", site="dublin")
        self._stories.start(lambda: stories.eviction(spot, wait))
        cache = self._vm("cache-1", site="dublin")
        self._stories.start(lambda: stories.crash(cache, wait))

    def _vm(self, name: str, **more: object) -> DemoVm:
        url = f"http://{self._listen}"
        vm = DemoVm(
            name,
            directory=self._directory,
            url=url,
            key=self._key,
            trust=self._trust,
            **more,  # type: ignore[arg-type]
        )
        self.vms.append(vm)
        vm.start()
        return vm

    def _answers(self) -> bool:
        """Check whether the console answers. Its socket accepts connections before it can be
        stopped.
        """
        for _ in range(int(_READY_SECONDS / 0.1)):
            if http_client.answers(f"http://{self._listen}/healthz", seconds=1) is not None:
                return True
            if self._stories.wait(0.1):
                return False
        return False

    def _end(self) -> None:
        self._stories.stop()
        for vm in self.vms:
            vm.ask_to_end()
        for vm in self.vms:
            vm.end()
