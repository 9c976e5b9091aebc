"""Write docs/results/real.md from the findings of --profile real.

    python tools/write_real_results.py [FOLDER] [COST_FOLDER]

The introduction is written by hand and kept in tools/real_results_introduction.md.
"""

import sys
from pathlib import Path

from ttc.files import atomic
from ttc.report.across_datasets import across_datasets
from ttc.report.dataset_columns import read_columns

RESULTS = Path(__file__).parents[1] / "docs" / "results"

if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:]] or [Path("reproduction/real")]
    columns, *costs = [read_columns(folder) for folder in folders]
    introduction = Path(__file__).with_name("real_results_introduction.md").read_text(encoding="utf-8")
    with atomic(RESULTS / "real.md") as part:
        page = across_datasets(columns, introduction=introduction, costs=costs[0] if costs else ())
        part.write_text(page, encoding="utf-8")
    print(f"{RESULTS / 'real.md'} from {', '.join(map(str, folders))}")
