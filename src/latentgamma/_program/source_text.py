"""Texts as they come from files, and errors that show a place in one."""

from __future__ import annotations

from latentgamma._errors import ParseError


def decode_text(data: bytes, path: str) -> str:
    """The text of these bytes, which must be UTF-8, with plain line ends."""
    try:
        return normalize_text(data.decode(), path)
    except UnicodeDecodeError as error:
        at = error.start
    hint = "save the file as UTF-8"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = f"it looks like UTF-16; {hint}"
    elif data.startswith(b"\x1f\x8b"):
        hint = "it is compressed; end its name with .gz"
    start = data.rfind(b"\n", 0, at) + 1
    raise ParseError(
        f"byte 0x{data[at]:02x} at offset {at} is not UTF-8; {hint}",
        source=data[start : at + 200].partition(b"\n")[0].decode(errors="replace"),
        line=data.count(b"\n", 0, at) + 1,
        column=len(data[start:at].decode()) + 1,
        path=path,
    )


def normalize_text(text: str, path: str) -> str:
    """The text without a byte order mark and with plain line ends; it must not hold NUL."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    at = text.find("\0")
    if at >= 0:
        raise error_at(text, at, "found a NUL character; this is not a text file", path)
    return text


def error_at(text: str, at: int, problem: str, path: str) -> ParseError:
    """The error that shows this place of a text."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at, at + 200)  # a line may be very long; the error shows a window
    return ParseError(
        problem,
        source=text[start : at + 200 if end < 0 else end],
        line=text.count("\n", 0, at) + 1,
        column=at - start + 1,
        path=path,
    )
