# page.py - a report as one HTML page that needs nothing else, and each figure as SVG and PDF beside it.
import os
import pkgutil
import re
from html import escape

from failure import Failure
import drawing
import results
import then_and_now
import themes
import verdict

FACTS = [("processor", "processor"), ("cores", "cores"), ("caches", "caches"), ("memory", "memory"), ("virtual", "machine"), ("kernel", "kernel"),
         ("system", "system"), ("DPDK", "DPDK"), ("interfaces", "network interfaces"), ("governor", "frequency governor"), ("version", "version"),
         ("commit", "commit"), ("date", "date")]


class Page:
    """Collects the parts of a page, and writes the figures' own files."""

    def __init__(self, directory):
        self.directory = directory
        self.parts = []
        self.files = []
        self.pens = drawing.Pens()

    def add(self, html):
        self.parts.append(html)

    def heading(self, title, key):
        self.add(f'<h2 id="{key}">{escape(title)}</h2>')

    def text(self, text, kind=""):
        self.add(f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>")

    def figure(self, figure):
        figure.name = self.file_name(figure.name)
        svg, pdf = drawing.draw(figure, self.pens)
        for name, data in ((f"{figure.name}.svg", svg.encode()), (f"{figure.name}.pdf", pdf)):
            results.write_bytes(data, os.path.join(self.directory, name))
            self.files.append(name)
        note = f" {escape(figure.note)}" if figure.note else ""
        self.add(f'<h3>{escape(figure.title)}</h3>\n<figure id="{figure.name}" data-points="{len(figure.points)}">\n'
                 f"<div class=\"wide\">{drawing.for_page(svg, figure)}</div>\n<figcaption>{note} "
                 f'Files: <a href="{figure.name}.svg">SVG</a>, <a href="{figure.name}.pdf">PDF</a></figcaption></figure>')
        if figure.kind != "timeline":
            self.add(f"<details><summary>Table</summary>{table_of(figure)}</details>")

    def file_name(self, text):
        """A name of a file in this directory that no other figure has."""
        name = re.sub(r"[^A-Za-z0-9_-]", "-", text)
        return name if f"{name}.svg" not in self.files else f"{name}-{len(self.files)}"

    def table(self, head, rows, kind=""):
        self.add(f'<div class="wide">{table(head, rows, kind)}</div>')

    def html(self, title):
        css, js = (pkgutil.get_data("page", f"page.{kind}").decode() for kind in ("css", "js"))
        return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
                '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
                f"<style>\n{css}</style>\n</head>\n<body>\n" + "\n".join(self.parts) +
                f'\n<div id="tip" role="status" hidden></div>\n<script>\n{js}</script>\n</body>\n</html>\n')


def table(head, rows, kind=""):
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return (f'<table class="{kind}">' if kind else "<table>") + (
        f"<thead><tr>{''.join(f'<th>{escape(text)}</th>' for text in head)}</tr></thead>" if head else "") + f"<tbody>{cells}</tbody></table>"


def table_of(figure):
    """The figures of a figure: a row for each series, or for each text of its rows."""
    columns = list(figure.x_names.values() if figure.kind == "matrix" else dict.fromkeys(point.column for point in figure.points))
    cells = {(series.label, point.column): point.text for series in figure.series for point in series.points}
    labels = [series.label for series in figure.series]
    if figure.kind == "dots":
        return table(["", *labels], [[escape(column), *(escape(cells.get((label, column), "-")) for label in labels)] for column in columns])
    return table(["from \\ to" if figure.kind == "matrix" else "path", *columns],
                 [[escape(label), *(escape(cells.get((label, column), "-")) for column in columns)] for label in labels])


def machine(page, report):
    page.heading("Machine that ran the report" if report.content.get("mode") == "hosts" else "Machine", "machine")
    facts = [(name, report.machine.get(key)) for key, name in FACTS]
    page.table([], [[f"<b>{name}</b>", escape(str(value))] for name, value in facts if value], "facts")
    hosts = [item for item in report.content.get("hosts", []) if isinstance(item, dict)]
    if hosts:
        page.table(["host", "ports"], [[escape(str(item.get(name, ""))) for name in ("name", "ports")] for item in hosts], "words")
    if line := verdict.placement(report):
        page.text(line)
    absent = [(item["what"], item["why"]) for item in report.content.get("absent", []) if "what" in item]
    absent += [tuple(map(str, pair)) for pair in report.machine.get("lacks", []) if isinstance(pair, list) and len(pair) == 2]
    if absent:
        page.add("<h3>Not available</h3>")
        page.table(["what", "why"], [[escape(what), escape(why)] for what, why in absent], "words")


def theme(page, report, one):
    page.heading(one.title, one.key)
    page.text(one.about, "about")
    figures = themes.present(one.figures_of(report))
    for figure in figures:
        page.figure(figure)
    if not figures:
        page.text("Not in this report: " + report.why_absent(one.benches) + ".", "absent")


def navigation(page, shown):
    places = [("machine", "Machine"), ("verdict", "Verdict"), *((one.key, one.title) for one in shown)]
    places += [] if shown == [themes.HOSTS] else [("then", "Then and now")]
    page.add("<nav><ul>" + "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in places) + "</ul></nav>")


def spread_sentence(report):
    rounds = report.rounds
    return ("One round was measured, so the spread between rounds is not known." if rounds == 1 else
            f"A figure is the median of up to {rounds} rounds; bands, bars and brackets are the least and the greatest round.")


def write(report, directory):
    """Writes index.html and the figures; returns the path of the page."""
    drawing.need_library()
    page = Page(directory)
    machine_name = report.machine.get("processor", "a machine")
    hosts = report.content.get("hosts")
    where = f"between {len(hosts)} hosts, from {report.machine.get('host', 'a machine')}" if hosts else f"on {machine_name}"
    page.add(f"<h1>{escape(report.name)}: what {'these hosts do' if report.content.get('mode') == 'hosts' else 'this machine does'}</h1>")
    page.text(f"Measured by unet-bench report ({report.content.get('mode', '')}) {where}, {report.machine.get('date', '')}. "
              + spread_sentence(report) + " Point at a mark to see its figure and the command that repeats it.", "about")
    if report.content.get("stopped"):
        page.text(f"This report is incomplete: {report.content['stopped']}.", "slower")
    shown = [themes.HOSTS] if report.content.get("mode") == "hosts" else themes.THEMES
    navigation(page, shown)
    machine(page, report)
    page.heading("Verdict", "verdict")
    sentences = verdict.sentences(report)
    page.add("<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>" if sentences else "")
    if not sentences:
        page.text("This run has too few figures for a verdict.", "absent")
    for one in shown:
        theme(page, report, one)
    if themes.HOSTS not in shown:
        then_and_now.add(page, report)
    path = os.path.join(directory, "index.html")
    results.write_text(page.html(f"{report.name}: U-Net report"), path)
    return path


def ready(directory):
    """Makes the directory, and fails now rather than after measuring if nothing can be written there."""
    try:
        os.makedirs(directory, exist_ok=True)
        probe = os.path.join(directory, ".unet-report")
        with open(probe, "wb"):
            pass
        os.remove(probe)
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror}") from None
