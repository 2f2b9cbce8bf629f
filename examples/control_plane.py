"""A small control plane: it hears of events over MQTT, approves some, and tells what became of it.

It needs PyJWT and paho-mqtt, and nothing of the bridge:

    pip install "pyjwt[crypto]" paho-mqtt
    seb keys generate --issuer https://control.example --out control.jwk > trust.jwks
    python control_plane.py --host broker.example --key control.jwk

`trust.jwks` goes to each VM, as SEB_APPROVAL__TRUST; `control.jwk` stays here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import ssl
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import jwt
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

LIFETIME = 120  # seconds; at most 900
SEEN = (
    "eventId",
    "eventType",
    "resourceType",
    "eventStatus",
    "notBefore",
    "eventSource",
    "durationInSeconds",
)


def may_start(data: dict[str, Any]) -> bool:
    """Your decision, about `data` of a record. Here: short pauses of this VM alone."""
    event = data["event"]
    return (
        event["eventStatus"] == "Scheduled"
        and event["eventType"] == "Freeze"
        and len(event["resources"]) == 1  # an approval releases every VM that is listed
        and data["affectsThisVm"]
    )


def fingerprint(event: dict[str, Any]) -> str:
    """The hash of what you decide on: that in the record may be another event's."""
    seen = {name: event[name] for name in SEEN} | {"resources": sorted(event["resources"])}
    text = json.dumps(seen, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def approval(jwk: dict[str, Any], data: dict[str, Any]) -> str:
    """A signed command: this event, in this state, on this VM."""
    now = int(time.time())
    claims = {
        "iss": jwk["iss"],  # the key's own; any other is refused
        "sub": "example control plane",  # stands in the receipts as `actor`
        "aud": f"urn:seb:vm:{data['vm']['vmId']}",
        "iat": now,
        "nbf": now,
        "exp": now + LIFETIME,
        "jti": str(uuid.uuid4()),  # good once
        "act": "approve",
        "evt": data["event"]["eventId"],
        "evh": fingerprint(data["event"]),  # if the event is another one by then, it is refused
        "rsn": "a short pause of this VM alone",  # why; stands in the receipts too
    }
    header = {"kid": jwk["kid"], "typ": "seb-command+jwt"}
    return jwt.encode(claims, jwt.PyJWK(jwk).key, algorithm=jwk["alg"], headers=header)


class ControlPlane:
    """One connection for every VM of a site."""

    def __init__(self, jwk: dict[str, Any], *, site: str) -> None:
        self._jwk = jwk
        self._site = site
        self._told: set[str] = set()

    def on_connect(self, client: Client, *_: Any) -> None:
        """Listen again after each connection."""
        base = f"seb/v1/{self._site}/vm/+"
        client.subscribe([(f"{base}/event", 1), (f"{base}/receipt", 1)])

    def on_subscribe(self, *_: Any) -> None:
        """From now on nothing is missed."""
        say("listening")

    def on_message(self, client: Client, _data: Any, message: MQTTMessage) -> None:
        """A record; the same one may come twice, with the same id."""
        record = json.loads(message.payload)
        if record["id"] in self._told:
            return
        self._told.add(record["id"])
        data = record["data"]
        if message.topic.endswith("/receipt"):
            say(f"{data['evt']} {data['state']} {data['reason'] or ''} by {data['actor']}")
        elif record["type"].startswith("seb.event.") and may_start(data):
            topic = f"seb/v1/{self._site}/vm/{data['vm']['vmId']}/command"
            client.publish(topic, approval(self._jwk, data), qos=1, retain=False)
            say(f"{data['event']['eventId']} is approved for {data['vm']['name']}")


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{text.strip()}\n")
    sys.stdout.flush()


def main() -> None:
    """Connect, and work until interrupted."""
    parser = argparse.ArgumentParser(description="Approve short pauses of single VMs.")
    parser.add_argument("--host", required=True, help="the broker")
    parser.add_argument("--port", type=int, default=8883)
    parser.add_argument("--site", default="default", help="SEB_SITE of the VMs")
    parser.add_argument("--key", type=Path, required=True, help="private JWK")
    parser.add_argument("--username")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--cafile", type=Path, help="PEM file: the CA of the broker")
    parser.add_argument("--plain", action="store_true", help="no TLS, for a broker on this machine")
    told = parser.parse_args()
    plane = ControlPlane(json.loads(told.key.read_text()), site=told.site)
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.on_connect = plane.on_connect
    client.on_subscribe = plane.on_subscribe
    client.on_message = plane.on_message
    if told.username:
        secret = told.password_file and told.password_file.read_text().strip()
        client.username_pw_set(told.username, secret)
    if not told.plain:
        client.tls_set_context(ssl.create_default_context(cafile=told.cafile))
    client.connect(told.host, told.port)
    client.loop_forever()


if __name__ == "__main__":
    main()
