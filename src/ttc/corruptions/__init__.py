"""The fifteen common corruptions and their four extra ones, seeded and order-free, for images of any size."""

from ttc.corruptions.apply import corrupt
from ttc.corruptions.severity_tables import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, SEVERITIES, TABLES, nearest_table

__all__ = ["CORRUPTIONS", "EXTRA_CORRUPTIONS", "GROUPS", "SEVERITIES", "TABLES", "corrupt", "nearest_table"]
