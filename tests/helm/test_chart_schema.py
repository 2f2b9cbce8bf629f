"""values.schema.json: it follows the bridge's settings, knows every name, and takes no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.chart.chart import CHART, refused
from support.chart.values import (
    BRIDGE_VARIABLES,
    MAY_BE_PLAIN,
    SCHEMA,
    SINK_VARIABLES,
    nested,
    problems,
    sample,
)

from docs.chart_schema import BY_REFERENCE, GENERATED, OF_THE_CHART, SCHEMA_FILE, schema_text

SECRET = "hunter2-and-more"
# Kubernetes' own, and maps of names that are not ours.
FREE = {
    "affinity",
    "console-source",
    "extraContainers",
    "extraEgress",
    "extraVolumeMounts",
    "extraVolumes",
    "global",
    "resources",
    "tolerations",
    f"{GENERATED}sink",
    f"{GENERATED}sink-other",
}


def objects(node: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the schema with the name of the place where it stands."""
    if isinstance(node, list):
        for each in node:
            yield from objects(each, name)
    if not isinstance(node, dict):
        return
    if node.get("type") == "object":
        yield name, node
    for key, value in node.items():
        if key in ("properties", "definitions"):
            for inner, each in value.items():
                yield from objects(each, inner)
        elif key not in ("if", "not", "propertyNames"):
            yield from objects(value, name)


def test_it_follows_the_settings() -> None:
    """The generated part is what the bridge's settings are now; `make docs` writes it."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_it_is_a_schema() -> None:
    """It is valid JSON Schema itself, of the draft that every helm knows."""
    Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_no_object_is_open() -> None:
    """Every object says which names it takes, but those that Kubernetes defines."""
    loose = [name for name, node in objects(SCHEMA) if "additionalProperties" not in node]
    assert sorted(set(loose)) == sorted(FREE)


def test_every_value_has_a_default() -> None:
    """values.yaml shows each value that there is, so that a person finds it there."""

    def missing(node: dict[str, Any], values: dict[str, Any]) -> list[str]:
        found = []
        for name, each in node.get("properties", {}).items():
            if name not in values:
                found.append(name)
            elif each.get("type") == "object" and values[name]:
                found += missing(each, values[name])
        return found

    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert missing(SCHEMA, values) == ["global"]


def test_everything_is_described() -> None:
    """Each value says what it is for."""
    silent = [
        f"{name}.{inner}"
        for name, node in objects(SCHEMA)
        for inner, each in node.get("properties", {}).items()
        if not {"description", "$ref", "const", "if"} & each.keys()
    ]
    assert silent == []


@pytest.mark.parametrize("path", BRIDGE_VARIABLES)
def test_settings_are_known(path: str) -> None:
    """Each setting of the bridge is accepted, or refused with the value to give instead; one letter
    too many is an error.
    """
    theirs = [message for own, message in OF_THE_CHART.items() if f"{path}.".startswith(f"{own}.")]
    if theirs:
        assert problems({"settings": nested(path, 1)}) == [f"{theirs[0]!r} was expected"]
    elif path.endswith("pull_token"):
        assert problems({"settings": nested(path, SECRET)}) == [f"{BY_REFERENCE!r} was expected"]
    else:
        assert problems({"settings": nested(path, sample("settings", path))}) == []
    assert path in OF_THE_CHART or problems({"settings": nested(f"{path}x", 1)}) != []


@pytest.mark.parametrize(("kind", "field", "secret"), SINK_VARIABLES)
def test_fields_of_sinks_are_known(kind: str, field: str, secret: bool) -> None:
    """Each field of a sink is accepted, under its kind's name and under another, and one letter too
    many is an error; what the bridge holds for a secret cannot be given in plain.
    """
    path = field.replace("__", ".")
    value, by_reference = sample(f"sink-{kind}", path), secret and field not in MAY_BE_PLAIN
    assert by_reference == (value == BY_REFERENCE)
    misspelt = nested(f"{path}x", "x")
    for name, more in ((kind, {}), ("a", {"kind": kind})):
        assert problems({"settings": {"sink": {name: {**more, **nested(path, value)}}}}) == []
        assert problems({"settings": {"sink": {name: {**more, **misspelt}}}}) != []
    if by_reference:
        plain = {"X": SECRET} if field == "headers" else SECRET
        found = problems({"settings": {"sink": {"a": {"kind": kind, field: plain}}}})
        assert found == [f"{BY_REFERENCE!r} was expected"]


def test_secrets_of_other_kinds_are_refused() -> None:
    """Of a kind that is not built in, the name of a field tells."""
    for field in ("password", "api_key", "apikey", "token", "shared_secret", "connection_string"):
        found = problems({"settings": {"sink": {"mail": {"kind": "email", field: SECRET}}}})
        assert found == [f"{BY_REFERENCE!r} was expected"]


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{SECRET}@ops.example/hook",
        f"https://logic.example/workflows/1?sig={SECRET}",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"https://team.webhook.office.com/webhookb2/{SECRET}",
    ],
)
def test_addresses_that_are_secrets_are_refused(url: str, tmp_path: Path) -> None:
    """An address with a user, a query or a chat's hook is a secret; `helm` does not repeat it."""
    error = refused(tmp_path, {"settings": {"sink": {"webhook": {"url": url}}}})
    assert BY_REFERENCE in error
    assert SECRET not in error


