"""`seb console trust`: prints the console's public key."""

from __future__ import annotations

import json
from pathlib import Path

import click

from console.cli import common
from sinks.shared.errors import OK, ConfigurationError


@click.command("trust")
@click.option(
    "--also",
    "others",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Another private key whose public half the VMs are to trust, while keys change.",
)
@common.set_option
def command(others: tuple[Path, ...], overrides: tuple[str, ...]) -> int:
    """Print the file for SEB_APPROVAL__TRUST on each VM: the public half of SEB_CONSOLE_KEY.

    It has no secret. A VM with this file accepts approvals of this console.
    """
    settings = common.read_settings(overrides)
    from console.signing.configured_signer import configured_signer  # noqa: PLC0415  # not for `--help`
    from console.signing.key_file import KeyFileSigner  # noqa: PLC0415  # as above

    signer = configured_signer(settings)
    if signer is None:
        raise ConfigurationError(
            "SEB_CONSOLE_KEY: this must be given; make a key with: "
            "seb keys generate --issuer https://console.example --out console.jwk"
        )
    keys = [each.public_key() for each in (signer, *map(KeyFileSigner, others))]
    click.echo(json.dumps({"keys": keys}, indent=2))
    return OK
