"""The first page's picture: an ordinary episode of the log, one of the policy learned from it, and the learning curve.

    sbac train hopper-demo --critic mu --seeds 5 --episodes 20 --evaluate-every 5000 --out runs/five
    python lab-notes/demo/picture.py runs/five

Ordinary: the log's episode with the median return, and the seed with the median score at the preset's alpha. MuJoCo
needs EGL or OSMesa to draw: set MUJOCO_GL to egl or osmesa.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import sbac
from sbac.report.charts import curve_line, curve_rules
from sbac.report.drawing import COLOURS, draw_lines
from sbac.results.describe import describe
from sbac.results.series import series_of

FRAMES = 6
TASK = "hopper-demo"


def frames_of_log(env: gymnasium.Env, data: sbac.Dataset) -> tuple[list[np.ndarray], float]:
    """The episode is not played again: its states are shown. A Hopper's observation is its position without x."""
    body: Any = env.unwrapped  # a MuJoCo environment
    order = np.argsort(data.returns)
    start, stop = data.episodes[order[len(order) // 2]]
    x = np.concatenate([[0.0], np.cumsum(data.observations[start : stop - 1, 5] * body.dt)])
    frames = []
    for i in np.linspace(0, stop - start - 1, FRAMES).astype(int):
        state = data.observations[start + i]
        body.set_state(np.concatenate([[x[i]], state[:5]]), state[5:])
        frames.append(env.render())
    return frames, float(data.returns[order[len(order) // 2]])


def frames_of_policy(env: gymnasium.Env, policy: sbac.Policy, seed: int) -> tuple[list[np.ndarray], float]:
    """The episode twice: once for its length, once for its frames."""

    def episode(shown: set[int]) -> tuple[list[np.ndarray], float, int]:
        frames, total, step, over = [], 0.0, 0, False
        state, _ = env.reset(seed=seed)
        while not over:
            if step in shown:
                frames.append(env.render())
            state, reward, terminated, truncated, _ = env.step(policy(state))
            total, step, over = total + float(reward), step + 1, terminated or truncated
        return frames, total, step

    _, total, length = episode(set())
    return episode(set(np.linspace(0, length - 1, FRAMES).astype(int).tolist()))[0], total


def median_policy(run: sbac.Run, data: sbac.Dataset) -> tuple[sbac.Policy, int]:
    """Of the seeds at the run's first alpha the one in the middle, and the seed of its episode in the middle."""
    alpha = run.policies[0].config["alpha"]
    series = next(s for s in series_of(describe(run)) if s.setting["alpha"] == alpha)
    middle = sorted(series.trials, key=lambda trial: trial.last.mean())[len(series.trials) // 2]
    policy = next(p for p in run.policies if p.config["seed"] == middle.seed and p.config["alpha"] == alpha)
    episode = int(np.argsort(middle.last)[len(middle.last) // 2])
    return policy, run.record.evaluation.seed + episode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the folder of the demo's run")
    parser.add_argument("--out", default="docs/demo.png")
    arguments = parser.parse_args()
    run, data = sbac.Run.load(arguments.run), sbac.load(TASK)
    env = gymnasium.make("Hopper-v4", render_mode="rgb_array", width=240, height=300, camera_name="track")
    env.reset(seed=0)
    log, log_return = frames_of_log(env, data)
    policy, seed = median_policy(run, data)
    learned, learned_return = frames_of_policy(env, policy, seed)

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.0, 3.7), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1.4, 1.0])
    for row, (frames, title) in enumerate(
        [
            (log, f"The log: an ordinary episode, return {log_return:.0f}"),
            (learned, f"SBAC, learned from it: an ordinary episode, return {learned_return:.0f}"),
        ]
    ):
        axes = figure.add_subplot(grid[row, 0])
        axes.imshow(np.concatenate(frames, axis=1))
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set_axis_off()
    axes = figure.add_subplot(grid[:, 1])
    series = series_of(describe(run))
    draw_lines(axes, [curve_line(s.label, s, COLOURS[i]) for i, s in enumerate(series)], curve_rules(series))
    axes.set(xlabel="gradient steps", ylabel="normalised score")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0, None)
    axes.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:.0f}k")
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    axes.set_title(
        f"{len({p.config['seed'] for p in run.policies})} seeds while they learn", loc="left", fontsize="medium"
    )
    figure.savefig(Path(arguments.out), dpi=160)


if __name__ == "__main__":
    main()
