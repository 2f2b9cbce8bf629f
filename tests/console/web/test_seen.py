"""What is approved is what was seen: a VM that shows other VMs under the hash of a real event."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.console.decision_bench import audit, made_key
from support.console.records import FakeVm
from support.console.stage import ConsoleStage

from console.records.incoming import IncomingState
from console.records.parse import ForeignError, parse_state

LIES: list[dict[str, Any]] = [
    {"resources": ["web-1"]},
    {"eventType": "Freeze", "impact": "pause"},
    {"notBefore": "2031-01-01T00:00:00Z"},
]


def state_of(state: dict[str, Any], vm: FakeVm, received_at: float) -> IncomingState:
    """Return the state document with these values, as it comes in."""
    body = json.dumps(state).encode()
    return parse_state(body, source="web", received_at=received_at, vm_id=vm.vm_id, site="default")


@pytest.mark.parametrize("first", ["record", "state"])
@pytest.mark.parametrize("lie", LIES)
def test_a_state_that_hides_something_leads_to_no_command(
    tmp_path: Path, lie: dict[str, Any], first: str
) -> None:
    """Nothing is approved by a state document that lacks a part of what the hash covers, and a
    named VM's report counts more.
    """
    key, _ = made_key(tmp_path / "keys")
    with ConsoleStage(tmp_path, KEY=str(key)) as stage:
        honest, other = FakeVm(name="web-1"), FakeVm(name="other")
        names = ["web-1", "web-2", "web-3"]
        record = honest.event("E", resources=names, not_before=stage.moment(600), now=stage.now)
        later = stage.now + timedelta(seconds=1)
        state = json.loads(other.state(record, now=later))
        state["events"][0] |= {"recordId": "forged", **lie}
        del state["events"][0]["eventSource"]
        forged = state_of(state, other, later.timestamp())
        stage.put(record) if first == "record" else stage._deliver([forged])
        (item,) = stage.http.get(f"{stage.url}/api/v1/events").json()["items"]
        alone = item["fingerprint"]
        assert (alone == record.data["fingerprint"]) == (first == "record")
        stage._deliver([forged]) if first == "record" else stage.put(record)
        stage.takes_commands(honest)
        (item,) = stage.http.get(f"{stage.url}/api/v1/events").json()["items"]
        assert item["differing"]
        shows = {name: item[name] for name in ("eventType", "impact", "notBefore")}
        shows["resources"] = [each["name"] for each in item["resources"]]
        assert all(shows.get(name, value) != value for name, value in lie.items())
        assert item["fingerprint"] == record.data["fingerprint"]
        if first == "record":
            return
        answer = stage.http.post(
            f"{stage.url}/api/v1/events/E/approve",
            json={"fingerprint": alone, "reason": "r"},
            timeout=10,
        )
        assert answer.status_code == 409
        assert [row["action"] for row in audit(stage)] == ["refused"]


@pytest.mark.parametrize("lie", LIES)
def test_a_state_that_has_another_hash_is_not_taken(lie: dict[str, Any]) -> None:
    """A state document with all that the hash covers is refused if the hash is another."""
    vm, now = FakeVm(name="web-1"), datetime.now(UTC)
    state = json.loads(vm.state(vm.event("E", resources=["web-1", "web-2"]), now=now))
    assert state_of(state, vm, now.timestamp()).events[0][1].is_proven
    state["events"][0] |= lie
    with pytest.raises(ForeignError, match="fingerprint: it is not that of the event"):
        state_of(state, vm, now.timestamp())
