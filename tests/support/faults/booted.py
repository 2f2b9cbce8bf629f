"""A bridge as a process, told which boot of the VM it lives in: `seb run` but for that.

Run it with the boot's id as its first argument; the settings come from the environment.
"""

from __future__ import annotations

import sys

from bridge.cli import common
from bridge.service.bridge import Bridge


def main(boot_id: str) -> None:
    """Run until SIGTERM; the exit code is 0."""
    config = common.read_configuration(())
    stop = common.stop_event()
    redact = common.start_log(config)
    Bridge(config, stop=stop, redact=redact, boot_id=lambda: boot_id).run()
    common.leave(0)


if __name__ == "__main__":
    main(sys.argv[1])
