"""What is approved is what was seen: a VM that shows other VMs under the hash of a real event."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from support.console.deciding import audit, made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.records.parse import parse_state


def test_a_state_that_hides_vms_leads_to_no_command(tmp_path: Path) -> None:
    """It cannot prove its hash; the VM that would release the hidden ones is not asked."""
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path, KEY=str(key)) as stage:
        honest, other = FakeVm(name="web-1"), FakeVm(name="other")
        names = ["web-1", "web-2", "web-3"]
        record = honest.event("E", resources=names, not_before=stage.moment(600), now=stage.now)
        stage.put(record)
        stage.takes_commands(honest)
        later = stage.now + timedelta(seconds=1)
        state = json.loads(other.state(record, now=later))
        state["events"][0] |= {"resources": ["web-1"], "recordId": "forged"}
        stage._deliver(
            [
                parse_state(
                    json.dumps(state).encode(),
                    source="web",
                    received_at=later.timestamp(),
                    vm_id=other.vm_id,
                    site="default",
                )
            ]
        )
        (item,) = stage.http.get(f"{stage.url}/api/v1/events").json()["items"]
        assert [each["name"] for each in item["resources"]] == ["web-1"]
        assert item["fingerprint"] == record.data["fingerprint"]
        assert item["differing"]
        answer = stage.http.post(
            f"{stage.url}/api/v1/events/E/approve",
            json={"fingerprint": item["fingerprint"], "reason": "r"},
            timeout=10,
        )
        assert answer.status_code == 409
        assert [row["action"] for row in audit(stage)] == ["refused"]
