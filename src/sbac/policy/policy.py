"""A trained policy in numpy: training makes it, environments are stepped with it, and it has a file.

A policy is a formula (`kind`), the arrays it needs, and the scaling between the environment's units and the
networks'. It loads without JAX, and its file is a safetensors archive, which cannot run code.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sbac.errors import UserError, check_named, name_of, not_negative, path_of
from sbac.files import decoded, pack_arrays, read_safetensors, write_safetensors
from sbac.policy.formulas import FORMULAS, Committee, Floats, standardised, within_bounds
from sbac.records import parse

FORMAT = 1


SCALES = ("scale/observation_mean", "scale/observation_std", "scale/action_low", "scale/action_high")


@dataclass(frozen=True)
class PolicyHeader:
    """The JSON entry in the header of a policy file."""

    format: int
    kind: str = ""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Policy:
    """Maps observations to actions, both in the environment's units.

    `config` is the run's full configuration with its own seed and grid values, and `columns`: the names of the log.
    Observations are numbers in the order of these names, or come by name: a mapping, or a row or rows of a DataFrame.
    """

    def __init__(self, kind: str, arrays: Mapping[str, Floats], config: Mapping[str, Any]) -> None:
        if name_of("kind of policy", kind) not in FORMULAS:
            raise UserError(f"policy of unknown kind {kind!r}: made by a newer version of sbac?")
        check_named("arrays of a policy", arrays)
        check_named("config of a policy", config)
        self.kind = kind
        self.arrays = {k: as_floats(k, v) for k, v in arrays.items()}
        self.config = dict(config)
        for name in SCALES:
            if name not in self.arrays:
                raise UserError(f"a policy without its array {name}")
        self._formula = FORMULAS[kind]

    def __repr__(self) -> str:
        sizes = f"{self.observation_size} observations to {self.action_size} actions"
        return f"Policy({self.config.get('algorithm', self.kind)} {self.config.get('label', '')}, {sizes})"

    @property
    def observation_size(self) -> int:
        return len(self.arrays["scale/observation_mean"])

    @property
    def action_size(self) -> int:
        return len(self.arrays["scale/action_low"])

    @property
    def hash(self) -> str:
        """Of its formula and arrays: what is said of a policy names it by this, since a label is used again."""
        return hashlib.sha256(pack_arrays(self._stored, {"kind": self.kind})).hexdigest()

    @property
    def columns(self) -> dict[str, list[str]]:
        """The names of the observations that it takes and of the actions that it gives, in their order."""
        sizes = {"observations": self.observation_size, "actions": self.action_size}
        named: Mapping[str, Sequence[str]] = self.config.get("columns") or {}
        return {field: [*named.get(field, (f"{field[0]}{i}" for i in range(size)))] for field, size in sizes.items()}

    @property
    def is_finite(self) -> bool:
        """Whether all numbers in its arrays are finite; after a training that diverged they are not."""
        return all(bool(np.isfinite(array).all()) for array in self.arrays.values())

    def __call__(self, observations: ArrayLike | Mapping[str, ArrayLike]) -> Floats:
        """The deterministic action(s) for one observation or a batch of them.

        An observation that is not finite is refused, since its action would mean nothing; so is an action.
        """
        return _finite_actions(self.unchecked(self._finite(observations)))

    def unchecked(self, observations: ArrayLike | Mapping[str, ArrayLike]) -> Floats:
        """As a call, but an observation that is not finite passes, and its action is not finite or arbitrary."""
        with np.errstate(invalid="ignore", over="ignore"):
            return self._apply(observations, lambda x: self._formula.act(self.arrays, x))

    def sample(self, observations: ArrayLike | Mapping[str, ArrayLike], seed: int | np.random.Generator = 0) -> Floats:
        """Actions drawn from the policy."""
        if not isinstance(seed, np.random.Generator):
            not_negative("seed", seed)
        if isinstance(self._formula, Committee):
            raise UserError("a committee gives the mean action of its members and has nothing to sample from")
        rng = np.random.default_rng(seed)

        def draw(x: Floats) -> Floats:
            return within_bounds(self.arrays, self._formula.sample(self.arrays, standardised(self.arrays, x), rng))

        with np.errstate(invalid="ignore", over="ignore"):
            return _finite_actions(self._apply(self._finite(observations), draw))

    def disagreement(self, observations: ArrayLike | Mapping[str, ArrayLike]) -> Floats:
        """How far the members of a committee are apart at each observation: the deviation of their actions around the
        mean, as a share of the range of actions, root mean square over the actions' dimensions."""
        formula, range_of_actions = self._formula, self.arrays["scale/action_high"] - self.arrays["scale/action_low"]
        if not isinstance(formula, Committee):
            raise UserError(f"a policy of kind {self.kind!r} has no members that could disagree; see sbac.committee")

        def deviation(x: Floats) -> Floats:
            return np.sqrt((np.stack(formula.actions(self.arrays, x)) / range_of_actions).var(0).mean(-1))

        return self._apply(self._finite(observations), deviation)

    def log_prob(self, observations: ArrayLike | Mapping[str, ArrayLike], actions: ArrayLike) -> Floats:
        """Log density of actions (in the environment's units), where the method has a density."""
        if not self._formula.has_density:
            raise UserError(f"a policy of kind {self.kind!r} has no density")
        given = as_floats("actions", actions)
        s = standardised(self.arrays, self._sized(self._finite(observations)))
        if given.shape[-1:] != (self.action_size,):
            raise UserError(f"actions of shape {given.shape}: expected {self.action_size} numbers in the last axis")
        low, high = self.arrays["scale/action_low"], self.arrays["scale/action_high"]
        half = 0.5 * (high - low)
        return self._formula.log_prob(self.arrays, s, (given - 0.5 * (high + low)) / half) - np.log(half).sum()

    def _sized(self, observations: ArrayLike | Mapping[str, ArrayLike]) -> Floats:
        given, size = as_floats("observations", self._in_order(observations)), self.observation_size
        if given.ndim not in (1, 2) or given.shape[-1] != size:
            raise UserError(f"observations of shape {given.shape}: expected (n, {size}) or ({size},)")
        return given

    def _apply(self, observations: ArrayLike | Mapping[str, ArrayLike], function: Callable[[Floats], Floats]) -> Floats:
        """A function of rows, at all rows, some at a time."""
        given = self._sized(observations)
        rows, together = np.atleast_2d(given), self._formula.rows_at_once
        blocks = [function(rows[i : i + together]) for i in range(0, max(len(rows), 1), together)]
        values = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
        return values if given.ndim == 2 else values[0]

    def _in_order(self, observations: Any) -> ArrayLike:
        """Observations that come by name, in the order of the columns; others as they are."""
        keys = observations.keys() if hasattr(observations, "keys") else getattr(observations, "columns", None)
        if keys is None or not all(isinstance(key, str) for key in keys):
            return observations
        for name in self.columns["observations"]:
            if name not in keys:
                raise UserError(f"observations: no {name!r}; expected {', '.join(self.columns['observations'])}")
        values = [as_floats(f"observations: {name}", observations[name]) for name in self.columns["observations"]]
        if len({value.shape for value in values}) > 1:
            raise UserError("observations: columns of different lengths; expected one number of each, or as many")
        return np.stack(values, axis=-1)

    def _finite(self, observations: Any) -> Floats:
        """The observations as an array; refuses a NaN or an infinity, and says where it is."""
        given = as_floats("observations", self._in_order(observations))
        if not np.isfinite(given).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(given))[0])
            names = self.columns["observations"]
            where = f" in {names[place[-1]]}" if place and place[-1] < len(names) else ""
            raise UserError(f"observations{list(place)} is {given[place]}; expected finite numbers{where}")
        return given

    def save(self, path: str | Path) -> None:
        """Writes the policy; the file holds no time, path or host, so equal policies are equal files."""
        about = {"format": FORMAT, "kind": self.kind, "config": self.config}
        # One entry: safetensors does not fix the order of more.
        header = {"sbac": json.dumps(about, sort_keys=True)}
        write_safetensors(path_of("path", path), self._stored, header)

    @property
    def _stored(self) -> dict[str, Floats]:
        """The arrays as its file has them: none is without an axis."""
        return {name: np.ascontiguousarray(array) for name, array in sorted(self.arrays.items())}

    @staticmethod
    def load(path: str | Path, diverged: bool = False) -> "Policy":
        """Reads a policy file. `diverged`: one whose numbers are no longer finite is read too."""
        arrays, header = read_safetensors(path_of("policy", path), "policy file")
        try:
            about = parse(PolicyHeader, decoded(header.get("sbac", "")), str(path))
        except UserError:
            raise
        except ValueError:
            raise UserError(f"{path}: not a policy of sbac") from None
        if about.format != FORMAT:
            raise UserError(f"{path}: not a policy of this version of sbac (expected format {FORMAT})")
        missing = {"algorithm", "seed", "label", "grid"} - about.config.keys()
        if missing:
            raise UserError(f"{path}: a policy without its {sorted(missing)[0]}")
        try:
            policy = Policy(about.kind, arrays, about.config)
            _check(policy, diverged)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise UserError(f"{path}: a damaged policy ({type(error).__name__}: {error})") from None
        return policy


