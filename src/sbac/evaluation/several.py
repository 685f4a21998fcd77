"""Evaluation of the policies of a run, on all cores."""

from pathlib import Path
from typing import Any

from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.policy import Policy


def evaluate_policies(
    target: Path, environment: str | None = None, episodes: int = 10, seed: int = 0, workers: int | None = None
) -> list[dict[str, Any]]:
    """A row per policy of a run's folder (or for one policy file), as in evaluations.jsonl."""
    paths = policy_files(target)
    policies = [Policy.load(path) for path in paths]
    where = environment or policies[0].config.get("task")
    if where is None:
        raise UserError(f"{target}: trained on data without a task; name an environment with --env")
    pool = Pool(workers, len(paths))
    try:
        answers = [pool.submit(path, where, episodes, seed) for path in paths]
        return [_row(policy) | answer.result() for policy, answer in zip(policies, answers, strict=True)]
    finally:
        pool.close()


def policy_files(target: Path) -> list[Path]:
    """The policies of a run's folder, in order, or the one file."""
    if target.is_file():
        return [target]
    from sbac.training.run import read_config

    labels = read_config(target)["labels"]
    paths = [target / "policies" / f"{label}.safetensors" for label in labels]
    if not any(path.exists() for path in paths):
        raise UserError(f"{target}: the run has no policies yet; finish it with sbac train --resume")
    return [path for path in paths if path.exists()]


def _row(policy: Policy) -> dict[str, Any]:
    grid = {name: policy.config[name] for name in policy.config["grid"]}
    return {"algorithm": policy.config["algorithm"], "seed": policy.config["seed"], **grid}
