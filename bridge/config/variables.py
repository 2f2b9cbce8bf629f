"""The names of environment variables: the known ones, and suggestions for misspelt ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from bridge.config.settings import PREFIX, Settings
from sinks.shared.checked_settings import suggestion
from sinks.shared.errors import ConfigurationError

OTHER_NAMES: Final = ("SEB_CONFIG", "SEB_SECRETS_DIR")
"""Names that say where settings are, and are not settings themselves."""

# What Kubernetes injects into every pod beside a Service called seb or seb-something.
_INJECTED: Final = re.compile(
    r"SEB_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)|SEB_PORT"
)
# What a program sink sets for its program, which may call `seb` itself.
_FOR_PROGRAMS: Final = "SEB_EVENT_"
# What the console reads, on the machine that it shares with a bridge.
_OF_THE_CONSOLE: Final = "SEB_CONSOLE_"
# SEB_SINKS__OPS__URL, SEB_SINK_OPS_URL and similar names: difflib would suggest other names.
_SINK_LIKE: Final = re.compile(r"SEB_SINK(S_+|_(?!_))(?=.)")


def refuse_unknown(variables: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` if a SEB_ name is unknown, with the nearest known one."""
    known = [*OTHER_NAMES, *setting_names()]
    given = {name.upper(): value for name, value in variables.items()}
    for name in variables:
        upper = name.upper()
        above = upper.rpartition("__")[0]
        if _is_field(above) and given.get(above, "{").lstrip()[:1] != "{":
            # What is below a text would be ignored: PASSWORD__FILE beside PASSWORD.
            raise ConfigurationError(f"{name}: there is no such setting; did you mean {above}?")
        if not upper.startswith(PREFIX) or upper in known or _is_sink(upper):
            continue
        if (
            upper.startswith((_FOR_PROGRAMS, _OF_THE_CONSOLE))
            or _INJECTED.fullmatch(upper)
            or (upper.endswith("_PORT") and variables[name].startswith("tcp://"))
        ):
            continue
        raise ConfigurationError(f"{name}: there is no such setting{_suggestion(upper, known)}")


def setting_names() -> Iterator[str]:
    """Yield every variable except those of sinks."""
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield f"{PREFIX}{name.upper()}"  # the whole section as JSON
            yield from (f"{PREFIX}{name}__{inner}".upper() for inner in section.model_fields)
        else:
            yield f"{PREFIX}{name.upper()}"


def _suggestion(name: str, known: Iterable[str]) -> str:
    if found := _SINK_LIKE.match(name):
        return f"; did you mean {PREFIX}SINK__{name[found.end() :]}?"
    return suggestion(name, known)


def _is_field(name: str) -> bool:
    """Check whether a name is SEB_SINK__<NAME>__<FIELD>, or longer."""
    return _is_sink(name) and name.count("__") > 1


def _is_sink(name: str) -> bool:
    """Check whether a name is SEB_SINK__<NAME> or SEB_SINK__<NAME>__<FIELD>; the sink's own model
    checks the field.
    """
    return name == f"{PREFIX}SINK" or bool(re.fullmatch(r"SEB_SINK__[A-Z0-9_-]+", name))
