"""Groups as settings: from the environment or a file, and what a mistake is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config.load import load
from sinks.shared.errors import ConfigurationError


def test_groups_come_from_the_environment(tmp_path: Path) -> None:
    """SEB_CONSOLE_GROUPS is read as a JSON list."""
    text = '[{"name": "etcd", "match": {"name": ["db-*"]}, "at_most": "25%"}]'
    found = load(environ={"SEB_CONSOLE_GROUPS": text, "SEB_CONSOLE_STATE_DIR": str(tmp_path)})
    assert [(each.name, each.at_most) for each in found.groups] == [("etcd", "25%")]


def test_groups_come_from_a_file(tmp_path: Path) -> None:
    """Each table [[groups]] of the TOML file is a group."""
    path = tmp_path / "groups.toml"
    path.write_text(
        '[[groups]]\nname = "etcd"\n[groups.match]\nname = ["db-*"]\n'
        '[[groups.window]]\nfrom = "02:00"\nto = "06:00"\n'
    )
    found = load(environ={"SEB_CONSOLE_GROUPS_FILE": str(path)})
    assert [(each.name, len(each.window)) for each in found.groups] == [("etcd", 1)]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"SEB_CONSOLE_GROUPS": '[{"at_most": 1}]'}, "SEB_CONSOLE_GROUPS__0__NAME: this must be"),
        ({"SEB_CONSOLE_GROUPS": '[{"name": "a"}, {"name": "A"}]'}, "two groups have the name 'a'"),
        ({"SEB_CONSOLE_GROUPS": '[{"name": "a", "at_most": 0}]'}, "a whole number from 1 on"),
        (
            {"SEB_CONSOLE_GROUPS": '[{"name": "a", "mach": {}}]'},
            "SEB_CONSOLE_GROUPS__0__MACH: there is no such setting; did you mean",
        ),
        (
            {"SEB_CONSOLE_GROUPS": '[{"name": "a", "match": {"rack": ["1"]}}]'},
            "there is no field 'rack'; the fields are site, location",
        ),
        ({"SEB_CONSOLE_GROUPS": "etcd"}, "this is not JSON"),
        ({"SEB_CONSOLE_GROUPS_FILE": "missing.toml"}, "missing.toml cannot be read"),
        (
            {"SEB_CONSOLE_GROUPS_FILE": "x.toml", "SEB_CONSOLE_GROUPS": "[]"},
            "set GROUPS or GROUPS_FILE",
        ),
    ],
)
def test_a_mistake_in_a_group_is_an_error_that_names_it(
    variables: dict[str, str], words: str
) -> None:
    """The console ends with 78, and does not run with groups that it does not understand."""
    with pytest.raises(ConfigurationError, match="SEB_CONSOLE_GROUPS") as refused:
        load(environ=variables)
    assert words in str(refused.value)
    assert refused.value.exit_code == 78


def test_a_file_without_a_group_is_an_error(tmp_path: Path) -> None:
    """A groups file that is empty or misspelt is an error: it must not switch every group off."""
    path = tmp_path / "groups.toml"
    for text, words in (("", "it has no group"), ("[[group]]\n", "there is no setting 'group'")):
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=words):
            load(environ={"SEB_CONSOLE_GROUPS_FILE": str(path)})
