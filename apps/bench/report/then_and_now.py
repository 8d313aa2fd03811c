# then_and_now.py - the figures of the papers, with what this machine does beside them on the same axes.
from html import escape

from figures import Figure, Point, Series, is_wide
import published
import units


def spread(value, low, high, unit):
    text = units.value_text(value, unit)
    return text + (f" ({units.value_text(low, unit)} - {units.value_text(high, unit)})" if high > low else "")


def published_series(then, places):
    series = {}
    for label, where, value in then.values:
        line = series.setdefault(label, Series(label, "published", colour=str(len(series))))
        text, column = units.value_text(value, then.unit), column_of(then, where)
        line.points.append(Point(places(where), value, value, value, f"{label}, {column}: {text}\npublished: {then.source}", text, column))
    return list(series.values())


def column_of(then, where):
    return units.size_text(where) if then.curves else where


def of_today(then, report, places):
    series = {}
    for label, where, pick in then.today:
        found = pick.of(report)
        if found is not None and (found[0] > 0 or then.unit == "%"):
            line = series.setdefault(label, Series(label, "ours"))
            text = spread(*found[:3], then.unit)
            line.points.append(Point(places(where), *found[:3], f"{label}, {where}: {text}\n{found[3]}", text, where))
    return list(series.values())


def curves_of_today(then, report):
    series = []
    for bench, paths in then.curves:
        for path in paths:
            rows = sorted(report.select(bench, path), key=lambda row: row.size)
            points = [Point(row.size, row.p50, row.low, row.high,
                            f"{path}, {units.size_text(row.size)}: {units.spread_text(row)}\n{row.command}", units.spread_text(row),
                            units.size_text(row.size)) for row in rows if row.size > 0]
            if points:
                series.append(Series(path, "kernel" if path.startswith("kernel") else "ours", points))
    return series


def figure_of(then, report):
    """The figure, and whether the report has anything for it."""
    if then.curves:
        today = curves_of_today(then, report)
        series = published_series(then, lambda size: size) + today
        points = [point for line in series for point in line.points]
        names = {x: units.size_text(x) for x in sorted({point.x for point in points})}
        return Figure("curves", f"then-{then.key}", then.title, then.unit, series, then.x_label, True, is_wide(points), names), bool(today)
    names = {}
    for where in [where for _, where, _ in [*then.values, *then.today]]:
        names.setdefault(where, len(names))
    today = of_today(then, report, names.get)
    series = published_series(then, names.get) + today
    used = {point.x for line in series for point in line.points}
    figure = Figure("dots", f"then-{then.key}", then.title, then.unit, series, log_x=is_wide([point for line in series for point in line.points]),
                    x_names={at: where for where, at in names.items() if at in used})
    return compact(figure), bool(today)


def compact(figure):
    """The figure without the rows in which nothing is."""
    order = {at: number for number, at in enumerate(figure.x_names)}
    for point in figure.points:
        point.x = order[point.x]
    figure.x_names = {order[at]: text for at, text in figure.x_names.items()}
    return figure


def add(page, report):
    page.heading("Then and now", "then")
    page.text("Published figures of the systems that this project follows (marks without colour), and this machine beside them. What was "
              "published is taken from notes on these papers: look it up there before you quote it.", "about")
    for then in published.ALL:
        figure, has_today = figure_of(then, report)
        page.figure(figure)
        missing = "" if has_today else (' <span class="absent">Not in this report: '
                                        + escape(report.why_absent(sorted({pick.bench for _, _, pick in then.today}))) + ".</span>")
        page.add(f'<p>{escape(then.why)}{missing} <span class="note">Published: {escape(then.source)}.</span></p>')
