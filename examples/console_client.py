"""A control plane on top of the console: approves short pauses of single VMs, and tells the end.

    pip install requests
    SEB_CONSOLE_URL=https://console.example SEB_CONSOLE_TOKEN=... python console_client.py

The console signs, sends, follows and writes the audit; this is only your decision. The token is
one of `seb console token add NAME --role approver --days 90`.
"""

import os
import sys
import time

import requests

API = os.environ.get("SEB_CONSOLE_URL", "http://127.0.0.1:9470").rstrip("/") + "/api/v1"
console = requests.Session()
if os.environ.get("SEB_CONSOLE_TOKEN"):
    console.headers["Authorization"] = f"Bearer {os.environ['SEB_CONSOLE_TOKEN']}"
under_way: dict[str, str] = {}

while True:
    for event in console.get(f"{API}/events?state=open", timeout=30).json()["items"]:
        # An approval releases every VM that the event lists: decide about all of them.
        if event["decision"]["state"] != "due" or event["eventId"] in under_way.values():
            continue
        if event["eventType"] == "Freeze" and len(event["resources"]) == 1:
            seen = {"fingerprint": event["fingerprint"], "reason": "a short pause of one VM"}
            answer = console.post(f"{API}/events/{event['eventId']}/approve", json=seen, timeout=30)
            if answer.ok and answer.json()["jti"]:  # 409 if it has changed meanwhile
                under_way[answer.json()["jti"]] = event["eventId"]
    for jti in list(under_way):
        command = console.get(f"{API}/commands/{jti}", timeout=30).json()
        if command["state"] in ("confirmed", "failed", "rejected", "unanswered"):
            sys.stdout.write(f"{under_way.pop(jti)} {command['state']} {command['reason'] or ''}\n")
            sys.stdout.flush()
    time.sleep(1)
