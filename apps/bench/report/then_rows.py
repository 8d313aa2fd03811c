# then_rows.py - picks the row of a report that stands beside a published figure.
from dataclasses import dataclass


@dataclass
class Pick:
    """A row and how its figure becomes comparable. `metric` may be several, which are added."""
    bench: str
    path: str
    metric: object = None
    size: int = None
    scale: float = 1
    inverse: bool = False         # the time for each, in ns, of a rate
    more_than_one: bool = False   # by how many percent the ratio is more than 1
    per_ratio: bool = False       # one over the ratio

    def of(self, report):
        """(value, least, greatest, command), or None if the report has no such row."""
        metrics = self.metric if isinstance(self.metric, tuple) else (self.metric,)
        rows = [report.find(self.bench, self.path, metric, self.size) for metric in metrics]
        if None in rows:
            return None
        if self.more_than_one or self.per_ratio:
            return self.of_ratio(rows[0])
        values = [sum(getattr(row, name) for row in rows) * self.scale for name in ("p50", "low", "high")]
        if len(rows) > 1:  # the least of each part are of different rounds
            values = values[:1] * 3
        if self.inverse:
            values = [1e9 / values[0], 1e9 / values[2], 1e9 / values[1]] if min(values) > 0 else None
        return (*values, rows[0].command) if values else None

    def of_ratio(self, row):
        if not row.ratios:
            return None
        value, low, high = next(iter(row.ratios.values()))
        if self.per_ratio:
            return (1 / value, 1 / high, 1 / low, row.command) if low > 0 else None
        return (*((one - 1) * 100 for one in (value, low, high)), row.command)
