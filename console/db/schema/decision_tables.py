"""The tables of decisions: audit, decisions, commands, turns and notices."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, Table, Text, text

from console.db.schema.tables import metadata

# Append-only: a trigger refuses every UPDATE and DELETE. `body` is the row's canonical JSON
# without its hash, `hash` the SHA-256 of it.
audit: Final = Table(
    "audit",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Float(53), nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("event_id", Text),
    Column("jti", Text),
    Column("body", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index("audit_event", "event_id"),
)

# One row with number and hash of the newest row that was ever written: it shows when rows were
# deleted from the end of the audit.
audit_head: Final = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)

# One row per decision; at most one of an event is not over.
decision: Final = Table(
    "decision",
    metadata,
    Column("id", Text, primary_key=True),
    Column("event_id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("kind", Text, nullable=False),  # approve, leave
    Column("state", Text, nullable=False),  # second, open, over
    Column("actor", Text, nullable=False),
    Column("second_actor", Text),
    Column("reason", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("not_before", Float(53)),
    Column("outcome", Text),  # confirmed, failed, rejected, unanswered, left, overtaken
    Column("outcome_reason", Text),
    Column("over_at", Float(53)),
    Column("claimed_by", Text),
    Column("claimed_until", Float(53)),
    Column("change_number", BigInteger, nullable=False),
    Column("scope", Text, nullable=False, server_default=""),
    Index("decision_event", "event_id"),
    Index("decision_state", "state"),
    Index("decision_changed", "change_number"),
    Index(
        "decision_one_open",
        "event_id",
        "scope",
        unique=True,
        sqlite_where=text("state <> 'over'"),
        postgresql_where=text("state <> 'over'"),
    ),
)

# One row per command, written before its token is signed; the token itself is never stored: the
# same jti can be signed again, and a bridge accepts it once.
command: Final = Table(
    "command",
    metadata,
    Column("jti", Text, primary_key=True),
    Column("decision_id", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("vm_id", Text, nullable=False),
    Column("channel", Text, nullable=False),  # name of an mqtt source, or "pull"
    Column("subject", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("made_at", Float(53), nullable=False),
    Column("expires_at", Float(53), nullable=False),
    Column("sent_at", Float(53)),
    Column("unanswered_at", Float(53)),
    Column("change_number", BigInteger, nullable=False),
    Column("scope", Text, nullable=False, server_default=""),
    Column("act", Text, nullable=False, server_default="approve"),  # approve, prepare
    Index("command_decision", "decision_id"),
    Index("command_event", "event_id"),
    Index("command_vm", "vm_id"),
    Index("command_changed", "change_number"),
)

# One row per event whose VMs belong to a group: its turn, or what it waits for. Lists are JSON.
turn: Final = Table(
    "turn",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("since", Float(53), nullable=False),
    Column("taken_at", Float(53)),
    Column("over_at", Float(53)),  # when its event was over
    Column("actor", Text),  # of its approval
    Column("person_reason", Text),
    Column("is_overridden", Integer, nullable=False, server_default="0"),
    Column("reason", Text),
    Column("ended_by", Text),  # the person who ended it
    Column("person_may_approve", Integer, nullable=False, server_default="0"),
    Column("groups", Text, nullable=False),
    Column("vms", Text, nullable=False),
    Column("held_by", Text, nullable=False),
    Column("behind", Text, nullable=False),
    Column("change_number", BigInteger, nullable=False),
    Index("turn_state", "state"),
    Index("turn_changed", "change_number"),
)

# The notices that the console sends to people: a stream of records. The id is made from the fact,
# so several consoles, and a console that restarts, send it once.
notice: Final = Table(
    "notice",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),  # an event's or a VM's id
    Column("scope", Text, nullable=False, server_default=""),  # an event's
    Column("at", Float(53), nullable=False),
    Column("stream", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("notice_at", "at"),
    Index("notice_subject", "subject", "kind"),
)

# Incidents of VMs that are open: the notice that ends one has the key of the notice that opened it.
incident: Final = Table(
    "incident",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("about", Text, primary_key=True),  # `contact` or `identity`: a VM can have one of each
    Column("key", Text, nullable=False),  # the VM's id, or that of a group of VMs
    Column("kind", Text, nullable=False),
    Column("size", Integer, nullable=False),  # VMs in the notice with that key
    Column("at", Float(53), nullable=False),
)

# How far each sink has come, and which console delivers to it now; the row "*" has the time at
# which a console looked for notices for the first time.
notice_cursor: Final = Table(
    "notice_cursor",
    metadata,
    Column("sink", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("claimed_by", Text),
    Column("claimed_until", Float(53)),
)
