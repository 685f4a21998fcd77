"""Trains every offline method for 100 steps with two seeds and writes its arrays to a file, or compares two files.

python lab-notes/house/bits.py write FILE.npz        (run it in the checkout before a change and in the one after)
python lab-notes/house/bits.py compare BEFORE.npz AFTER.npz
"""

import sys

import numpy as np


def write(path: str) -> None:
    import sbac
    from sbac.algorithms import REGISTRY

    data = sbac.load("hopper-demo")
    arrays: dict[str, np.ndarray] = {}
    for name in REGISTRY:
        if name in ("sac", "td3"):
            continue
        run = sbac.train(data, name, seeds=2, preset="quick", steps=100, evaluate=False, progress=False)
        for policy in run.policies:
            for key, value in policy.arrays.items():
                arrays[f"{name} {policy.config['seed']} {key}"] = np.asarray(value)
        print(name, len(run.policies), flush=True)
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def compare(before: str, after: str) -> None:
    old, new = np.load(before), np.load(after)
    for method in dict.fromkeys(name.split()[0] for name in old):
        names = [name for name in old if name.split()[0] == method]
        missing = [name for name in names if name not in new]
        apart = [float(np.abs(old[n] - new[n]).max(initial=0)) for n in names if n in new]
        equal = not missing and all(np.array_equal(old[n], new[n]) for n in names)
        verdict = "equal" if equal else "NOT equal"
        print(f"{method:12} {len(names):4} arrays  {verdict}  at most {max(apart, default=0):.1e}")
        if missing:
            print(" missing:", *missing[:4])


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
