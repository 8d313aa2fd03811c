# command_line.py - the options of `unet-bench report` and of `unet-bench compare` with reports.
import argparse

from failure import Usage
import option_table
import version

REPORT = """Measures this machine and writes a page: DIRECTORY/index.html, which needs nothing else, report.json with all figures, and each
figure as SVG and PDF. Ctrl-C ends the measuring: the page then has what was measured."""

COMPARE = """Compares reports with the first one, and writes a page with the differences and their 95 % intervals. A verdict needs three rounds of
each report. Exit status: 0 nothing is slower or gone; 1 something is; 2 nothing can be said, or wrong options or files."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(f"{message}; see {self.prog} --help")


def parse(arguments):
    """The options, with the command in `command`."""
    parser = Parser(prog="unet-bench", add_help=False, allow_abbrev=False)
    parser.add_argument("--option-table", action=option_table.Print)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    report = commands.add_parser("report", description=REPORT, allow_abbrev=False)
    report.add_argument("--quick", action="store_true", help="three minutes instead of half an hour: fewer paths, sizes and rounds")
    report.add_argument("--from", dest="source", metavar="FILE", help="draw what FILE has, without measuring; FILE may also be of `run --json`")
    report.add_argument("--hosts", metavar="FILE", help="measure each pair of hosts instead: a line for each, as for `testbed up --hosts`, or "
                        "NAME testbed:TESTBED. A report of hosts in DIRECTORY is continued")
    report.add_argument("--load", action="store_true", help="with --hosts: meanwhile, each host streams to the next")
    report.add_argument("--every", metavar="TIME", help="with --hosts: measure again after each 30s, 10m or 1h, until Ctrl-C")
    report.add_argument("--times", type=int, metavar="N", help="with --every: only N times")
    report.add_argument("--directory", default="report", help="where the page goes; made if it is not there (default: report)")
    report.add_argument("--name", default="", help="the page's title (default: this host's name)")
    report.add_argument("--version", action="version", version=f"unet-report {version.VERSION}")
    compare = commands.add_parser("compare", description=COMPARE, allow_abbrev=False)
    compare.add_argument("reports", nargs="+", metavar="FILE", help="reports: report.json, or the directory that has it")
    compare.add_argument("--directory", default="comparison", help="where the page goes (default: comparison)")
    compare.add_argument("--noise", default="1", help="percent; smaller changes are none (default: 1)")
    options = parser.parse_args(arguments)
    if options.command == "compare" and len(options.reports) < 2:
        raise Usage("compare needs two reports or more, or --old and --new with the files of runs")
    if options.command == "report" and not options.hosts and (options.load or options.every):
        raise Usage("--load and --every go with --hosts")
    if options.command == "report" and options.times is not None and (options.times < 1 or not options.every):
        raise Usage("--times goes with --every, and is 1 or more")
    if options.command == "report" and options.hosts and options.source:
        raise Usage("--hosts measures, --from does not: choose one")
    return options
