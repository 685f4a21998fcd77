"""The choice from SBAC's list on the nine logs of the first ladder, against the committed cells of every method.

python lab-notes/third-form/against.py lab-notes/third-form/choice lab-notes/table lab-notes/table/published \
    --developed-on lab-notes/table/development

Seeds 400 to 402 against seeds 10 to 14 (published: 0 to 4). "A committee" is one policy a log, so it has no interval of
seeds; its column is the mean alone.
"""

import argparse
from pathlib import Path

import numpy as np
from table import rows_of

from sbac.lab.cells import read_cells
from sbac.lab.choosing import differences
from sbac.lab.naming import collect
from sbac.lab.tables import score_tables
from sbac.text import within


def main(choices: Path, cells: list[Path], developed_on: Path) -> None:
    found = {
        folder.name: told
        for folder in sorted(choices.iterdir())
        if "-td3-" not in folder.name and (told := rows_of(folder, "full")) is not None
    }
    ours = {log: np.array([row["choice"] for row in seeds]) for log, (_, seeds) in found.items()}
    means = {name: np.mean([log[name] for log, _ in found.values()]) for name in ("one setting", "choice", "oracle")}
    means["committees: choice"] = np.mean([log["committees: choice"] for log, _ in found.values()])
    print(f"{len(found)} logs:", ", ".join(f"{name} {value:.1f}" for name, value in means.items()))
    records = [cell for folder in cells for cell in read_cells(folder)]
    for shown in score_tables(collect(records, read_cells(developed_on))):
        theirs = {
            method: [shown.chosen[log, method].scores for log in ours]
            for method in shown.methods
            if all((log, method) in shown.chosen for log in ours)
        }
        if shown.length != "200k steps a phase" or not theirs:
            continue
        print(f"-- {shown.title}")
        for method, against in differences(list(ours.values()), theirs).items():
            mean = np.mean([scores.mean() for scores in theirs[method]])
            clear = "clear" if against.holm else "not clear"
            fixed, drawn = within(*against.tasks_fixed), within(*against.tasks_drawn)
            print(f"{method} | {mean:.1f} | {fixed} | {clear} after Holm | tasks drawn too {drawn}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("choices", type=Path)
    parser.add_argument("cells", type=Path, nargs="+")
    parser.add_argument("--developed-on", type=Path, required=True)
    args = parser.parse_args()
    main(args.choices, args.cells, args.developed_on)
