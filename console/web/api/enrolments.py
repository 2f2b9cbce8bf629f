"""`POST /api/v1/enrolments`: a provisioning tool requests the settings of VMs, as an admin."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from console.errors import RefusedError
from console.fleet.model import Model
from console.ingest.vm_secrets import KEY_IS_MISSING, read_key
from console.vms import enrolment
from console.web.answers import answer, refuse
from console.web.api.models import EnrolmentBody
from console.web.api.operations import body_of
from console.web.app_state import AppState
from console.web.caller import person_of

_MAX_BYTES: Final = 256 * 1024
"""Enough for as many VMs as one request may enroll."""


class EnrolledVm(Model):
    """The settings of one VM's bridge, secrets among them."""

    vm_id: str
    generation: int
    settings: dict[str, str]


class EnrolledList(Model):
    """The settings of each VM that was enrolled."""

    items: list[EnrolledVm]


class EnrolmentRoutes:
    """Enrols VMs over HTTPS. The answers contain secrets and are not cached."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def post(self, request: Request) -> Response:
        """Answer `{vmIds: […]}` with `{items: [{vmId, generation, settings}]}`. Only an admin may
        ask.
        """
        person = person_of(request)
        if "admin" not in person.roles:
            raise refuse(403, "this needs the role admin")
        if person.site is not None:
            raise refuse(403, f"a token for the site {person.site} alone cannot enroll VMs")
        body = await body_of(request, EnrolmentBody, most=_MAX_BYTES)
        state = self._state
        file = state.settings.enroll_key_file
        if file is None:
            raise refuse(503, KEY_IS_MISSING)
        key = await asyncio.to_thread(read_key, file)
        try:
            found = await asyncio.to_thread(
                enrolment.enroll,
                state.database,
                body.vm_ids,
                actor=person.name,
                now=state.now(),
                resource_ids=body.resource_ids,
                site=body.site,
                tags=body.tags or None,
                silent_time=state.snapshots.silent_time,
            )
        except RefusedError as error:
            raise refuse(422, str(error)) from None
        items = enrolment.items_of(found, key=key, base=state.settings.base_url)
        return answer(EnrolledList.model_validate({"items": items}))
