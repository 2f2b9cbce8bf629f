"""The commands of a person, as the installed seb.exe, on Windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.simulator.events import SimulatedEvent
from bridge.simulator.simulator import Simulator

if TYPE_CHECKING:
    from support.process.launch import Launch

    from tests.ground.windows.conftest import Seb


def test_the_demo_ends(seb: Seb) -> None:
    """`seb demo` shows an event from its notice to its end, and ends by itself."""
    played = seb("demo")
    types = [json.loads(line)["type"] for line in played.out.splitlines()]
    wanted = [f"seb.event.{each}.v1" for each in ("scheduled", "started", "ended")]
    assert (played.code, [each for each in types if each in wanted]) == (0, wanted)


def test_the_check(seb: Seb, launch: Launch) -> None:
    """`seb check` passes, and writes paths in other scripts as UTF-8."""
    path = launch.home / "records.jsonl"
    result = seb("check", SEB_SINK__FILE__PATH=str(path))
    assert (result.code, "FAIL" in result.out) == (0, False), result
    assert "事件" in result.out


def test_the_schema(seb: Seb) -> None:
    """`seb schema`, redirected, is JSON in UTF-8."""
    assert "properties" in json.loads(seb("schema").out)


def test_settings_from_a_file(seb: Seb, launch: Launch) -> None:
    """A settings file in a path with spaces and other scripts is read, and wrong ones are 78."""
    path = launch.home / "seb.toml"
    path.write_text("site = 'größe'\r\n", "utf-8-sig")
    assert "größe" in seb("config", "show", SEB_CONFIG=str(path)).out
    path.write_text("scope = 'nobody'\r\n", "utf-8")
    wrong = seb("check", SEB_CONFIG=str(path))
    assert wrong.code == 78, wrong


def test_before_imds_answers(seb: Seb, launch: Launch) -> None:
    """`seb outbox list` answers while the running bridge still waits for IMDS."""
    bridge = launch(SEB_IMDS__URL="http://127.0.0.1:9", SEB_SINK__FILE__PATH="out.jsonl")
    bridge.wait_for_log("identity_trouble")
    result = seb("outbox", "list")
    assert (result.code, "file" in result.out) == (0, True), result


def test_a_running_bridge_answers(seb: Seb, launch: Launch) -> None:
    """`seb status` and `seb outbox list` ask the running bridge."""
    bridge = launch(SEB_SINK__FILE__PATH="out.jsonl", SEB_HTTP__LISTEN="127.0.0.1:0")
    server = bridge.wait_for_log("http_listening")
    fields = {"SEB_HTTP__LISTEN": str(server["address"])}
    assert seb("status", "--alive", **fields).code == 0
    status = seb("status", **fields)
    assert (status.code, "file" in status.out) == (0, True), status
    listed = seb("outbox", "list")
    assert (listed.code, "file" in listed.out) == (0, True), listed


def test_one_bridge_a_state_directory(launch: Launch) -> None:
    """A second bridge with the same state directory ends with 75 and says why."""
    launch().wait_for_records(1)
    second = launch()
    assert second.wait() == 75
    assert "in use by another bridge" in second.errors


def test_a_person_approves(seb: Seb, launch: Launch, simulator: Simulator) -> None:
    """`seb approve` starts the event at IMDS."""
    bridge = launch()
    bridge.wait_for_records(1)
    event = simulator.announce(SimulatedEvent(event_type="Reboot"))
    bridge.wait_for_records(1, types="seb.event.scheduled")
    result = seb("approve", event.event_id, "--yes")
    assert (result.code, len(simulator.approvals)) == (0, 1), result


def test_a_private_key_is_its_owners(seb: Seb, launch: Launch) -> None:
    """`seb keys generate --out` makes a key that other users of the machine cannot read."""
    made = seb("keys", "generate", "--issuer", "https://control.example", "--out", "key.json")
    assert made.code == 0, made
    assert "d" in json.loads((launch.home / "key.json").read_text("utf-8"))
    others = {"WD", "BU", "AU"}  # SDDL: everyone, users, whoever has logged in
    assert readers(launch.home / "key.json") & others == set()


def readers(path: Path) -> set[str]:
    """Who is allowed anything on a file, as SDDL names them."""
    import ctypes  # noqa: PLC0415
    import re  # noqa: PLC0415

    library = ctypes.windll.advapi32  # type: ignore[attr-defined]
    described, text = ctypes.c_void_p(), ctypes.c_wchar_p()
    dacl, a_file = 4, 1
    code = library.GetNamedSecurityInfoW(
        str(path), a_file, dacl, None, None, None, None, ctypes.byref(described)
    )
    assert code == 0, code
    assert library.ConvertSecurityDescriptorToStringSecurityDescriptorW(
        described, 1, dacl, ctypes.byref(text), None
    )
    return {entry.split(";")[5] for entry in re.findall(r"\(([^)]*)\)", text.value or "")}
