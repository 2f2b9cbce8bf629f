"""The names of an event are looked for in the places of all reporters that say what is shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Events that are known have the places of those that report them now."""
    op.create_table(
        "event_place",
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", "scope", "place"),
    )
    op.execute(
        "INSERT INTO event_place (event_id, scope, place) "
        "SELECT DISTINCT shown.event_id, shown.scope, vm.place FROM event "
        "JOIN report AS shown ON shown.event_id = event.event_id AND shown.scope = event.scope "
        "AND shown.vm_id = event.shown_by "
        "JOIN report AS other ON other.event_id = shown.event_id AND other.scope = shown.scope "
        "AND other.says = shown.says "
        "JOIN vm ON vm.vm_id = other.vm_id"
    )
