"""Every command with its arguments and options, from the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks.reference.tables import code, head, table
from edge_opid.cli.parser import parser as node
from firmware_sim.cli import parser as simulator
from gateway.cli.parser import parser as gateway

ABOUT = """\
Every command takes `--help`. Results go to stdout, everything else to stderr. Exit codes: 0 done, 1
something failed, 2 a mistake in the command or the configuration (nothing was changed)."""


def page() -> str:
    """The whole page."""
    parts = [head("Commands", ABOUT)]
    for whole in (node(), gateway(), simulator()):
        parts.append(f"\n## {whole.prog}\n\n{_sentence(whole.description)}\n")
        parts += _verbs(whole)
    return "".join(parts)


def _verbs(parser: argparse.ArgumentParser) -> Iterator[str]:
    nested = _nested(parser)
    if nested is None:
        yield f"\n### {parser.prog}\n\n{_sentence(parser.description)}\n"
        rows = list(_rows(parser))
        if rows:
            yield f"\n{table(('argument', 'default', 'meaning'), rows)}"
        return
    for each in nested.choices.values():
        # A verb of a verb has no description of its own where only its help was given.
        words = {choice.dest: choice.help for choice in nested._choices_actions}
        each.description = each.description or words.get(each.prog.split()[-1])
        yield from _verbs(each)


def _nested(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser] | None:
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return found[0] if found else None


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, str]]:
    for each in parser._actions:
        if each.help == argparse.SUPPRESS or "--help" in each.option_strings:
            continue
        value = "" if each.nargs == 0 else _value(each)
        name = f"{', '.join(each.option_strings)} {value}".strip()
        needed = each.required and each.option_strings
        yield code(name), "needed" if needed else _default(each), _help(each)


def _value(each: argparse.Action) -> str:
    if each.choices:
        return "{" + ",".join(map(str, each.choices)) + "}"
    name = each.metavar or each.dest
    return str(name) if each.metavar or not each.option_strings else str(name).upper()


def _default(each: argparse.Action) -> str:
    plain = each.default not in (None, False, argparse.SUPPRESS) and each.nargs != 0
    return code(each.default) if plain else ""


def _help(each: argparse.Action) -> str:
    return (each.help or "").replace("%%", "%")


def _sentence(words: str | None) -> str:
    text = (words or "").strip()
    return text[:1].upper() + text[1:].removesuffix(".") + "." if text else ""
