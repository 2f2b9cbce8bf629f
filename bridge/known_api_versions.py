"""The api-versions of IMDS that this release knows, oldest first. The bridge asks for the newest,
and the simulator answers all of them.
"""

from __future__ import annotations

from typing import Final

# Azure: the version history in the documentation of Scheduled Events.
EVENTS_API_VERSIONS: Final = (
    "2017-03-01",
    "2017-08-01",
    "2017-11-01",
    "2019-01-01",
    "2019-04-01",
    "2019-08-01",
    "2020-07-01",
)
# Azure: the version history of the Instance Metadata Service, from the first to be supported on.
INSTANCE_API_VERSIONS: Final = (
    "2017-04-02",
    "2017-08-01",
    "2017-12-01",
    "2018-02-01",
    "2018-04-02",
    "2018-10-01",
    "2019-02-01",
    "2019-03-11",
    "2019-04-30",
    "2019-06-01",
    "2019-06-04",
    "2019-08-01",
    "2019-08-15",
    "2019-11-01",
    "2020-06-01",
    "2020-07-15",
    "2020-09-01",
    "2020-10-01",
    "2020-12-01",
    "2021-01-01",
    "2021-02-01",
)
