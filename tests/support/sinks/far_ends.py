"""The far ends that docs/linux.md names, in a machine of their own: `broker.example` and
`ops.example` with TLS, and an IMDS that plays a maintenance again and again.
"""

import json
from pathlib import Path
from typing import Any, Final

from support.ground.nspawn import Machine
from support.sinks.throwaway_ca import ThrowawayCa

PASSWORD: Final = "s3cret-of-the-ground"
IMDS: Final = "SEB_IMDS__URL=http://127.0.0.1:8169\n"
_RECEIVED: Final = "/var/lib/receiver/records.jsonl"
_RECEIVER: Final = """\
import http.server, ssl
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open({received!r}, "ab") as file:
            file.write(body + b"\\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Receiver)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain({cert!r}, {key!r})
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
_BROKER: Final = """\
listener 8883 127.0.0.1
certfile /etc/far/server.pem
keyfile /etc/far/server.key
allow_anonymous false
password_file /etc/far/passwd
"""
_UNIT: Final = """\
[Unit]
Before=seb.service
[Service]
ExecStart={command}
[Install]
WantedBy=multi-user.target
"""


def receiver(*, cert: Path, key: Path, received: Path) -> str:
    """A program that is `ops.example`: it listens on port 443 and appends records to a file."""
    return _RECEIVER.format(cert=str(cert), key=str(key), received=str(received))


def records(path: Path) -> list[dict[str, Any]]:
    """What a receiver has got, in order."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class FarEnds:
    """Made once the bridge is installed; `receiver` is the webhook's service, started by tests."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def make(self) -> None:
        """Certificates that the machine trusts, names, a broker, an IMDS and a receiver."""
        machine = self._machine
        far = machine.file("/etc/far")
        pair = ThrowawayCa(far).server(hosts=("broker.example", "ops.example"))
        (far / "server.pem").write_bytes(pair.cert.read_bytes())
        there = Path("/etc/far")
        source = receiver(
            cert=there / "server.pem", key=there / "server.key", received=Path(_RECEIVED)
        )
        (far / "receiver.py").write_text(source)
        with machine.file("/etc/hosts").open("a") as hosts:
            hosts.write("127.0.0.1 broker.example ops.example\n")
        machine.file("/etc/mosquitto/conf.d/far.conf").write_text(_BROKER)
        simulate = "/opt/seb/bin/seb simulate host-maintenance --speed 30 --loop"
        units = {"imds": simulate, "receiver": "/usr/bin/python3 /etc/far/receiver.py"}
        for name, command in units.items():
            unit = _UNIT.format(command=command)
            machine.file(f"/etc/systemd/system/{name}.service").write_text(unit)
        machine.run(f"""
            cat /etc/far/ca.pem >> /etc/ssl/certs/ca-certificates.crt
            mosquitto_passwd -c -b /etc/far/passwd vm {PASSWORD}
            mkdir -p /var/lib/receiver
            chown -R mosquitto: /etc/far; chmod 755 /etc/far
            systemctl daemon-reload
            systemctl restart mosquitto
            systemctl enable -q --now imds
        """)

    def received(self) -> list[dict[str, Any]]:
        """What the webhook has got, in order."""
        return records(self._machine.file(_RECEIVED))
