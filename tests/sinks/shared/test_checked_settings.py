"""What is wrong with settings, in words: for the bridge and for the console."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

from sinks.shared.checked_settings import check_name, checked
from sinks.shared.errors import CONFIGURATION, ConfigurationError

SECRET = "hunter2-and-more"


class Tls(BaseModel):
    """A section."""

    model_config = ConfigDict(extra="forbid")

    ca: str = ""


class Fields(BaseModel):
    """The fields of a sink, whose own check quotes a wrong password."""

    model_config = ConfigDict(extra="forbid")

    kind: str = "mqtt"
    port: int = 1883
    password: SecretStr | None = None
    tls: Tls = Tls()

    @field_validator("password")
    @classmethod
    def _quotes(cls, password: SecretStr) -> SecretStr:
        raise ValueError(f"this is not a password: {password.get_secret_value()}")


def problem(*, shows_values: bool = False, **fields: Any) -> str:
    """Return the message about wrong fields."""
    with pytest.raises(ConfigurationError) as caught:
        checked(Fields, fields, prefix="SEB_SINK__OPS__", shows_values=shows_values)
    assert caught.value.exit_code == CONFIGURATION
    return str(caught.value)


@pytest.mark.parametrize("shows_values", [True, False])
def test_a_secret_that_a_check_quotes_is_cut_out(shows_values: bool) -> None:
    """A message has no secret, although the sink's own check quotes it."""
    message = problem(password=f"{SECRET} # old", shows_values=shows_values)
    assert message == "SEB_SINK__OPS__PASSWORD: this is not a password: [secret]"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kindd": "x"}, "KINDD: there is no such setting; did you mean SEB_SINK__OPS__KIND?"),
        ({"tls": {"caa": "x"}}, "TLS__CAA: there is no such setting; did you mean SEB_SINK__OPS__"),
        ({"tls": "x"}, "TLS: give one variable per field"),
        ({"port": "x"}, "PORT: this is not a whole number"),
        ({"xyzzy": "x"}, "XYZZY: there is no such setting"),
    ],
)
def test_a_problem_is_in_words_with_its_variable(fields: dict[str, Any], words: str) -> None:
    """A message has the variable, what is wrong, and the nearest name if the name is unknown."""
    assert problem(**fields).startswith(f"SEB_SINK__OPS__{words}")


def test_a_comment_in_a_value_is_shown_only_if_values_may_be() -> None:
    """The bridge shows a value in which a comment stands; the console shows no value."""
    assert problem(port="1 # a", shows_values=True).endswith(
        'it is "1 # a": a comment needs a line of its own'
    )
    assert "# a" not in problem(port="1 # a")


def test_a_name_has_plain_characters() -> None:
    """The name of a sink or a source has letters, digits, - and _."""
    check_name("ops-2_b", "SEB_SINK__OPS", of="sink")
    with pytest.raises(ConfigurationError, match=r"^SEB_SINK__O P: a source's name is letters, "):
        check_name("o p", "SEB_SINK__O P", of="source")
