# drawing.py - figures as SVG and PDF by matplotlib: page.py puts the SVG into the page.
#
# Why matplotlib: Debian has it whole, and it alone draws vector files of both kinds. An SVG in the page needs no library there, which opens at
# once, and prints as it looks.
import io
import math
import re
import xml.etree.ElementTree as ElementTree

from failure import Failure
from figures import odds
import units

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import colors
    from matplotlib import pyplot
    from matplotlib import ticker
except ImportError:
    matplotlib = None

# Okabe and Ito's colours, which people with any kind of colour blindness tell apart; the page has others for the dark.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933"]
INK, FAINT, GRID, LIMIT = "#222222", "#666666", "#dddddd", "#777777"
PAPER = "#fefefe"
VARIABLES = {INK: "--ink", FAINT: "--faint", GRID: "--grid", LIMIT: "--limit", PAPER: "--paper"} | \
    {colour: f"--c{number}" for number, colour in enumerate(PALETTE)}
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "h"]
LINES = {"ours": "-", "kernel": "--", "raw": "-.", "limit": ":", "published": (0, (1, 2))}
SHARES = [(0.01, "1 %"), (0.1, "10 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")]  # ticks
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
POINTS = "points-"  # the gid of a series' markers begins so

STYLE = {"svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False, "font.family": "DejaVu Sans", "font.size": 9,
         "axes.edgecolor": FAINT, "axes.labelcolor": INK, "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK,
         "ytick.labelcolor": INK, "text.color": INK, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6, "axes.axisbelow": True,
         "axes.spines.top": False, "axes.spines.right": False, "figure.facecolor": "none", "axes.facecolor": "none",
         "legend.frameon": False, "legend.fontsize": 8, "legend.handlelength": 2.6, "axes.formatter.useoffset": False}


