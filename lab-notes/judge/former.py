"""The bed's policies judged by the rule of commit a089f01: run with the package of that commit on the path.

python lab-notes/judge/former.py OUT EFFORT LOG ...    writes OUT/former/LOG.json
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import sbac
from sbac.trust.choosing import Candidate, episode_deviation, model_values  # type: ignore[attr-defined]
from sbac.trust.estimates import judge, learned_from, with_model  # type: ignore[attr-defined]
from sbac.trust.fitting import Effort, Reporter, find_effort  # type: ignore[attr-defined]
from sbac.trust.log import read_log

NEWER = re.compile("committee|clone")
"""Policies that it knew nothing of."""
TINY = Effort(2, 2, (32, 32), 64, (100, 100), 2e-3, 0.1, (32, 32), 100)


def told(out: Path, log_name: str, effort: Any) -> dict[str, Any]:
    folder = out / "policies" / log_name if (out / "policies").is_dir() else out / log_name
    files = [file for file in sorted(folder.glob("*.safetensors")) if not NEWER.search(file.stem)]
    log, policies = read_log(sbac.load(out / "data" / f"{log_name}.npz"), 0.99), [sbac.Policy.load(f) for f in files]
    values: Any = judge(log, policies, effort, 0)  # type: ignore[call-arg]
    rolled = model_values(log, policies, values.fitted, effort, 0, Reporter())
    deviation = episode_deviation(log)
    answers: dict[str, Any] = {}
    for number, (file, estimate) in enumerate(zip(files, values.estimates, strict=True)):
        whole = learned_from(with_model(estimate, values.fitted.own, rolled, number, deviation), values.fitted.own)
        low, high = (whole.gain_low, whole.gain_high) if whole.has_interval else (None, None)
        answers[file.stem] = {"gain": whole.gain, "low": low, "high": high, "warnings": list(whole.warnings)}
        judged = Candidate(file.stem, 0, {}, whole)
        answers[file.stem] |= {"episode": whole.diagnostics.episode, "promise": judged.promise, "unit": judged.unit}
    return answers


def main() -> None:
    out, effort = Path(sys.argv[1]), TINY if sys.argv[2] == "tiny" else find_effort(sys.argv[2])
    (out / "former").mkdir(exist_ok=True)
    for log_name in sys.argv[3:]:
        file, began = out / "former" / f"{log_name}.json", time.time()
        if not file.is_file():
            file.write_text(json.dumps(told(out, log_name, effort)))
            print(f"{log_name}, the rule before: {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
