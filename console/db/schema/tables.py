"""The tables. A change here needs a migration in `migrations/versions`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    text,
)

metadata: Final = MetaData()

# Each writing transaction takes the next number, and each row has the number of its last change. On
# PostgreSQL the lock of this row makes writers take turns; other consoles read rows with newer
# ones.
change: Final = Table(
    "change",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("number", BigInteger, nullable=False),
    # Since when nothing that VMs tell can have been lost.
    Column("unbroken_since", Float(53), nullable=False, server_default="0"),
    # The groups of the console that was started last; empty if none was yet.
    Column("groups_hash", Text, nullable=False, server_default=""),
    Column("groups_since", Float(53), nullable=False, server_default="0"),
    Column("groups_run", Text, nullable=False, server_default=""),
)

vm: Final = Table(
    "vm",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("site", Text, nullable=False),
    Column("resource_id", Text),
    Column("subscription_id", Text),
    Column("resource_group", Text),
    Column("location", Text),
    Column("zone", Text),
    Column("scale_set", Text),
    Column("tags", Text, nullable=False),
    Column("bound_tags", Text, nullable=False, server_default="{}"),
    Column("replaced_tags", Text, nullable=False, server_default="{}"),
    Column("version", Text),
    Column("instance_id", Text),
    # The runs of its bridge before the present one, as JSON, the newest first.
    Column("earlier_instance_ids", Text, nullable=False, server_default="[]"),
    Column("stream", Text),
    Column("sequence", BigInteger, nullable=False),
    Column("record_time", Float(53), nullable=False),
    Column("heard_at", Float(53), nullable=False),
    Column("heard_source", Text, nullable=False),
    # When its state document was last read.
    Column("state_at", Float(53)),
    # How long its newest record has waited at the VM.
    Column("record_waited", Float(53), nullable=False, server_default="0"),
    Column("interval", Float(53)),
    Column("stopped_at", Float(53)),
    Column("lost_at", Float(53)),
    Column("lost_instance_id", Text),
    Column("retired_at", Float(53)),
    Column("retired_by", Text),
    Column("command_source", Text),
    # The site of the MQTT topics at which it was last online; its commands go there.
    Column("status_site", Text),
    Column("missing_records", BigInteger, nullable=False),
    Column("change_number", BigInteger, nullable=False),
    # Whether it has a program that prepares.
    Column("prepares", Integer, nullable=False, server_default="0"),
    # When it last polled the HTTPS command channel; it takes commands there for a minute.
    Column("pulled_at", Float(53)),
    Column("name_since", Float(53), nullable=False, server_default="0"),
    # The identity that it reports and that has no effect yet, as JSON; whether another VM bears its
    # name; since when one of these holds; and when a person accepted what it reported.
    Column("reported_as", Text),
    Column("withheld", Integer, nullable=False, server_default="0"),
    Column("conflict_at", Float(53)),
    Column("accepted_at", Float(53), nullable=False, server_default="0"),
    # The place in which its name is unique; the name as it is compared; and as lists are sorted.
    Column("place", Text, nullable=False, server_default=""),
    Column("name_key", Text, nullable=False, server_default=""),
    Column("sort_name", Text, nullable=False, server_default=""),
    # Seconds by which its clock is behind the console's.
    Column("clock_behind", Float(53), nullable=False, server_default="0"),
    Index("vm_changed", "change_number"),
    Index("vm_place", "place", "name_key"),
    Index("vm_sorted", "sort_name", "vm_id"),
    Index("vm_conflict", "conflict_at"),
)

# When which console was connected to which source: `until` grows while it is connected, `seen_at`
# while the console runs with that source. A VM is silent only if a console was connected meanwhile.
listening: Final = Table(
    "listening",
    metadata,
    Column("console", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("since", Float(53), primary_key=True),
    Column("until", Float(53), nullable=False),
    Column("seen_at", Float(53), nullable=False),
    Index("listening_seen", "seen_at"),
)

stream: Final = Table(
    "stream",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("low", BigInteger, nullable=False),
    Column("high", BigInteger, nullable=False),
    Column("high_time", Float(53), nullable=False),
    Column("beat_time", Float(53)),
    # Seconds from `beat_time`, by the VM's clock, to its arrival, by the console's clock.
    Column("beat_lag", Float(53)),
)

gap: Final = Table(
    "gap",
    metadata,
    Column("vm_id", Text, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("first", BigInteger, primary_key=True),
    Column("last", BigInteger, nullable=False),
    Column("found_at", Float(53), nullable=False),
    Column("seconds", Float(53), nullable=False),
)

record: Final = Table(
    "record",
    metadata,
    Column("id", Text, primary_key=True),
    Column("vm_id", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("time", Float(53), nullable=False),
    Column("received_at", Float(53), nullable=False),
    Column("event_id", Text),
    Column("body", LargeBinary, nullable=False),
    Index("record_event", "event_id"),
    Index("record_vm", "vm_id", "time"),
    Index("record_received", "received_at"),
)

# One row per EventId and scope (subscription and resource group of its reporters).
event: Final = Table(
    "event",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("shown_by", Text, nullable=False),
    Column("shown_at", Float(53), nullable=False),
    Column("first_seen_at", Float(53), nullable=False),
    Column("event_type", Text),
    Column("not_before", Float(53)),
    # It only informs: no decision is due, and no VM's condition changes.
    Column("is_news", Integer, nullable=False, server_default="0"),
    Column("sites", Text, nullable=False),
    Column("search_text", Text, nullable=False),
    Column("change_number", BigInteger, nullable=False),
    # Azure's status of the event, and the longest times that any VM has measured.
    Column("status", Text, nullable=False, server_default=""),
    Column("started_at", Float(53)),
    Column("notice", Float(53)),
    Column("downtime", Float(53)),
    # Ids are compared without regard to case, and stored in the first spelling.
    Index("event_lower", func.lower(text("event_id"))),
    Index("event_changed", "change_number"),
    Index("event_over", "state", "shown_at"),
    Index("event_first", "first_seen_at"),
    Index("event_type", "event_type"),
    Index("event_status", "status"),
)

# The names that an event lists, in the report that it is shown by; each once, as it is compared.
resource: Final = Table(
    "resource",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("name_key", Text, primary_key=True),
    Index("resource_name_key", "name_key", "event_id", "scope"),
)

# In which places the names of an event are unique: those of the reporters that report what is
# shown.
event_place: Final = Table(
    "event_place",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("place", Text, primary_key=True),
)

# The latest report of one reporter about one event.
report: Final = Table(
    "report",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("vm_id", Text, primary_key=True),
    Column("record_id", Text, nullable=False),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("time", Float(53), nullable=False),
    Column("first_seen_at", Float(53), nullable=False),
    Column("over", Integer, nullable=False),
    Column("event_report", Text, nullable=False),
    Column("change_number", BigInteger, nullable=False),
    Column("scope", Text, nullable=False, server_default=""),
    # Whether the event names its reporter.
    Column("is_own", Integer, nullable=False, server_default="0"),
    # Whether it says that the event has started.
    Column("is_started", Integer, nullable=False, server_default="0"),
    # Hashes by which reports are compared: fingerprint and names; the names alone; the wording
    # alone.
    Column("content_hash", Text, nullable=False, server_default=""),
    Column("names_hash", Text, nullable=False, server_default=""),
    Column("wording_hash", Text),
    # The event is shown by it only until there is a better report.
    Column("is_weak", Integer, nullable=False, server_default="0"),
    Index("report_vm", "vm_id", "over"),
    Index("report_changed", "change_number"),
)

receipt: Final = Table(
    "receipt",
    metadata,
    Column("record_id", Text, primary_key=True),
    Column("jti", Text, nullable=False),
    Column("vm_id", Text, nullable=False),
    Column("event_id", Text),
    Column("state", Text, nullable=False),
    Column("reason", Text),
    Column("actor", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("change_number", BigInteger, nullable=False),
    Column("why", Text),
    Column("scope", Text, nullable=False, server_default=""),
    Column("act", Text),
    # `at` is when it came in; `time` is by the VM's clock, but not later than `at`.
    Column("time", Float(53), nullable=False, server_default="0"),
    Index("receipt_event", "event_id"),
    Index("receipt_jti", "jti"),
    Index("receipt_changed", "change_number"),
)

# The latest report of one VM about its preparation for one event.
preparation: Final = Table(
    "preparation",
    metadata,
    Column("event_id", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("vm_id", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("state", Text, nullable=False),  # preparing, prepared, failed, recovered
    Column("reason", Text),
    Column("cause", Text),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    # The sequence of the record by which it began, also once it has recovered.
    Column("begun_sequence", BigInteger, nullable=False, server_default="0"),
    Column("time", Float(53), nullable=False),
    # When another VM reported that the event has left this VM out, by the console's clock.
    Column("left_out_at", Float(53)),
    Column("change_number", BigInteger, nullable=False),
    Index("preparation_vm", "vm_id"),
    Index("preparation_state", "state"),
    Index("preparation_changed", "change_number"),
)

# Who works on an event or a VM, and until when. A VM has an empty scope.
assignment: Final = Table(
    "assignment",
    metadata,
    Column("kind", Text, primary_key=True),  # event, vm
    Column("subject", Text, primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("actor", Text, nullable=False),
    Column("at", Float(53), nullable=False),
    Column("until", Float(53), nullable=False),
    Column("change_number", BigInteger, nullable=False),
    Index("assignment_changed", "change_number"),
)

quarantine: Final = Table(
    "quarantine",
    metadata,
    Column("source", Text, primary_key=True),
    Column("reason", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("first_at", Float(53), nullable=False),
    Column("last_at", Float(53), nullable=False),
    Column("message", Text, nullable=False),
    Column("sample", LargeBinary, nullable=False),
)

checkpoint: Final = Table(
    "checkpoint",
    metadata,
    Column("hub", Text, primary_key=True),
    Column("consumer_group", Text, primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("offset", Text, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
)

ownership: Final = Table(
    "ownership",
    metadata,
    Column("hub", Text, primary_key=True),
    Column("consumer_group", Text, primary_key=True),
    Column("partition", Text, primary_key=True),
    Column("owner_id", Text, nullable=False),
    Column("etag", Text, nullable=False),
    Column("modified_at", Float(53), nullable=False),
    # The source by which the hub is read, and when another console took the partition.
    Column("source", Text, nullable=False, server_default=""),
    Column("taken_at", Float(53), nullable=False, server_default="0"),
)
