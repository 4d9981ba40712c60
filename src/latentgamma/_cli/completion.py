"""Completion scripts for bash, zsh and fish, generated from the argument parser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from latentgamma._cli.console import write_output

SHELLS = ("bash", "zsh", "fish")


class _Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes_value: bool


class _Subcommand(NamedTuple):
    name: str
    help: str
    options: tuple[_Option, ...]
    choices: tuple[str, ...]  # of its positional arguments


def write_script(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the completion script for a shell and return 0.

    Args:
        parser: the parser whose commands and options are completed.
        shell: one of `SHELLS`.
    """
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    write_output("\n".join([*script(list(_commands(parser))), ""]))
    return 0


def _commands(parser: argparse.ArgumentParser) -> Iterator[_Subcommand]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, sub in action.choices.items():
                options = [_option(a) for a in sub._actions if a.option_strings]
                choices = [c for a in sub._actions if not a.option_strings for c in a.choices or ()]
                yield _Subcommand(name, helps.get(name, ""), tuple(options), tuple(choices))


def _option(action: argparse.Action) -> _Option:
    choices = tuple(map(str, action.choices or ()))
    return _Option(
        tuple(action.option_strings), action.help or "", choices, takes_value=action.nargs != 0
    )


def _bash(commands: list[_Subcommand]) -> Iterator[str]:
    names = " ".join(command.name for command in commands)
    yield "_latentgamma() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    if [ $COMP_CWORD -eq 1 ]; then"
    yield f'        COMPREPLY=($(compgen -W "{names} --help --version" -- "$current"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $previous" in'
    for command in commands:
        for option in command.options:
            patterns = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
            if option.choices:
                words = " ".join(option.choices)
                yield f'        {patterns}) COMPREPLY=($(compgen -W "{words}" -- "$current")); return;;'
            elif option.takes_value:
                yield f'        {patterns}) COMPREPLY=($(compgen -f -- "$current")); return;;'
    yield "    esac"
    yield '    case "${COMP_WORDS[1]} $current" in'
    for command in commands:
        flags = " ".join(flag for option in command.options for flag in option.flags)
        yield f'        "{command.name} -"*) COMPREPLY=($(compgen -W "{flags}" -- "$current"));;'
        if command.choices:
            words = " ".join(command.choices)
            yield f'        "{command.name} "*) COMPREPLY=($(compgen -W "{words}" -- "$current"));;'
    yield '        *) COMPREPLY=($(compgen -f -- "$current"));;'
    yield "    esac"
    yield "}"
    yield "complete -o filenames -F _latentgamma latentgamma"


def _zsh(commands: list[_Subcommand]) -> Iterator[str]:
    yield "#compdef latentgamma"
    yield "_latentgamma() {"
    yield "    if (( CURRENT == 2 )); then"
    yield "        local -a commands=("
    for command in commands:
        yield f"            {shlex.quote(f'{command.name}:{command.help}')}"
    yield "        )"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words; (( CURRENT-- ))"
    yield '    case "$command" in'
    for command in commands:
        yield f"        {command.name})"
        yield "            _arguments \\"
        for option in command.options:
            text = option.help.translate(
                str.maketrans(dict[str, str | int | None]((c, f"\\{c}") for c in "[]:"))
            )
            value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
            for flag in option.flags:
                spec = f"*{flag}[{text}]{value if option.takes_value else ''}"
                yield f"                {shlex.quote(spec)} \\"
        rest = f"({' '.join(command.choices)})" if command.choices else "_files"
        yield f"                {shlex.quote(f'*:argument:{rest}')};;"
    yield "    esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_latentgamma" ]; then _latentgamma "$@"; '
    yield "else compdef _latentgamma latentgamma; fi"


def _fish(commands: list[_Subcommand]) -> Iterator[str]:
    start = "complete -c latentgamma"
    for command in commands:
        help_text = shlex.quote(command.help)
        yield f"{start} -n __fish_use_subcommand -f -a {command.name} -d {help_text}"
    for command in commands:
        after = f"{start} -n '__fish_seen_subcommand_from {command.name}'"
        if command.choices:
            yield f"{after} -f -a {shlex.quote(' '.join(command.choices))}"
        for option in command.options:
            parts = [f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags]
            if option.choices:
                parts.append(f"-x -a {shlex.quote(' '.join(option.choices))}")
            elif option.takes_value:
                parts.append("-r")
            yield f"{after} {' '.join(parts)} -d {shlex.quote(option.help)}"
