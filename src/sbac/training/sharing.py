"""Groups of one run whose first phases are the same program on the same inputs: those are trained once.

SBAC's phase *estimate* is the same for the critics `mu` and `pi`. The group that comes first, the leader, trains it.
When the leader is done, a follower's checkpoint is written from the leader's, and the follower goes on from there as a
resumed group does.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp

from sbac.algorithms.base import Spec
from sbac.config import Config, fields_of, values_of
from sbac.data import Dataset
from sbac.data.streaming import StreamedLog
from sbac.nn import Tree
from sbac.training.checkpoint import BEGINNING, Checkpoint, Position, write_state
from sbac.training.device_data import DeviceData
from sbac.training.engine import Program
from sbac.training.open_run import Group, Lead


def with_leaders(groups: Sequence[Group]) -> list[Group]:
    """All groups of a run, in their order, each with its leader where it has one."""
    request = groups[0].open_run.request
    last = len(request.method.phases) - 1  # which is never shared: its policies are what the groups are for
    if len(groups) < 2 or last == 0 or request.warm_start is not None or isinstance(request.dataset, StreamedLog):
        return list(groups)
    linked = list(groups)
    leaders: list[tuple[Group, Program]] = []
    for number, group in enumerate(groups):
        alike = [entry for entry in leaders if engine_fields(entry[0]) == engine_fields(group)]
        program = program_of(group, request.dataset, alike[0][1] if alike else None)
        for leader, other in alike:
            phases = same_phases(other, program, last)
            if phases > 0:
                linked[number] = replace(group, lead=Lead(leader.checkpoint.path, phases))
                linked[leader.number] = followed_by(linked[leader.number], group, phases)
                break
        else:
            leaders.append((group, program))
    return linked


def followed_by(leader: Group, follower: Group, phases: int) -> Group:
    """The leader, which knows in what a follower of its first phases differs."""
    first, second = (values_of(group.runs[0].config) for group in (leader, follower))
    fields = fields_of(type(leader.runs[0].config))
    apart = {name for name, field in fields.items() if not field.spec.per_policy and first[name] != second[name]}
    pairs = itertools.zip_longest(leader.followed, [apart] * phases, fillvalue=frozenset[str]())
    return replace(leader, followed=[frozenset(before | now) for before, now in pairs])


def engine_fields(group: Group) -> dict[str, object]:
    """What the data on the device and the loop around the phases depend on."""
    values = values_of(group.runs[0].config)
    return {name: values[name] for name, field in fields_of(Config).items() if not field.spec.per_policy}


def program_of(group: Group, data: Dataset, alike: Program | None) -> Program:
    """The group's program, on the data of another one where that has the same."""
    request = group.open_run.request
    if alike is not None:
        return Program(request.method, group.runs, alike.table, alike.validation, alike.spec)
    source = DeviceData.of(request.method, data, group.runs[0].config)
    spec = Spec(*request.sizes, jnp.asarray(source.states)[None])
    return Program(request.method, group.runs, source.table, source.validation, spec)


def same_phases(one: Program, other: Program, most: int) -> int:
    """How many phases, from the first on, are the same program on the same inputs in both."""
    finals: dict[str, Tree] = {}
    for phase in range(most):
        first, second = one.shape(phase, finals), other.shape(phase, finals)
        if (
            one.trained(phase) != other.trained(phase)
            or jax.tree.flatten(first) != jax.tree.flatten(second)
            or one.text(phase, finals) != other.text(phase, finals)
        ):
            return phase
        finals[one.algorithm.phases[phase].name] = first
    return most


def taken_over(group: Group) -> Group:
    """The group as it goes on from its leader's phases, if it is at its beginning.

    A leader with a run that failed is not followed: the follower's own run fails and keeps a policy of its own.
    """
    if group.lead is None or group.checkpoint.at != BEGINNING:
        return group
    phases = group.open_run.request.method.phases
    leader = Checkpoint.find(group.lead.path, len(phases))
    if leader.at.phase < len(phases) or leader.kept:
        return group
    states = {phase.name: leader.arrays(phase.name) for phase in phases[: group.lead.phases]}
    last = group.lead.phases - 1
    write_state(group.checkpoint.path, Position(last, group.runs[0].config.steps[last]), states, {})
    return replace(group, checkpoint=Checkpoint.find(group.checkpoint.path, len(phases)))
