"""The rows of a new command: what the audit says of it, and what other consoles wait for."""

from __future__ import annotations

from console.approvals.command_sender import OutgoingCommand, with_site
from console.audit import audit_log
from console.audit.chain import AuditValue
from console.db.decisions import decision_rows
from console.db.snapshot import Snapshot
from console.fleet.values.decision import VmCommand


def write_new_command(
    snapshot: Snapshot,
    command: VmCommand,
    change_number: int,
    *,
    action: str,
    **details: AuditValue,
) -> OutgoingCommand | None:
    """Write the audit row of a command that was never sent, with this action and more details, and
    then the command's own row. Return what is to be sent after the commit, or None if the VM is not
    known any more.
    """
    connection = snapshot.connection
    audit_log.append(
        connection,
        at=snapshot.now,
        actor=command.subject,
        action=action,
        event_id=command.event_id,
        jti=command.jti,
        fingerprint=command.fingerprint,
        reason=command.reason,
        vm_id=command.vm_id,
        channel=command.channel,
        **details,
    )
    decision_rows.insert_command(connection, command, change_number)
    return with_site(connection, command)
