"""Reads a Dockerfile and a .dockerignore, as far as ours go."""

import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction: its name, its flags (`--from=build`) and what follows them."""

    name: str
    flags: tuple[str, ...]
    rest: str

    @property
    def exec_form(self) -> list[str] | None:
        """The words of a JSON list; None where a shell would run it."""
        try:
            words = json.loads(self.rest)
        except ValueError:
            return None
        return words if isinstance(words, list) else None

    @property
    def words(self) -> list[str]:
        """What follows, split at spaces."""
        return self.rest.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStage:
    """What follows one FROM."""

    base: str
    name: str | None
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        """Every instruction of that name."""
        return [each for each in self.instructions if each.name == name]

    def one(self, name: str) -> Instruction:
        """The only instruction of that name."""
        (found,) = self.all(name)
        return found

    @property
    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        pairs = [word.partition("=") for each in self.all("ENV") for word in each.words]
        return {name: value for name, _, value in pairs}


def read(path: Path) -> list[BuildStage]:
    """The stages of a Dockerfile, with what ARG before the first FROM says filled in."""
    stages: list[BuildStage] = []
    arguments: dict[str, str] = {}
    for instruction in _instructions(path.read_text(encoding="utf-8")):
        if instruction.name == "FROM":
            base, *more = re.sub(
                r"\$\{(\w+)\}", lambda found: arguments[found[1]], instruction.rest
            ).split()
            stages.append(BuildStage(base=base, name=more[1] if more else None))
        elif not stages:
            name, _, value = instruction.rest.partition("=")
            arguments[name] = value
        else:
            stages[-1].instructions.append(instruction)
    return stages


def ignored(path: str, patterns: list[str]) -> bool:
    """Whether a .dockerignore hides a path of the context: the last pattern that matches it, or
    a directory above it, decides.
    """
    parts = path.split("/")
    places = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    hidden = False
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        if any(_matches(place, plain) for place in places):
            hidden = not pattern.startswith("!")
    return hidden


def ignore_patterns(path: Path) -> list[str]:
    """The patterns of a .dockerignore."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch(path.rsplit("/", 1)[-1], pattern.removeprefix("**/"))
    return path.count("/") == pattern.count("/") and fnmatch(path, pattern)


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        name, _, rest = line.strip().partition(" ")
        flags = []
        while flag := re.match(r"\s*(--[a-z-]+=\S+)\s+", rest):
            flags.append(flag[1])
            rest = rest[flag.end() :]
        found.append(
            Instruction(name=name.upper(), flags=tuple(flags), rest=re.sub(r"\s+", " ", rest))
        )
    return found
