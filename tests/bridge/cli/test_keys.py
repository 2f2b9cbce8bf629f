"""`seb keys`: makes and shows keys, and never prints a private part."""

import json
import os
import stat
from pathlib import Path

import pytest
from support.process.seb_here import Here

from bridge.approval.trusted_keys import read_trust

ISSUER = "https://control.example"


@pytest.mark.parametrize("alg", ["EdDSA", "ES256"])
def test_generate(here: Here, tmp_path: Path, alg: str) -> None:
    """The private key is written to a file for its owner only, and the public one is printed as a
    JWKS.
    """
    made = here(
        "keys",
        *("generate", "--issuer", ISSUER, "--kid", "k1", "--alg", alg, "--out", "key.json"),
    )
    assert made.code == 0, made.err
    private = json.loads((tmp_path / "key.json").read_text())
    assert {"kid": "k1", "alg": alg, "iss": ISSUER, "use": "sig"}.items() <= private.items()
    assert private["d"] not in made.out + made.err
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "key.json").stat().st_mode) == 0o600
    trust = tmp_path / "trust.json"
    trust.write_text(made.out)
    (key,) = read_trust(trust).values()
    assert (key.kid, key.alg, key.issuer) == ("k1", alg, ISSUER)


def test_generate_writes_over_nothing(here: Here, tmp_path: Path) -> None:
    """An existing file is not overwritten; exit code 78."""
    (tmp_path / "seb-key.json").write_text("precious")
    made = here("keys", "generate", "--issuer", ISSUER)
    assert (made.code, made.out) == (78, "")
    assert "exists already and may hold a key; name another file with --out" in made.err
    assert (tmp_path / "seb-key.json").read_text() == "precious"


def test_generate_into_a_directory_that_is_not_there(here: Here) -> None:
    """The error about a missing directory names the file."""
    made = here("keys", "generate", "--issuer", ISSUER, "--out", "no/key.json")
    assert made.code == 78
    assert "cannot be written: " in made.err


def test_generate_needs_an_issuer(here: Here) -> None:
    """An issuer is required, because every bridge would refuse a key without one."""
    assert here("keys", "generate").code == 2
    assert here("keys", "generate", "--issuer", "two\nlines").code == 2


def test_show(here: Here, tmp_path: Path) -> None:
    """Each key of a private file, of a trust file, or of the configured one has a line."""
    made = here("keys", "generate", "--issuer", ISSUER, "--kid", "k1")
    (tmp_path / "trust.json").write_text(made.out)
    private = json.loads((tmp_path / "seb-key.json").read_text())
    shown = [
        here("keys", "show", "seb-key.json"),
        here("keys", "show", "trust.json"),
        here("keys", "show", SEB_APPROVAL__TRUST="trust.json"),
    ]
    assert [said.code for said in shown] == [0, 0, 0]
    assert [said.out.split() for said in shown] == [
        ["k1", "EdDSA", ISSUER, shown[0].out.split()[3], half]
        for half in ("private", "public", "public")
    ]
    assert not [said for said in shown if private["d"] in said.out + said.err]


def test_show_what_is_no_key(here: Here, tmp_path: Path) -> None:
    """A key without its members has a line too; a file that is not JSON ends with 78."""
    (tmp_path / "odd.json").write_text('{"keys": [{"kid": "\\u001b[2J"}]}')
    odd = here("keys", "show", "odd.json")
    assert (odd.code, odd.out) == (0, "\\u001b[2J  -  -  -  public\n")
    (tmp_path / "odd.json").write_text("none")
    assert here("keys", "show", "odd.json").code == 78
    (tmp_path / "odd.json").write_text('{"keys": 7}')
    assert here("keys", "show", "odd.json").code == 78
    assert here("keys", "show").code == 2
