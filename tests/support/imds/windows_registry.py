"""A `winreg` for machines that have none, as far as the bridge asks it."""

from types import ModuleType
from typing import Self


class RegistryKey:
    """An open registry key: a context manager, as winreg has it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Registry(ModuleType):
    """A `winreg` whose keys are paths and whose values are given."""

    HKEY_LOCAL_MACHINE = RegistryKey("")

    def __init__(self, values: dict[str, dict[str, object]]) -> None:
        super().__init__("winreg")
        self._values = values

    def OpenKey(self, parent: RegistryKey, name: str) -> RegistryKey:  # noqa: N802
        path = f"{parent.path}\\{name}".strip("\\")
        if not any(each.startswith(path) for each in self._values):
            raise FileNotFoundError(2, "there is no such key")
        return RegistryKey(path)

    def QueryInfoKey(self, key: RegistryKey) -> tuple[int, int, int]:  # noqa: N802
        return (len(self._below(key)), 0, 0)

    def EnumKey(self, key: RegistryKey, place: int) -> str:  # noqa: N802
        return self._below(key)[place]

    def QueryValueEx(self, key: RegistryKey, name: str) -> tuple[object, int]:  # noqa: N802
        try:
            return (self._values[key.path][name], 1)
        except KeyError:
            raise FileNotFoundError(2, "there is no such value") from None

    def _below(self, key: RegistryKey) -> list[str]:
        start = f"{key.path}\\"
        return [each.removeprefix(start) for each in self._values if each.startswith(start)]
