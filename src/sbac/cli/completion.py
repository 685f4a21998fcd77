"""`sbac completion`: a script that completes commands and options in the shell."""

import argparse

from sbac.cli.core import Commands, Parser

SHELLS = ("bash", "zsh")
BEFORE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a script that completes sbac in bash or zsh",
        epilog='example: eval "$(sbac completion bash)"',
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash or zsh")

    def run(args: argparse.Namespace) -> int:
        print(BEFORE[args.shell] + script(commands.parser), end="")
        return 0

    parser.set_defaults(run=run)


def script(sbac: Parser) -> str:
    """The script for bash. What may follow is written into it, so that completing starts no Python."""
    from sbac.algorithms import REGISTRY

    cases = "".join(
        f'    {name}) words="{" ".join([*parser.options, *parser.choices])}" ;;\n'
        for name, parser in sbac.below.items()
    )
    return f"""_sbac() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join([*sbac.below, "--help", "--version"])}"; else
    case "${{COMP_WORDS[1]}}" in
{cases}    esac
  fi
  case "$before" in --algorithm|--algorithms|methods) words="{" ".join(REGISTRY)}" ;; esac
  case "$word" in -*|"") ;; *) [ "$COMP_CWORD" -gt 1 ] && words="$words $(compgen -f -- "$word")" ;; esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _sbac sbac
"""
