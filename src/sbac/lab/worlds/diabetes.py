"""A person with type 1 diabetes and an insulin pump: a decision every 15 minutes, an episode a day.

The body is the UVa/Padova model of the package simglucose, its adult#001, with its sensor's noise and its meals.
"""

import functools
import math
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np

from sbac.lab.worlds.world import Controller, World, package
from sbac.policy import Floats

PATIENT, SENSOR, PUMP = "adult#001", "GuardianRT", "Insulet"
MINUTES, STEPS = 15, 96
SAMPLE = 5
"""Minutes between two readings of the sensor."""
BASAL = 1.27
"""U/h that hold this body's glucose where it is."""
CARB_RATIO, CORRECTION = 10.0, 30.0
"""What the controllers take a unit of insulin for: grams of carbohydrates that it covers, mg/dl by which it lowers
glucose. The second is cautious: in this body it is 9."""
LOW, HIGH = 50.0, 350.0
"""The end of a day: below, the person needs help; above, a hospital."""
INSULIN_STAYS, CARBS_STAY = 100.0, 60.0
"""Minutes in which insulin and carbohydrates on board fall to 1/e."""
OBSERVATIONS = (
    "glucose [mg/dl]",
    "trend [mg/dl per 15 min]",
    "insulin on board [U]",
    "carbs [g]",
    "carbs on board [g]",
    "time of day [h]",
)


@functools.cache
def body() -> tuple[Any, Floats]:
    """The patient's parameters and first state. The package's own table is slow to read from at every step."""
    table = package("pandas").read_csv(package("simglucose.patient.t1dpatient").PATIENT_PARA_FILE)
    row = table.loc[table.Name == PATIENT].squeeze()
    return SimpleNamespace(**row.to_dict()), row.iloc[2:15].to_numpy(float)


@functools.cache
def quick_patient() -> Any:
    """The package's patient with plain numbers in place of numpy's: the same results in half the time."""
    patient = package("simglucose.patient.t1dpatient").T1DPatient

    def model(t: float, x: Floats, *inputs: Any) -> Floats:
        return patient.model(t, x.tolist(), *inputs)

    return type("QuickPatient", (patient,), {"model": staticmethod(model)})


class Day:
    """A day as a Gymnasium environment. What is eaten in the coming 15 minutes is announced: "carbs"."""

    def __init__(self) -> None:
        from gymnasium.spaces import Box

        self.observation_space: Any = Box(-np.inf, np.inf, (len(OBSERVATIONS),))
        self.action_space: Any = Box(np.zeros(2), np.array(DIABETES.high), dtype=np.float64)

    def reset(self, *, seed: int | None = None) -> tuple[Floats, dict[str, object]]:
        parameters, state = body()
        simulation = "simglucose.simulation"
        midnight = datetime(2024, 1, 1)
        plan = package(f"{simulation}.scenario_gen").RandomScenario(midnight, seed=seed).scenario["meal"]
        self._meals: list[tuple[float, float]] = [*zip(plan["time"], plan["amount"], strict=True)]
        glucose = [3, 4, 12]  # in plasma, in tissue and under the skin
        state = state.copy()
        state[glucose] *= np.random.default_rng(seed).uniform(0.8, 1.4)
        self._body: Any = package(f"{simulation}.env").T1DSimEnv(
            quick_patient()(parameters, init_state=state),
            package("simglucose.sensor.cgm").CGMSensor.withName(SENSOR, seed=seed),
            package("simglucose.actuator.pump").InsulinPump.withName(PUMP),
            package(f"{simulation}.scenario").CustomScenario(midnight, [(at / 60, grams) for at, grams in self._meals]),
        )
        self._step, self._insulin, self._carbs = 0, BASAL * INSULIN_STAYS / 60, 0.0
        self._glucose = self._before = float(self._body.CGM_hist[-1])
        return self._observation(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, object]]:
        dose = package("simglucose.controller.base").Action
        basal, bolus = np.clip(action, 0.0, self.action_space.high)
        self._carbs = self._carbs * math.exp(-MINUTES / CARBS_STAY) + self._announced()
        self._insulin = (self._insulin + bolus) * math.exp(-MINUTES / INSULIN_STAYS) + basal * MINUTES / 60
        self._before = self._glucose
        doses = [dose(basal=basal / 60, bolus=rate) for rate in (bolus / SAMPLE, 0.0, 0.0)]
        samples = [self._body.step(each) for each in doses]
        self._glucose = samples[-1].observation.CGM
        self._step += 1
        emergency = not all(LOW <= sample.info["bg"] <= HIGH for sample in samples)
        reward = max(0.0, 1.0 - samples[-1].info["risk"] / 25)
        return self._observation(), reward, emergency, self._step == STEPS and not emergency, {}

    def close(self) -> None: ...

    def _announced(self) -> float:
        start = self._step * MINUTES
        return float(sum(grams for minute, grams in self._meals if start <= minute < start + MINUTES))

    def _observation(self) -> Floats:
        hour = self._step * MINUTES / 60
        trend = self._glucose - self._before
        return np.array([self._glucose, trend, self._insulin, self._announced(), self._carbs, hour])


def person(rng: np.random.Generator) -> Controller:
    """Controller A: counts carbohydrates, and miscounts; corrects high glucose, and forgets what is still at work."""
    basal_today = BASAL * rng.lognormal(0, 0.2)

    def act(observations: Floats) -> Floats:
        glucose, _, _, carbs, _, _ = observations.T
        forgets = rng.random(len(glucose)) < 0.12
        meal = np.where(forgets, 0.0, carbs / CARB_RATIO * rng.lognormal(0, 0.35, len(glucose)))
        looks = rng.random(len(glucose)) < 0.25
        correction = np.where(looks & (glucose > 180), (glucose - 140) / CORRECTION, 0.0)
        basal = basal_today * rng.lognormal(0, 0.2, len(glucose)) * (glucose > 75)
        return np.stack([basal, meal + correction], axis=-1)

    return act


def closed_loop(observations: Floats) -> Floats:
    """Controller B: basal follows glucose and trend, meals get four fifths of their insulin at once."""
    glucose, trend, on_board, carbs, _, _ = np.asarray(observations, np.float64).T
    expected = glucose + 2 * trend
    basal = BASAL * np.clip(1 + (expected - 120) / 60, 0, 2.5)
    meal = 0.8 * carbs / CARB_RATIO
    correction = np.clip((glucose - 180) / CORRECTION - (on_board - BASAL * INSULIN_STAYS / 60), 0, 2)
    return np.stack([basal, meal + correction], axis=-1)


DIABETES = World(
    name="diabetes",
    episode="day",
    end="emergency",
    observations=OBSERVATIONS,
    actions=("basal [U/h]", "bolus [U]"),
    low=(0.0, 0.0),
    high=(4.0, 15.0),
    steps=STEPS,
    make=Day,
    writer=person,
    other=closed_loop,
    watched=("`glucose [mg/dl]` < 70", "`glucose [mg/dl]` > 180"),
    episodes=500,
    gaps=98,
)