class Pens:
    """Gives a path the same colour and marker in every figure."""

    def __init__(self):
        self.numbers = {}

    def of(self, series):
        if series.family == "limit":
            number = self.numbers.setdefault(("limit", series.label), sum(1 for kind, _ in self.numbers if kind == "limit"))
            return LIMIT, MARKERS[-1 - number % 4]
        if series.family == "published":
            number = int(series.colour or 0)
            return (INK, LIMIT)[number // 5 % 2], ("*", "D", "s", "^", "v")[number % 5]
        number = self.numbers.setdefault(("path", series.label), sum(1 for kind, _ in self.numbers if kind == "path"))
        return PALETTE[number % len(PALETTE)], MARKERS[(number + number // len(PALETTE)) % 7]


def need_library():
    if matplotlib is None:
        raise Failure("drawing needs matplotlib: apt-get install python3-matplotlib (or scripts/install-packages bench)")


def draw(figure, pens):
    """The figure as (SVG text, PDF bytes). Each series' markers are a group `points-N`, in the order of its points."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": figure.name}):
        rows = len(figure.x_names)
        size = {"dots": (6.6, max(1.5, 0.9 + 0.3 * rows)), "matrix": (min(9, 1 + 0.9 * rows), min(7, 0.6 + 0.5 * rows))}
        drawn, axes = pyplot.subplots(figsize=size.get(figure.kind, (6.6, 3.6)))
        try:
            {"curves": curves, "dots": dots, "shares": shares, "timeline": timeline, "matrix": matrix}[figure.kind](figure, axes, pens)
            if len(figure.series) > 1 and figure.kind != "matrix":
                axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0)
            return tuple(saved(drawn, kind) for kind in ("svg", "pdf"))
        finally:
            pyplot.close(drawn)


def saved(drawn, kind):
    out = io.BytesIO()
    nothing = {"Creator": None, "Date": None} if kind == "svg" else {"Creator": "unet-bench report", "CreationDate": None}
    drawn.savefig(out, format=kind, bbox_inches="tight", pad_inches=0.04, metadata=nothing)
    return out.getvalue().decode() if kind == "svg" else out.getvalue()


def markers(axes, number, series, x, y, pen, size=5):
    colour, marker = pen
    filled = series.family in ("ours", "published")
    axes.plot(x, y, linestyle="none", marker=marker, markersize=size + 2 * (marker == "*"), color=colour, label="_",
              markerfacecolor=colour if filled else PAPER, gid=f"{POINTS}{number}", clip_on=False, zorder=3)


def in_legend(axes, series, pen, line):
    colour, marker = pen
    axes.plot([], [], linestyle=line, marker=marker, color=colour, markersize=5, label=series.label,
              markerfacecolor=colour if series.family in ("ours", "published") else PAPER)


def label_values(axis, unit, log):
    if log:
        axis.set_major_locator(ticker.LogLocator(numticks=8))
        axis.set_minor_locator(ticker.NullLocator())
        low, high = axis.get_view_interval()
        if low > 0 and high / low < 50:
            axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: units.tick_text(value, unit)))


def curves(figure, axes, pens):
    for number, series in enumerate(figure.series):
        points, pen = series.points, pens.of(series)
        x, y = [point.x for point in points], [point.y for point in points]
        spread = [point for point in points if point.high > point.low]
        axes.fill_between(x, [point.low for point in points], [point.high for point in points], color=pen[0], alpha=0.18, linewidth=0)
        axes.vlines([point.x for point in spread], [point.low for point in spread], [point.high for point in spread], color=pen[0], linewidth=1)
        axes.plot(x, y, linestyle=LINES[series.family], color=pen[0], linewidth=1.4, label="_")
        markers(axes, number, series, x, y, pen)
        in_legend(axes, series, pen, LINES[series.family])
    if figure.log_x:
        axes.set_xscale("log", base=2)
    if figure.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    places = thinned(figure)
    axes.set_xticks(places, [figure.x_names[place] for place in places])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel(figure.x_label)
    label_values(axes.yaxis, figure.unit, figure.log_y)


def thinned(figure):
    """Places of ticks on the x axis that leave room for their texts."""
    places = list(figure.x_names)
    at = [math.log2(place) if figure.log_x and place > 0 else place for place in places]
    room = (max(at) - min(at)) / 10 if len(at) > 1 else 0
    chosen = []
    for place, value in sorted(zip(places, at), key=lambda pair: pair[1]):
        if not chosen or value - chosen[-1][1] >= room:
            chosen.append((place, value))
    return [place for place, _ in chosen]


def dots(figure, axes, pens):
    count = len(figure.series)
    step = min(0.18, 0.7 / count)
    for number, series in enumerate(figure.series):
        points, pen = series.points, pens.of(series)
        y = [point.x + (number - (count - 1) / 2) * step for point in points]
        axes.hlines(y, [point.low for point in points], [point.high for point in points], color=pen[0], linewidth=1.4)
        markers(axes, number, series, [point.y for point in points], y, pen)
        in_legend(axes, series, pen, "none")
    if figure.log_x:
        axes.set_xscale("log")
    else:
        low = min(point.low for point in figure.points)
        axes.set_xlim(left=0 if low >= 0 else None)
    if figure.unit == "x":
        axes.axvline(1, color=FAINT, linewidth=0.8)
    axes.set_yticks(list(figure.x_names), [shortened(text) for text in figure.x_names.values()])
    axes.set_ylim(len(figure.x_names) - 0.5, -0.5)
    axes.grid(False, axis="y")
    for at in range(len(figure.x_names) - 1):
        axes.axhline(at + 0.5, color=GRID, linewidth=0.4)
    label_values(axes.xaxis, figure.unit, figure.log_x)


def shortened(text):
    return text if len(text) <= 48 else text[:45] + "..."


def shares(figure, axes, pens):
    for number, series in enumerate(figure.series):
        pen = pens.of(series)
        x, y = [point.x for point in series.points], [point.y for point in series.points]
        axes.plot(x, y, linestyle=LINES[series.family], color=pen[0], linewidth=1.4, label="_")
        markers(axes, number, series, x, y, pen)
        in_legend(axes, series, pen, LINES[series.family])
    axes.set_xscale("log")
    axes.set_yticks([odds(share) for share, _ in SHARES], [text for _, text in SHARES])
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel("share of samples")
    label_values(axes.xaxis, figure.unit, True)


def timeline(figure, axes, pens):
    for number, series in enumerate(figure.series):
        pen = pens.of(series)
        x, y = [point.x for point in series.points], [point.y for point in series.points]
        axes.plot(x, y, color=pen[0], linewidth=1, linestyle=LINES[series.family], label="_")
        markers(axes, number, series, x, y, pen, size=2)
        in_legend(axes, series, pen, LINES[series.family])
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel("messages in each millisecond")


def matrix(figure, axes, _):
    """A coloured cell for each point. The markers in the cells cannot be seen: they carry the tips."""
    count = len(figure.series)
    cells = [[math.nan] * count for _ in range(count)]
    for number, series in enumerate(figure.series):
        for point in series.points:
            cells[number][point.x] = point.y
    low, high = min(point.y for point in figure.points), max(point.y for point in figure.points)
    norm = colors.LogNorm(low, high) if figure.log_y else colors.Normalize(low, high)
    colours = matplotlib.colormaps["cividis"]
    axes.pcolormesh(cells, norm=norm, cmap=colours, edgecolors=PAPER, linewidth=1)
    for number, series in enumerate(figure.series):
        x, y = [point.x + 0.5 for point in series.points], [number + 0.5] * len(series.points)
        axes.plot(x, y, linestyle="none", marker="s", markersize=16, markerfacecolor="none", markeredgecolor="none", gid=f"{POINTS}{number}")
        for point in series.points:
            axes.text(point.x + 0.5, number + 0.5, units.value_text(point.y, figure.unit), ha="center", va="center", fontsize=8 if count < 10 else 5,
                      color="#000000" if norm(point.y) > 0.5 else "#ffffff")
    axes.grid(False)
    axes.set_xticks([at + 0.5 for at in figure.x_names], [shortened("to " + name) for name in figure.x_names.values()],
                    rotation=90 if count > 8 else 0)
    axes.set_yticks([at + 0.5 for at in figure.x_names], [shortened("from " + name) for name in figure.x_names.values()])
    axes.tick_params(length=0, labelbottom=False, labeltop=True)
    axes.invert_yaxis()


def for_page(svg, figure):
    """The SVG as part of an HTML page: colours by the page's variables, its own identifiers only, and a tip at each point."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(svg)
    tips = iter([])
    for element in root.iter():
        identifier = element.get("id", "")
        if identifier.startswith(POINTS):
            tips = iter(figure.series[int(identifier[len(POINTS):])].points)
            for use in element.iter(f"{{{SVG}}}use"):
                use.set("data-tip", next(tips).tip)
        if re.fullmatch(r"[a-zA-Z0-9]+_\d+|" + POINTS + r"\d+", identifier):
            del element.attrib["id"]
        for name in ("style", "fill", "stroke"):
            if name in element.attrib:
                element.set(name, re.sub("#[0-9a-f]{6}", lambda found: coloured(found.group()), element.get(name)))
    for part in root.findall(f"{{{SVG}}}metadata"):
        root.remove(part)
    root.set("role", "img")
    root.set("aria-label", figure.title)
    del root.attrib["height"]
    root.set("width", "100%")
    root.set("style", f"max-width: {float(root.get('viewBox').split()[2]) / 0.72:.0f}px")
    return ElementTree.tostring(root, encoding="unicode")


def coloured(colour):
    return f"var({VARIABLES[colour]})" if colour in VARIABLES else colour
