"""Names that clingo cannot read, written as names that it can.

Rule text has names that clingo's grammar lacks: words with letters beyond ASCII (`größe`), names in
quotes (`'night train'`) and numbers as atoms. For clingo such a name is `''x` and the hexadecimal
digits of its UTF-8. No name of rule text has a quote inside, and a message that quotes a name has one
quote before it (`'x61' never holds`), so the two cannot be confused.
"""

from __future__ import annotations

import re

from latentgamma.program.names import (
    add_quotes,
    is_plain,
    is_word,
    quote_argument,
    quote_functor,
    read_name,
    read_quoted,
)

#: A name as clingo gets it.
ENCODED = r"''x[0-9a-f]++"
_STRING = r'"(?:[^"\\]|\\.)*+"'
#: A predicate as rules write it: a word, or a name in quotes.
PREDICATE = r"[^\WA-Z0-9]\w*+|'(?:[^'\\\n]|\\[^\n])++'"
_coded = re.compile(rf"({_STRING})|''x([0-9a-f]++)")
_part = re.compile(rf"({_STRING})|'(?:[^'\\]|\\.)*+'|\w*[^\W\x00-\x7f]\w*+")
_clingo_escape = re.compile(r"\\(.)", re.DOTALL)


def encode_name(name: str) -> str:
    """Return the atom or the constant of this name, as clingo reads it.

    >>> encode_name("größe(a)"), encode_name("night train")
    ("''x6772c3b6c39f65(a)", "''x6e6967687420747261696e")
    """
    if not is_plain(name) or name.isdigit():
        return _hexadecimal(name)
    return _part.sub(_encoded_part, name)


def encode_argument(name: str) -> str:
    """Return the same for an argument, where a number is a number."""
    return name if name.isdigit() else encode_name(name)


def encode_predicate(written: str) -> str:
    """Return a predicate that is written as rules have it, as clingo reads it.

    >>> encode_predicate("edge"), encode_predicate("'night train'")
    ('edge', "''x6e6967687420747261696e")
    """
    return encode_functor(read_quoted(written, 0)[0] if written.startswith("'") else written)


def encode_functor(name: str) -> str:
    """Return the name of a predicate, as clingo reads it."""
    return name if name.isascii() and is_word(name) else _hexadecimal(name)


def _hexadecimal(name: str) -> str:
    return f"''x{name.encode('utf-8', 'surrogatepass').hex()}"


def _encoded_part(found: re.Match[str]) -> str:
    if found[1]:
        return clingo_string(read_name(found[1])[0]) if len(found[1]) > 2 else found[1]
    if found[0].startswith("'"):
        functor = found.string.startswith("(", found.end())
        return (encode_functor if functor else encode_argument)(read_name(found[0])[0])
    return _hexadecimal(found[0])


def clingo_string(content: str) -> str:
    """Return a string with this content, in the escapes that clingo knows."""
    escaped = content.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def decode_name(name: str) -> str:
    """Return the name of an atom that clingo prints.

    >>> decode_name("''x6772c3b6c39f65(a)"), decode_name("''x6e6967687420747261696e")
    ('größe(a)', 'night train')
    """
    if "'" not in name and name.isprintable():
        return name
    whole = _coded.fullmatch(name)
    if whole and whole[2]:
        return _content(whole[2])
    return decode_text(name)


def decode_text(text: str) -> str:
    """Return a text of clingo's with all names as rule text has them."""
    return _coded.sub(_decode, text)


def _decode(found: re.Match[str]) -> str:
    if found[2]:
        functor = found.string.startswith("(", found.end())
        return (quote_functor if functor else quote_argument)(_content(found[2]))
    if found[1].isprintable():
        return found[1]
    content = _clingo_escape.sub(
        lambda escape: "\n" if escape[1] == "n" else escape[1], found[1][1:-1]
    )
    return add_quotes(content, '"')


def _content(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-8", "surrogatepass")