def test_helm_does_not_repeat_a_secret(tmp_path: Path) -> None:
    """What helm says of a secret in the wrong place names the place and the remedy alone."""
    values = {
        "settings": {
            "sink": {
                "mqtt": {"host": "a", "password": SECRET},
                "eventhub": {"connection_string": SECRET},
                "ops": {"kind": "webhook", "secret": SECRET, "headers": {"Authorization": SECRET}},
                "mail": {"kind": "email", "smtp_password": SECRET},
            },
            "commands": {"pull_token": SECRET},
        }
    }
    error = refused(tmp_path, values)
    assert error.count(BY_REFERENCE) == 6
    assert SECRET not in error


def test_other_kinds_have_fields_of_their_own() -> None:
    """A kind that the image brings along takes what it wants, files with secrets included."""
    fields = {"kind": "email", "to": ["a@b.example"], "password_file": "/etc/seb/files/mail/p"}
    assert problems({"settings": {"sink": {"mail": fields}}}) == []


@pytest.mark.parametrize(
    "values",
    [
        {"setings": {}},
        {"image": {"repo": "a"}},
        {"settings": {"sinks": {}}},
        {"settings": {"sink": {"mqtt": {"hots": "a"}}}},
        {"settings": {"sink": {"mqtt": None}}},
        {"settings": {"sink": {"ops": {}}}},
        {"settings": {"sink": {"Ops": {"kind": "file"}}}},
        {"settings": {"sink": {"mail": {"kind": "email", "SMTP_PASSWORD": SECRET}}}},
        {"settings": {"sink": {"a__b": {"kind": "file"}}}},
        {"secrets": {"variables": {"SEB_SINK__OPS__SECRET": SECRET}}},
        {"secrets": {"variables": {"SEB_STATE_DIR": {"secret": "a", "key": "b"}}}},
        {"secrets": {"variables": {"seb_sink__ops__secret": {"secret": "a", "key": "b"}}}},
        {"http": {"address": "127.0.0.1"}},
        {"http": {"address": "::1"}},
        {"files": {"mqtt": {"secret": "a", "configMap": "b"}}},
        {"files": {"../etc": {"secret": "a"}}},
        {"extraEnv": {"SEB_SINK__OPS__SECRET": SECRET}},
        {"extraEnv": {"seb_sink__ops__secret": SECRET}},
        {"extraEnv": {"A": 1}},
        {"podLabels": {"app.kubernetes.io/name": "other"}},
        {"monitoring": {"podMonitor": {"enabled": "yes"}}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values: dict[str, Any], tmp_path: Path) -> None:
    """`helm` itself refuses what is unknown, misspelt or of the wrong kind."""
    error = refused(tmp_path, values)
    assert "don't meet the specifications of the schema" in error
    assert SECRET not in error


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"secrets": {"variables": {"SEB_SINK__OPZ__SECRET": {"secret": "a", "key": "b"}}}},
            "declare it with settings.sink.opz",
        ),
        ({"approval": {"trust": {"jwks": "{}", "configMap": "a"}}}, "give jwks or configMap"),
        ({"approval": {"trust": {"jwks": f'{{"d": "{SECRET}"}}'}}}, "this holds a private key"),
    ],
    ids=["variable of no sink", "two trusts", "private key"],
)
def test_contradictions_are_refused(values: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """What only two values together make wrong is told in a sentence."""
    error = refused(tmp_path, values)
    assert expected in error
    assert SECRET not in error
