"""Write docs/results/real.md from the findings of --profile real: python tools/write_real_results.py [FOLDER]"""

import sys
from pathlib import Path

from ttc.files import atomic
from ttc.report.across_datasets import across_datasets, read_columns

PAGE = Path(__file__).parents[1] / "docs" / "results" / "real.md"

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("reproduction/real")
    with atomic(PAGE) as part:
        part.write_text(across_datasets(read_columns(folder)), encoding="utf-8")
    print(f"{PAGE} from {folder}")
