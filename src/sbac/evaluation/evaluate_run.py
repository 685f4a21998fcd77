"""Evaluation of the policies of a run, on all cores."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sbac import interrupts
from sbac.environments.opening import is_known
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.policy import Policy


def evaluate_policies(
    target: Path, environment: str | None = None, episodes: int = 10, seed: int = 0, pool: Pool | None = None
) -> list[dict[str, Any]]:
    """A row per policy of a run's folder (or for one policy file), as in evaluations.jsonl."""
    paths = policy_files(target)
    policies = [Policy.load(path) for path in paths]
    where = environment or own_environment(target, policies[0])
    if where is None:
        raise UserError(f"{target}: no environment is known for it; name one with --env")
    with Pool(expected=len(paths)) if pool is None else nullcontext(pool) as workers:
        answers = [workers.submit(path, where, episodes, seed) for path in paths]
        rows: list[dict[str, Any]] = []
        for policy, answer in zip(policies, answers, strict=True):
            interrupts.check()
            rows.append(_row(policy) | answer.result())
        return rows


def own_environment(target: Path, policy: Policy) -> str | None:
    """Where a run was evaluated while it trained, or learned; else its data's task. One that was a function has only
    a name, and counts if that is an environment's."""
    from sbac.runs import read_config

    watched = read_config(target)["evaluation"]["environment"] if target.is_dir() else None
    for name in (watched, policy.config.get("environment"), policy.config.get("task")):
        if name is not None and is_known(name):
            return name
    return None


def policy_files(target: Path) -> list[Path]:
    """The policies of a run's folder, in order, or the one file."""
    if target.is_file():
        return [target]
    from sbac.runs import read_config

    labels = read_config(target)["labels"]
    paths = [target / "policies" / f"{label}.safetensors" for label in labels]
    if not any(path.exists() for path in paths):
        raise UserError(f"{target}: the run has no policies yet; finish it with sbac train --resume")
    return [path for path in paths if path.exists()]


def _row(policy: Policy) -> dict[str, Any]:
    grid = {name: policy.config[name] for name in policy.config["grid"]}
    return {"algorithm": policy.config["algorithm"], "seed": policy.config["seed"], **grid}
