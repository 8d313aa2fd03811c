# units.py - figures as texts, as the tables of unet-bench have them (results/report.cc).
import math


def three_digits(value):
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def in_unit(value, unit):
    """The number in the unit that suits it, and that unit: (1500, "ns") is (1.5, "us")."""
    if unit == "ns":
        size = abs(value)
        return (value, "ns") if size < 999.5 else (value / 1e3, "us") if size < 999.5e3 else \
            (value / 1e6, "ms") if size < 999.5e6 else (value / 1e9, "s")
    if unit in ("msg/s", "words/s", "events/s", "conn/s", "req/s"):
        what = {"msg/s": "", "words/s": " words", "events/s": " events", "conn/s": " conn.", "req/s": " req."}[unit]
        return (value / 1e3, f"k{what}/s") if value < 99.95e3 else (value / 1e6, f"M{what}/s")
    if unit == "GB/s" and abs(value) < 0.0995:
        return value * 1e3, "MB/s"
    if unit == "s/GB" and abs(value) < 0.9995:
        return value * 1e3, "ms/GB"
    if unit == "B" and abs(value) >= 10240:
        return (value / 2 ** 20, "MiB") if abs(value) >= 2 ** 20 else (value / 1024, "KiB")
    return value, unit


def value_text(value, unit):
    if value is None or math.isnan(value):
        return "-"
    number, unit = in_unit(value, unit)
    return f"{three_digits(number)} {unit}".strip()


def tick_text(value, unit):
    number, unit = in_unit(value, unit)
    return "0" if number == 0 else f"{number:.4g} {unit}".strip()


def spread_text(row):
    """The median, with the least and greatest round where there are several."""
    return value_text(row.p50, row.unit) + (f" ({value_text(row.low, row.unit)} - {value_text(row.high, row.unit)})" if row.rounds > 1 else "")


def ratio_text(value):
    return "-" if value is None or math.isnan(value) else f"{value:.4f}" if 0 < abs(value) < 0.01 else three_digits(value)


def size_text(size):
    if size >= 1 << 20 and size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1024 and size % 1024 == 0 else f"{size} B"
