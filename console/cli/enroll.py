"""`seb console enroll`."""

from __future__ import annotations

import click

from console.cli import common
from console.errors import ConfigurationError
from console.sources import enrolment


@click.command("enroll")
@click.argument("vm_id", metavar="VMID")
@common.set_option
def command(vm_id: str, overrides: tuple[str, ...]) -> int:
    """Print the lines of seb.env that let the VM of that id speak with this console.

    They hold secrets that are good for this VM only.
    """
    settings = common.read_settings(overrides)
    if settings.enroll_key_file is None:
        raise ConfigurationError(
            "SEB_CONSOLE_ENROLL_KEY_FILE: this must be given; make a key with: "
            "openssl rand -base64 32"
        )
    key = enrolment.read_key(settings.enroll_key_file)
    base = settings.public_url or f"http://{settings.listen}"
    secret = enrolment.secret_text(enrolment.webhook_secret(key, vm_id))
    for name, value in (
        ("SEB_SINK__CONSOLE__KIND", "webhook"),
        ("SEB_SINK__CONSOLE__URL", f"{base}/ingest/v1/records"),
        ("SEB_SINK__CONSOLE__SECRET", secret),
        ("SEB_COMMANDS__PULL_URL", f"{base}/pull/v1/commands"),
        ("SEB_COMMANDS__PULL_TOKEN", enrolment.pull_token(key, vm_id)),
    ):
        click.echo(f"{name}={value}")
    return 0
