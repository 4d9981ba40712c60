"""Frozen dataclasses as JSON text and back.

Every field is checked against its annotation. A digest of all fields covers what no annotation says,
such as sizes that belong together.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from latentgamma._errors import DataError

_T = TypeVar("_T")
# Characters of a value that a message shows.
_SHOWN = 200


def to_json(value: Any) -> str:
    """A frozen result as JSON text, with a digest of its fields."""
    data = dataclasses.asdict(value)
    return _dumps({**data, "digest": _digest(data)}) + "\n"


def from_json(kind: type[_T], text: str) -> _T:
    """The dataclass in a JSON text, with every field checked against its type, and the digest."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DataError(f"this is not JSON that can be read: {problem}") from None
    digest = data.pop("digest", None) if isinstance(data, dict) else None
    result: _T = _decode(kind, data, kind.__name__)
    if digest != _digest(data):
        raise DataError("its digest is not that of its content: the file was changed")
    return result


def _dumps(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _digest(data: Any) -> str:
    try:
        return hashlib.sha256(_dumps(data).encode()).hexdigest()
    except ValueError:
        raise DataError("it has numbers that are not finite") from None


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(data, dict) or set(data) != set(hints):
            got = _shown(sorted(data)) if isinstance(data, dict) else type(data).__name__
            raise DataError(f"{where} should have the fields {sorted(hints)}, but has {got}")
        parts = {name: _decode(hints[name], data[name], f"{where}.{name}") for name in hints}
        return kind(**parts)  # type: ignore[operator]
    if origin in (Union, types.UnionType):
        options = get_args(kind)
        if data is None and type(None) in options:
            return None
        return _decode(next(o for o in options if o is not type(None)), data, where)
    if origin is tuple:
        inner = get_args(kind)
        if not isinstance(data, list):
            raise DataError(f"{where} should be a list, not {type(data).__name__}")
        if len(inner) == 2 and inner[1] is Ellipsis:
            return tuple(_decode(inner[0], x, f"{where}[{i}]") for i, x in enumerate(data))
        if len(data) != len(inner):
            raise DataError(f"{where} should have {len(inner)} entries, not {len(data)}")
        pairs = enumerate(zip(inner, data, strict=True))
        return tuple(_decode(one, x, f"{where}[{i}]") for i, (one, x) in pairs)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if type(data) is not kind:
        raise DataError(f"{where} should be {kind.__name__}, not {_shown(data)}")
    return data


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
