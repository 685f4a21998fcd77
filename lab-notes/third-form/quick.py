"""Which critic should preset `quick` climb? Q^mu and Q^pi at alpha 1 on larger logs, as `sbac train` trains them.

python lab-notes/third-form/quick.py OUT --logs L ... [--seeds 130 133] [--rows 400000]
(a row a policy in OUT/quick.jsonl, its file in OUT/policies/LOG)
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import sbac
from sbac.making.making import identity, make_datasets


def main(out: Path, logs: list[str], seeds: list[int], rows: int, episodes: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    results = out / "quick.jsonl"
    done = {json.loads(line)["log"] for line in results.read_text().splitlines()} if results.is_file() else set[str]()
    for log in logs:
        if log in done:
            continue
        file, began = out / "data" / f"{log}.npz", time.monotonic()
        if not file.is_file():
            make_datasets(log, out=file.parent, size=min(identity(log, None, 0).size, rows), progress=False)
        data = sbac.load(file)
        run = sbac.train(data, seeds=seeds, critic=["mu", "pi"], evaluate=False, progress=False)
        clones = sbac.train(data, "bc", seeds=seeds, evaluate=False, progress=False)
        trained = time.monotonic() - began
        named = [(p.config["critic"], p.config["seed"], p) for p in run.policies]
        for critic in ("mu", "pi"):
            named.append((critic, "committee", sbac.committee([p for c, _, p in named if c == critic])))
        named += [("clone", p.config["seed"], p) for p in clones.policies]
        (out / "policies" / log).mkdir(parents=True, exist_ok=True)
        for critic, seed, policy in named:
            policy.save(out / "policies" / log / f"{critic}-{seed}.safetensors")
            played = sbac.evaluate(policy, log, episodes=episodes, seed=50_000)
            assert played.scores is not None
            lengths = [int(length) for length in played.lengths]
            row = {"log": log, "critic": critic, "seed": seed, "scores": np.round(played.scores, 2).tolist()}
            with results.open("a") as lines:
                lines.write(json.dumps(row | {"lengths": lengths}) + "\n")
            print(f"{log} {critic} {seed}: {np.mean(played.scores):.1f}, {np.mean(lengths):.0f} steps", flush=True)
        print(f"{log}: {trained:.0f} s of training, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--logs", nargs="+", required=True)
    parser.add_argument("--seeds", nargs=2, type=int, default=[130, 133])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    main(args.out, args.logs, list(range(*args.seeds)), args.rows, args.episodes)
