"""What wider networks and longer trainings give on two cores: SBAC with the critic pi at alpha 1, else preset `quick`.

    python lab-notes/learn/width.py LOG WIDTH STEPS STEPS >> lab-notes/learn/width.jsonl

LOG: a file or a name that `sbac.load` takes. One line: the seconds of training, and the returns of 20 episodes of each
of three policies (seeds 110 to 112, for development) and of their committee.
"""

import json
import sys
import time

import sbac

BATCH, SEEDS, EPISODES = 128, [110, 111, 112], 20


def main(log: str, width: int, steps: list[int]) -> None:
    data = sbac.load(log)
    where = data.task or data.environment
    assert where is not None, f"{log}: nowhere to play"
    options = {"critic": "pi", "alpha": 1.0, "hidden": [width, width], "batch_size": BATCH}
    began = time.monotonic()
    run = sbac.train(data, preset="quick", seeds=SEEDS, steps=steps, evaluate=False, progress=False, **options)
    row = {
        "log": data.name,
        "hidden": width,
        "batch": BATCH,
        "steps": steps,
        "seconds": round(time.monotonic() - began),
    }
    policies = {str(policy.config["seed"]): policy for policy in run.policies}
    for name, policy in (policies | {"committee": sbac.committee(run.policies)}).items():
        returns = sbac.evaluate(policy, where, episodes=EPISODES, seed=50_000).returns
        row[name] = [round(float(each), 1) for each in returns]
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), list(map(int, sys.argv[3:5])))
