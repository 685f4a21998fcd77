"""What a user would pick instead: d3rlpy's TD3+BC and IQL on the same log, the same two cores, the same minutes.

In d3rlpy's environment, on two cores:
    taskset -c 0,1 python against_d3rlpy.py train LOG.npz --method iql --minutes 15 --out FOLDER
In sbac's:
    python against_d3rlpy.py play FOLDER/*.npz runs/LOG/policy.safetensors --log LOG.npz --out against.jsonl
    python against_d3rlpy.py draw against.jsonl --out against.png

d3rlpy's settings are its defaults, with observations standardised and actions scaled by the log's bounds. `train` needs
d3rlpy and torch, and nothing of sbac: it stores its policy as plain arrays. `play` plays the truth and writes one JSON
line a policy. A log is an npz file that sbac wrote (sbac data convert hopper-demo hopper-demo.npz).
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

EPOCH = 100
"""Steps between two looks at the clock."""


def train(log: Path, method: str, minutes: float, seed: int, out: Path) -> None:
    """Trains until the minutes are over, setting up included."""
    started = time.monotonic()
    import d3rlpy
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    d3rlpy.seed(seed)
    rows = np.load(log, allow_pickle=False)
    fields = ("observations", "actions", "rewards", "terminals", "timeouts")
    data = d3rlpy.dataset.MDPDataset(**{name: rows[name].astype(np.float32) for name in fields})
    low, high = rows["action_low"], rows["action_high"]
    config = {"td3-bc": d3rlpy.algos.TD3PlusBCConfig, "iql": d3rlpy.algos.IQLConfig}[method]
    algorithm = config(
        # Given, not fitted: d3rlpy goes through the log row by row for that, which is no training.
        observation_scaler=d3rlpy.preprocessing.StandardObservationScaler(
            mean=rows["observations"].mean(axis=0), std=rows["observations"].std(axis=0)
        ),
        action_scaler=d3rlpy.preprocessing.MinMaxActionScaler(minimum=low, maximum=high),
    ).create(device=False)
    epochs = algorithm.fitter(
        data,
        n_steps=100_000_000,
        n_steps_per_epoch=EPOCH,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    facts = {"method": method, "seed": seed, "d3rlpy": d3rlpy.__version__, "log": log.stem}
    facts |= {"cores": len(os.sched_getaffinity(0)), "machine": os.uname().machine}
    file, saved = out / f"{log.stem}-{method}-{seed}.npz", 0.0
    out.mkdir(parents=True, exist_ok=True)
    for epoch, _ in epochs:
        taken = time.monotonic() - started
        over = taken * (epoch + 1) / epoch > 60 * minutes  # the next one would end too late
        if over or taken > saved + 60:  # a machine that goes away early leaves the policy of its last minute
            saved, policy = taken, arrays_of(algorithm, low, high)
            facts |= {"steps": EPOCH * epoch, "minutes": taken / 60}
            np.savez(file, facts=np.array(json.dumps(facts)), **policy)
        if over:
            break
    some = rows["observations"][:: max(1, len(rows["observations"]) // 256)]
    assert np.allclose(act(policy, some), algorithm.predict(some), atol=1e-3 * (high - low).max())
    print(json.dumps(facts))


def arrays_of(algorithm, low: np.ndarray, high: np.ndarray) -> dict[str, np.ndarray]:
    """The greedy policy: layers with ReLU between them, then tanh, then the bounds."""
    import torch

    scaler, network = algorithm.observation_scaler, algorithm.impl.policy
    layers = [each for each in network.modules() if isinstance(each, torch.nn.Linear)]
    arrays = {f"w{i}": layer.weight.detach().numpy().T for i, layer in enumerate(layers)}
    arrays |= {f"b{i}": layer.bias.detach().numpy() for i, layer in enumerate(layers)}
    return arrays | {"mean": scaler.mean, "std": scaler.std + scaler.eps, "low": low, "high": high}


def act(policy: dict[str, np.ndarray], observations: np.ndarray) -> np.ndarray:
    x = (observations - policy["mean"]) / policy["std"]
    last = sum(name.startswith("w") for name in policy) - 1
    for i in range(last + 1):
        x = x @ policy[f"w{i}"] + policy[f"b{i}"]
        x = np.tanh(x) if i == last else np.maximum(x, 0)
    return policy["low"] + (x + 1) / 2 * (policy["high"] - policy["low"])


def play(policies: list[Path], log: Path, episodes: int, seed: int, out: Path) -> None:
    import sbac
    from sbac.lab.worlds import WORLDS

    data = sbac.load(str(log))
    environment = WORLDS[log.stem].make if log.stem in WORLDS else data.task or data.environment
    with out.open("a") as lines:
        for path in policies:
            if path.suffix == ".npz":
                arrays = dict(np.load(path, allow_pickle=False))
                facts = json.loads(str(arrays.pop("facts")))
                policy = lambda observations, arrays=arrays: act(arrays, observations)  # noqa: E731
            else:
                policy, facts = sbac.Policy.load(path), {"method": "sbac learn", "log": log.stem}
            truth = sbac.evaluate(policy, environment, episodes=episodes, seed=seed)
            line = facts | {"returns": truth.returns, "lengths": truth.lengths, "scores": truth.scores}
            line |= {"file": path.name, "log_return": float(data.returns.mean()), "log_score": data.score}
            print(facts["method"], facts["log"], round(truth.mean, 2), "log", round(float(data.returns.mean()), 2))
            lines.write(json.dumps(line) + "\n")
            lines.flush()


def draw(results: Path, out: Path) -> None:
    """One panel a log: each policy's mean with two standard errors of its episodes, the log's own mean a line."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in results.read_text().splitlines()]
    logs = list(dict.fromkeys(line["log"] for line in lines))
    names = {"sbac learn": "sbac learn", "td3-bc": "d3rlpy\nTD3+BC", "iql": "d3rlpy\nIQL"}
    figure, panels = plt.subplots(1, len(logs), figsize=(3.2 * len(logs), 3.2), squeeze=False)
    for panel, log in zip(panels[0], logs, strict=True):
        of = [line for line in lines if line["log"] == log]
        scored = all(line["scores"] is not None for line in of)
        for line in of:
            values = np.array(line["scores" if scored else "returns"])
            place, error = list(names).index(line["method"]), 2 * values.std(ddof=1) / np.sqrt(len(values))
            panel.errorbar(place, values.mean(), error, fmt="o", capsize=4, color=f"C{place}")
        base = of[0]["log_score" if scored else "log_return"]
        panel.axhline(base, color="0.4", linestyle="--")
        panel.annotate("the log", (0.02, base), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
        panel.set_title(log, fontsize=9)
        panel.set_xticks(range(len(names)), list(names.values()), fontsize=8)
        panel.set_xlim(-0.5, len(names) - 0.5)
        panel.set_ylabel("score" if scored else "return of an episode")
    figure.tight_layout()
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("log", type=Path)
    training.add_argument("--method", choices=["td3-bc", "iql"], required=True)
    training.add_argument("--minutes", type=float, default=15)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--out", type=Path, required=True)
    playing = commands.add_parser("play")
    playing.add_argument("policies", type=Path, nargs="+")
    playing.add_argument("--log", type=Path, required=True)
    playing.add_argument("--episodes", type=int, default=50)
    playing.add_argument("--seed", type=int, default=10_000)
    playing.add_argument("--out", type=Path, required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("results", type=Path)
    drawing.add_argument("--out", type=Path, required=True)
    words = vars(parser.parse_args())
    {"train": train, "play": play, "draw": draw}[words.pop("command")](**words)


if __name__ == "__main__":
    main()
