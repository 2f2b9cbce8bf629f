"""`seb run` as a process that is told, as its first argument, which boot of the VM it lives in."""

import sys

from bridge.cli import common
from bridge.service.bridge import Bridge


def main(boot_id: str) -> None:
    """Run until SIGTERM; the exit code is 0."""
    config = common.read_configuration(())
    stop = common.stop_event()
    redact = common.start_log(config)
    Bridge(config, stop=stop, redact=redact, boot_id=lambda: boot_id).run()
    common.exit_with(0)


if __name__ == "__main__":
    main(sys.argv[1])
