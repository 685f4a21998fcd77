"""`sbac.committee`: several policies as one, which does the mean of what they do."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sbac.errors import UserError
from sbac.policy.formulas import COMMITTEE_OF
from sbac.policy.policy import SCALES, Policy
from sbac.text import setting_label


def committee(policies: Iterable[Policy]) -> Policy:
    """A policy whose action is the mean of its members' actions. It has a file, is exported and judged like any other.

    Its `disagreement` says where the members are apart. It has one action for an observation, and nothing to sample.

    policies: two or more, such as those of a run: of one kind, with equal sizes and bounds. Each keeps its own scaling.
    """
    members = _checked(policies)
    arrays = {f"member/{i}/{name}": array for i, member in enumerate(members) for name, array in member.arrays.items()}
    # Members scale for themselves; these two say where the data lie, and an export is compared there.
    arrays |= {name: np.mean([member.arrays[name] for member in members], axis=0) for name in SCALES[:2]}
    arrays |= {name: members[0].arrays[name] for name in SCALES[2:]}
    return Policy(COMMITTEE_OF + members[0].kind, arrays, _config([member.config for member in members]))


def _checked(policies: Iterable[object]) -> list[Policy]:
    """The members; those that cannot act together are refused."""
    given = list(policies) if hasattr(policies, "__iter__") else []
    if len(given) < 2:
        raise UserError("policies: expected at least two for a committee, such as those of a run")
    members: list[Policy] = []
    for number, policy in enumerate(given):
        if not isinstance(policy, Policy):
            raise UserError(f"policies[{number}] is {type(policy).__name__}; expected a Policy")
        if policy.kind.startswith(COMMITTEE_OF):
            raise UserError(f"policies[{number}] is a committee itself; expected its members")
        if not policy.is_finite:
            raise UserError(f"policies[{number}] holds numbers that are not finite: its training has diverged")
        members.append(policy)
        for (name, first), other in zip(_aspects(members[0]).items(), _aspects(policy).values(), strict=True):
            if first != other:
                raise UserError(f"policies[{number}] has {name} {other}; expected {first}, as in policies[0]")
    return members


def _aspects(policy: Policy) -> dict[str, object]:
    """What the members agree in."""
    low, high = (policy.arrays[name].tolist() for name in SCALES[2:])
    sizes = {"observation size": policy.observation_size, "action size": policy.action_size}
    return {"kind": policy.kind, **sizes, "lower bounds": low, "upper bounds": high}


def _config(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all members' configs say alike, and who the members are. `seed` is that of the first."""
    first = configs[0]
    alike = {name: value for name, value in first.items() if all(config.get(name) == value for config in configs)}
    grid = [name for name in alike.get("grid", []) if name in alike]
    setting = ", ".join(f"{name}={setting_label(alike[name])}" for name in grid)
    return alike | {
        "algorithm": ", ".join(dict.fromkeys(str(config.get("algorithm")) for config in configs)),
        "label": f"committee of {len(configs)}" + (f" ({setting})" if setting else ""),
        "grid": grid,
        "seed": first.get("seed", 0),
        "members": [config.get("label") for config in configs],
        "seeds": [config.get("seed") for config in configs],
    }
