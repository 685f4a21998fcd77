"""Rewrites the committed cells of SBAC once: options that are gone leave their configs, six of them become `objective`.

python lab-notes/house/rewrite_cells.py lab-notes/table lab-notes/trust

A cell whose deleted options stood elsewhere than the constants in their place is named and left as it is. Nothing
but the config changes; the script compares every other entry with the committed file before it writes.
"""

import json
import sys
from pathlib import Path
from typing import Any

PAPER = {"climbed": "minimum", "support": "action", "scale_free": False, "start_from_clone": False}
PAPER |= {"cosine_decay": False, "normalise_critics": False}
SCALE_FREE = {"climbed": "lower-bound", "support": "pre-tanh", "scale_free": True, "start_from_clone": True}
SCALE_FREE |= {"cosine_decay": True, "normalise_critics": True}
CONSTANTS = {"ratio_epsilon": 1e-6, "ratio_mean_rate": 0.01, "ratio_bandwidth": 0.0, "ratio_bandwidth_states": 1000}
CONSTANTS |= {"ratio_pairs": "distinct", "ratio_normalise": True, "ratio_target_rate": 0.005, "entropy": 0.0}
CONSTANTS |= {"constrained": False, "log_mu_floor": 0.0, "dual_learning_rate": 1e-3, "dial": False}
CONSTANTS |= {"temper_beta_ess": 0.02, "temper_ratio_ess": 0.1}
READ_BY_NOTHING = ("ratio_decay", "ratio_features", "ratio_ridge")


def rewritten(algorithm: str, config: dict[str, Any]) -> dict[str, Any] | str:
    """The config in today's options, or what has no place in them."""
    old = {**PAPER, **config}
    objective = "scale-free" if old["scale_free"] else "paper"
    expected = (SCALE_FREE if old["scale_free"] else PAPER) | CONSTANTS
    if config.get("weighting") == "none":  # then no option of the ratio is read
        expected = {name: value for name, value in expected.items() if not name.startswith(("ratio_", "temper_"))}
    for name, value in expected.items():
        if old.get(name, value) != value:
            return f"{name}={old[name]!r}"
    gone = {*PAPER, *CONSTANTS, *READ_BY_NOTHING}
    kept = {name: value for name, value in config.items() if name not in gone}
    kept["objective"] = objective
    if algorithm == "sbac-q-pi":
        kept["critic_penalty"] = 0.0
    return kept


def main() -> None:
    count = 0
    for file in sorted(path for folder in sys.argv[1:] for path in Path(folder).rglob("cells/*/*.json")):
        text = file.read_text()
        cell = json.loads(text)
        if not cell["algorithm"].startswith("sbac") or "objective" in cell["config"]:
            continue
        answer = rewritten(cell["algorithm"], cell["config"])
        if isinstance(answer, str):
            print(f"{file}: left as it is, {answer}")
            continue
        fresh = json.loads(text)
        fresh["config"] = answer
        assert {k: v for k, v in fresh.items() if k != "config"} == {k: v for k, v in cell.items() if k != "config"}
        from sbac.lab.cells import cell_text, parse_cell

        file.write_text(cell_text(parse_cell(fresh, str(file))))
        written = json.loads(file.read_text())
        assert all(written.get(k) == v for k, v in cell.items() if k != "config"), file
        count += 1
    print(f"{count} cells rewritten")


if __name__ == "__main__":
    main()
