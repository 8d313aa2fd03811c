# __main__.py - unet-report: measures by unet-bench and draws a page; `unet-bench report` and `unet-bench compare A B` start it.
import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until there is something to save: ends without a traceback

# pylint: disable=wrong-import-position
import os
import sys

from failure import Failure
import command_line
import comparison
import drawing
import hosts
import machine
import measuring
import page
import plan
import results

INTERRUPTED = 130


def report(options):
    drawing.need_library()
    page.ready(options.directory)
    if options.hosts:
        written, interrupted = hosts.run(options)
        print(written)
        return INTERRUPTED if interrupted else 0
    if options.source:
        content = results.read(options.source).content
    else:
        bench = measuring.find_bench()
        content = results.new_content("quick" if options.quick else "full", machine.facts(measuring.version_of(bench)))
        content["machine"]["lacks"] = machine.not_there()
        measuring.measure(bench, plan.quick() if options.quick else plan.full(), content, os.path.join(options.directory, "report.json"))
    if options.name:
        content["name"] = options.name
    if options.name and not options.source:
        results.write(content, os.path.join(options.directory, "report.json"))
    print(page.write(results.Report(content), options.directory))
    return INTERRUPTED if content.get("stopped") and not options.source else 0


def main():
    try:
        options = command_line.parse(sys.argv[1:])
        return {"report": report, "compare": comparison.run}[options.command](options)
    except Failure as failure:
        print(f"unet-bench: {failure}", file=sys.stderr)
        return failure.status
    except BrokenPipeError:
        return Failure.status
    except OSError as error:
        print(f"unet-bench: {error}", file=sys.stderr)
        return Failure.status
    except (KeyboardInterrupt, measuring.Interrupted):
        print("unet-bench: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
