"""`POST /api/v1/enrolments`: a provisioning tool requests the settings of VMs, as an admin."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from console.access import enrolment
from console.errors import RefusedError
from console.ingest.enrolment import KEY_IS_MISSING, read_key
from console.web.answers import answer, refuse
from console.web.bodies import Bodies, RequestError
from console.web.caller import person_of
from console.web.models import MAX_VMS, EnrolledList, EnrolmentBody
from console.web.state import AppState


class EnrolmentRoutes:
    """Enrols VMs over HTTPS. The answers contain secrets and are not cached."""

    def __init__(self, state: AppState) -> None:
        self._state = state

    async def post(self, request: Request) -> Response:
        """Answer `{vmIds: […]}` with `{items: [{vmId, generation, settings}]}`; only for
        an admin.
        """
        person = person_of(request)
        if "admin" not in person.roles:
            raise refuse(403, "this needs the role admin")
        if person.site is not None:
            raise refuse(403, f"a token for the site {person.site} alone cannot enroll VMs")
        body = await _body(request, self._state.bodies)
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


async def _body(request: Request, bodies: Bodies) -> EnrolmentBody:
    """Return the VMs in the body. Raises an HTTP answer that refuses it."""
    try:
        body: Any = json.loads(await bodies.read(request.headers, request.receive))
    except RequestError as why:
        raise refuse(why.status, str(why)) from None
    except (ValueError, RecursionError):
        body = None
    try:
        return EnrolmentBody.model_validate(body)
    except ValidationError:
        raise refuse(422, f'send {{"vmIds": ["…"]}} with 1 to {MAX_VMS} vmIds') from None
