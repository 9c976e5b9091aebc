"""Tables, charts and one self-contained page: what was measured, shown."""

from ttc.report.chart import Chart
from ttc.report.charts import Panels, bar_chart, dot_chart, line_chart, scatter_chart
from ttc.report.marks import Rule, Series

__all__ = ["Chart", "Panels", "Rule", "Series", "bar_chart", "dot_chart", "line_chart", "scatter_chart"]
