"""The fifteen common corruptions and the four extra ones, seeded per image, for images of any size."""

from ttc.corruptions.apply import corrupt
from ttc.corruptions.severity_tables import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, SEVERITIES, TABLES, nearest_table

__all__ = ["CORRUPTIONS", "EXTRA_CORRUPTIONS", "GROUPS", "SEVERITIES", "TABLES", "corrupt", "nearest_table"]
