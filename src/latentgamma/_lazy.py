"""Names of a package that are imported when they are first used, as its stub lists them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

TYPE_CHECKING = False  # importing typing would take longer than the rest of this module
if TYPE_CHECKING:
    from typing import Any


def attach(package: str, path: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose `__init__.pyi` imports its names.

    A line `from a.b import c as c` of the stub says where `c` is; the stub is read when a name is
    looked up for the first time.

    Args:
        package: the name of the package, its `__name__`.
        path: the path of its `__init__.py`, its `__file__`.
    """

    @cache
    def modules() -> dict[str, str]:
        import ast

        with open(f"{path.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
            lines = ast.parse(stub.read()).body
        return {
            name.name: line.module or ""
            for line in lines
            if isinstance(line, ast.ImportFrom)
            for name in line.names
        }

    def get(name: str) -> Any:
        import importlib

        if name == "__all__":
            return sorted(modules())
        if name.startswith("__") or name not in modules():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = modules()[name]
        try:
            if module == package:
                return importlib.import_module(f"{package}.{name}")
            value = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            from latentgamma.errors import MissingPackageError

            raise MissingPackageError(f"{package}.{name} needs PyTorch", "torch") from None
        setattr(sys.modules[package], name, value)  # the next look-up finds it at once
        return value

    def names() -> list[str]:
        return sorted(modules())

    return get, names
