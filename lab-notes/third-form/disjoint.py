"""Disjoint committees of three beside their members: python lab-notes/third-form/disjoint.py POLICIES OUT.jsonl LOG ...

POLICIES/LOG has the policies of one setting (`policies.py train --jobs mu-1 --seeds 400 ... 414`), three by three in
the order of their seeds.
"""

import json
import sys
from pathlib import Path

import numpy as np

import sbac

folder, out, *logs = sys.argv[1:]
for log in logs:
    files = sorted(Path(folder, log).glob("mu-1-*-[0-9]*.safetensors"))
    policies = [sbac.Policy.load(file) for file in files]
    several = {file.stem: policy for file, policy in zip(files, policies, strict=True)}
    several |= {f"committee-{i // 3}": sbac.committee(policies[i : i + 3]) for i in range(0, len(policies) - 2, 3)}
    with open(out, "a") as lines:
        for name, policy in several.items():
            played = sbac.evaluate(policy, log, episodes=50, seed=10_000)
            assert played.scores is not None
            scores, lengths = np.round(played.scores, 2).tolist(), list(played.lengths)
            lines.write(json.dumps({"log": log, "policy": name, "scores": scores, "lengths": lengths}) + "\n")
            lines.flush()
            print(log, name, f"{np.mean(scores):.1f}, worst {min(scores):.1f}", flush=True)