def _check(policy: Policy, diverged: bool) -> None:
    """Refuses what cannot act: arrays that do not fit each other, bounds that bound nothing, numbers that are none."""
    arrays = policy.arrays
    if not diverged and not policy.is_finite:
        name = next(name for name, array in arrays.items() if not np.isfinite(array).all())
        raise ValueError(f"{name} has numbers that are not finite")
    for name, array in arrays.items():  # a committee's members have scales of their own
        if name.endswith("scale/observation_std") and not (array > 0).all():
            raise ValueError(f"{name} has numbers that are not above 0")
    for first, second in (SCALES[:2], SCALES[2:]):
        if arrays[first].ndim != 1 or arrays[first].shape != arrays[second].shape:
            shapes = f"{arrays[first].shape} and {arrays[second].shape}"
            raise ValueError(f"{first} and {second} have the shapes {shapes}; expected equal ones with 1 axis")
    if (arrays["scale/action_low"] > arrays["scale/action_high"]).any():
        raise ValueError("scale/action_low is above scale/action_high")
    for name in arrays:
        _check_layer(arrays, name)
    if [*map(len, policy.columns.values())] != [policy.observation_size, policy.action_size]:
        raise ValueError("columns: expected a name for each number")
    draws = not isinstance(FORMULAS[policy.kind], Committee)
    usual = np.stack([arrays["scale/observation_mean"]] * 2)
    for act in (policy.unchecked,) if diverged else (policy, policy.sample) if draws else (policy,):
        shape = act(usual).shape
        if shape != usual.shape[:1] + arrays["scale/action_low"].shape:
            raise ValueError(f"actions of shape {shape[1:]}, other than those of the bounds")


def _check_layer(arrays: Mapping[str, Floats], name: str) -> None:
    """Refuses a layer without its other half or the layer before it, and one that does not fit them."""
    layer = re.fullmatch(r"(.*)/(weights|biases)/([0-9]{1,3})", name)
    if layer is None:
        return
    network, number = layer[1], int(layer[3])
    expected = [f"{network}/{half}/{number}" for half in ("weights", "biases")]
    if number > 0:
        expected.append(f"{network}/biases/{number - 1}")
    for other in expected:
        if other not in arrays:
            raise ValueError(f"{name} without {other}")
    weights, *biases = (arrays[other].shape for other in expected)
    if weights[:-2] + weights[-1:] != biases[0] or any(weights[:-1] != before for before in biases[1:]):
        raise ValueError(f"{name} does not fit the layers beside it")


def _finite_actions(actions: Floats) -> Floats:
    if not np.isfinite(actions).all():
        raise UserError("the policy's action is not a finite number: its weights are too large")
    return actions


def as_floats(what: str, values: ArrayLike) -> Floats:
    """Numbers as an array; anything else is refused."""
    try:
        return np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise UserError(f"{what}: expected numbers in rows of equal length, got {type(values).__name__}") from None
