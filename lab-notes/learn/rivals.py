"""Would a rival on the list of `sbac learn` pay? Trained at the sizes of its plans, judged, and then played.

    python lab-notes/learn/rivals.py OUT LOG ...          (a made log's name, or hopper-demo)

OUT/LOG.json has, for each policy, committee and the clone, what the judge says (effort `quick`) and the scores of 20
episodes. What is there is not done again; with no LOG the table alone is printed. Seeds are for development.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sbac
from sbac.data.locating import made_names
from sbac.evaluation.rollout import Evaluator
from sbac.making.making import identity, make_datasets
from sbac.records import as_json, parse
from sbac.trust.behaviour import clone_policy
from sbac.trust.choice import CLONE, CandidateRecord
from sbac.trust.choosing import judged_candidates
from sbac.trust.contenders import Contender
from sbac.trust.deciding import decide
from sbac.trust.evidence import Question, find_effort
from sbac.trust.log import read_log

ROWS, EPISODES, SEEDS = 400_000, 20, [110, 111, 112]
OURS: list[dict[str, Any]] = [{"critic": "pi", "alpha": 1.0}, {"critic": "mu", "alpha": 1.0}]
PLAN: dict[str, dict[str, Any]] = {
    "sbac": {"settings": OURS, "steps": [20_000, 10_000]},
    "iql": {"steps": [30_000]},
    "td3-bc": {"steps": [30_000]},
}
RIVALS = [name for name in PLAN if name != "sbac"]
PRESET = OURS[0]
COMMITTEE = "committee"


def setting_name(policy: sbac.Policy, method: str) -> str:
    return f"{policy.config['critic']}-{policy.config['alpha']:g}" if method == "sbac" else method


def trained(data: sbac.Dataset) -> dict[str, sbac.Policy]:
    """By setting and seed, and the committee of each setting."""
    found: dict[str, sbac.Policy] = {}
    for method, options in PLAN.items():
        began = time.monotonic()
        run = sbac.train(data, method, preset="quick", seeds=SEEDS, evaluate=False, progress=False, **options)
        print(f"  {method}: {time.monotonic() - began:.0f} s", flush=True)
        settings: dict[str, list[sbac.Policy]] = {}
        for policy in run.policies:
            settings.setdefault(setting_name(policy, method), []).append(policy)
        for name, several in settings.items():
            found |= {f"{name}/{policy.config['seed']}": policy for policy in several}
            found[f"{name}/{COMMITTEE}"] = sbac.committee(several)
    return found


def study(name: str, folder: Path) -> dict[str, Any]:
    if name in made_names():
        file = folder / "data" / f"{name}.npz"
        if not file.is_file():
            make_datasets(name, out=file.parent, size=min(identity(name, None, 0).size, ROWS), progress=False)
        data, where = sbac.load(file), name
    else:
        data, where = sbac.load(name), name
    policies = trained(data)
    began = time.monotonic()
    question = Question(read_log(data, 0.99), [], find_effort("quick"))
    policies[CLONE] = clone_policy(question)
    contenders = [Contender(label, policy, None) for label, policy in policies.items()]
    question = replace(question, policies=[each.policy for each in contenders])
    rows = [as_json(row) for row in judged_candidates(question, contenders)]
    print(f"  judge: {time.monotonic() - began:.0f} s", flush=True)
    play = Evaluator(where)
    played = {label: play(policy, EPISODES, 10_000) for label, policy in policies.items()}
    returns = {label: np.round(each.returns, 2).tolist() for label, each in played.items()}
    return {"log": name, "mean": float(data.returns.mean()), "judged": rows, "returns": returns}


def taken(judged: dict[str, CandidateRecord], names: Sequence[str]) -> str:
    among = [judged[name] for name in names]
    return decide([*among, judged[CLONE]], PRESET, among).label


def table(told: dict[str, Any]) -> None:
    returns = {label: float(np.mean(each)) for label, each in told["returns"].items()}
    judged: dict[str, CandidateRecord] = {}
    for row in told["judged"]:
        setting = row["label"].split("/")[0]
        ours = next((each for each in OURS if setting == f"{each['critic']}-{each['alpha']:g}"), None)
        row["setting"] = ours or {"method": setting}
        judged[row["label"]] = parse(CandidateRecord, row, told["log"])
    names = [name for name in judged if name != CLONE]
    print(f"{told['log']}: the log {told['mean']:.0f}, the clone {returns[CLONE]:.0f}")
    for setting in dict.fromkeys(name.split("/")[0] for name in names):
        singles = [returns[f"{setting}/{seed}"] for seed in SEEDS]
        words = f"{np.mean(singles):.0f} ({min(singles):.0f} to {max(singles):.0f})"
        print(f"  {setting}: {words}, committee {returns[f'{setting}/{COMMITTEE}']:.0f}")
    lists = {"ours": []} | {f"ours and {rival}": [rival] for rival in RIVALS} | {"all": RIVALS}
    for title, rivals in lists.items():
        listed = [name for name in names if name.split("/")[0] in rivals or name.split("/")[0] not in RIVALS]
        label = taken(judged, listed)
        print(f"  of {title}: {label} {returns[label]:.0f}, the best has {max(returns[n] for n in listed):.0f}")


def main(out: Path, logs: Sequence[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in logs:
        file = out / f"{name}.json"
        if not file.is_file():
            print(name, flush=True)
            file.write_text(json.dumps(study(name, out)))
    for file in sorted(out.glob("*.json")):
        table(json.loads(file.read_text()))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
