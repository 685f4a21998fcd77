"""Evaluation of the policies of a run, on all cores."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from sbac.environments.opening import may_open
from sbac.errors import UserError, not_negative, positive
from sbac.evaluation.worker import Pool
from sbac.policy import Policy
from sbac.records import Json, Settings, as_json, parse
from sbac.runs import (
    Episodes,
    Failure,
    PolicyRecord,
    policy_file,
    policy_record,
    policy_setting,
    read_policy,
    read_record,
)


@dataclass(frozen=True)
class PolicyEpisodes:
    """What one policy did: the run it comes from, and its episodes. `failed`: the run's, where it failed."""

    algorithm: str
    seed: int
    setting: Settings
    episodes: Episodes
    failed: Failure | None = None


def policy_episodes_json(row: PolicyEpisodes) -> dict[str, Json]:
    """The columns of evaluations.jsonl, without those that say when."""
    return {"algorithm": row.algorithm, "seed": row.seed, **row.setting, **as_json(row.episodes)}


def evaluate_policies(
    target: Path, environment: str | None = None, episodes: int = 10, seed: int = 0, pool: Pool | None = None
) -> list[PolicyEpisodes]:
    """Plays episodes of every policy of a run's folder (or of one policy file)."""
    positive("episodes", episodes)
    not_negative("seed", seed)
    paths = policy_files(target)
    policies = [Policy.load(path) if path == target else read_policy(path) for path in paths]
    for policy, path in zip(policies, paths, strict=True):
        parse(PolicyRecord, policy.config, str(path))
    where = environment or own_environment(target, policies[0])
    if where is None:
        raise UserError(f"{target}: no environment is known for it; name one with --env")
    with Pool(expected=len(paths)) if pool is None else nullcontext(pool) as workers:
        answers = [workers.submit(path, where, episodes, seed) for path in paths]
        rows: list[PolicyEpisodes] = []
        for policy, path, answer in zip(policies, paths, answers, strict=True):
            source, played = policy_record(policy), parse(Episodes, answer.result(), f"the episodes of {path}")
            setting = policy_setting(policy, source.grid)
            rows.append(PolicyEpisodes(source.algorithm, source.seed, setting, played, source.failed))
        return rows


def own_environment(target: Path, policy: Policy) -> str | None:
    """The environment that a run was evaluated in while it trained, or learned in; else that of its data's task.

    An environment made by a function has only a name, which counts if Gymnasium or a task has it. One that is in a
    module of its own is not opened because a file names it.
    """
    watched = read_record(target).evaluation.environment if target.is_dir() else None
    source = policy_record(policy)
    for name in (watched, source.environment, source.task):
        if name is not None and may_open(name):
            return name
        if name is not None and ":" in name:
            raise UserError(ask_for(target, name))
    return None


def ask_for(target: Path, environment: str) -> str:
    """Says that a file names an environment which only the person at the keyboard may have opened."""
    return f"{target}: names the environment {environment!r}, which is not opened unasked; name it with --env"


def policy_files(target: Path) -> list[Path]:
    """The policies of a run's folder, in order, or the one file."""
    if target.is_file():
        return [target]
    paths = [policy_file(target, label) for label in read_record(target).labels]
    if not any(path.exists() for path in paths):
        raise UserError(f"{target}: the run has no policies yet; finish it with sbac train --resume")
    return [path for path in paths if path.exists()]
