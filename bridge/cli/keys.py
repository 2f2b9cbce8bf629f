"""`seb keys`: the keys that sign commands, made and shown; it never prints a private key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bridge.cli import common
from bridge.cli.key_files import read_jwk, write_private
from sinks.shared.errors import ConfigurationError, NotPermittedError
from sinks.shared.text import escaped
from wire.keys import KeyFileError, public, thumbprint
from wire.keys import generate as make_key


@click.group("keys")
def command() -> None:
    """Make and show the keys that sign commands.

    The private key stays with the control plane. The public one goes into the JWKS file that
    SEB_APPROVAL__TRUST names on each VM: that file is the list of who may approve.
    """


@command.command("generate", short_help="Make a key pair.")
@click.option("--issuer", required=True, metavar="URI", help="Who signs with it (claim iss).")
@click.option("--kid", metavar="ID", help="The key's id; its thumbprint unless given.")
@click.option("--alg", type=click.Choice(["EdDSA", "ES256"]), default="EdDSA", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("seb-key.json"),
    show_default=True,
    help="Where the private key goes; never over another file.",
)
def generate(*, issuer: str, kid: str | None, alg: str, out: Path) -> None:
    """Write a new private key to a file, and print the public one as a JWKS."""
    try:
        jwk = make_key(issuer=issuer, kid=kid, alg=alg)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        write_private(jwk, out)
    except FileExistsError:
        raise ConfigurationError(
            f"{out} exists already and may hold a key; name another file with --out"
        ) from None
    except PermissionError:
        raise NotPermittedError(f"{out} cannot be written by this user") from None
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be written: {error.strerror}") from None
    click.echo(json.dumps({"keys": [public(jwk)]}, indent=2))
    click.echo(f"the private key is in {out}; do not copy it anywhere else", err=True)


@command.command("show", short_help="Print whose keys a file holds.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@common.set_option
def show(*, file: Path | None, overrides: tuple[str, ...]) -> None:
    """Print id, algorithm, issuer and thumbprint of each key in FILE, public or private. Without
    FILE it reads the file that SEB_APPROVAL__TRUST names.
    """
    path = file or common.read_configuration(overrides).settings.approval.trust
    if path is None:
        raise click.UsageError("name a file: SEB_APPROVAL__TRUST is not set")
    for jwk in _keys(path):
        half = "private" if "d" in jwk else "public"
        words = [_word(jwk, "kid"), _word(jwk, "alg"), _word(jwk, "iss"), _thumbprint(jwk), half]
        click.echo("  ".join(words))


def _keys(path: Path) -> list[Mapping[str, Any]]:
    try:
        loaded = read_jwk(path)
    except KeyFileError as error:
        raise ConfigurationError(str(error)) from None
    keys = loaded.get("keys", [loaded])
    if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
        raise ConfigurationError(f"{path} is not a key and not a list of keys")
    return keys


def _word(jwk: Mapping[str, Any], name: str) -> str:
    value = jwk.get(name)
    return escaped(value) if isinstance(value, str) and value else "-"


def _thumbprint(jwk: Mapping[str, Any]) -> str:
    try:
        return thumbprint(jwk)
    except (KeyError, TypeError):
        return "-"
