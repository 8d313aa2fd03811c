# option_table.py - the commands and options of a program in Python as lines, in the format of apps/option_table.h.
import argparse


def lines(parser, command=""):
    for action in parser._actions:  # pylint: disable=protected-access
        if action.nargs == argparse.PARSER:
            descriptions = {each.dest: each.help for each in action._choices_actions}  # pylint: disable=protected-access
            for name, each in action.choices.items():
                yield "\t".join([command, name, "-", descriptions.get(name) or ""])
                yield from lines(each, f"{command} {name}".strip())
        elif action.help != argparse.SUPPRESS:
            values = "-" if action.nargs == 0 else "{" + ",".join(action.choices) + "}" if action.choices else ""
            for name in action.option_strings:
                yield "\t".join([command, name, values, action.help or ""])


class Print(argparse.Action):
    """The option that prints them, hidden from help."""

    def __init__(self, option_strings, dest):
        super().__init__(option_strings, dest, nargs=0, help=argparse.SUPPRESS)

    def __call__(self, parser, *_):
        print(*lines(parser), sep="\n")
        parser.exit()
