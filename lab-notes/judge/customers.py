"""20,000 offers, one to a customer: the log, and what a policy learned from it really earns.

python lab-notes/judge/customers.py write customers.csv
sbac learn customers.csv --minutes 6 --out RUN --action-low 0 --action-high 30 --columns rewards=margin \
    actions=discount observations=age,spent,visits episode=customer terminals=done
python lab-notes/judge/customers.py play RUN/policy.safetensors
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sbac

Numbers = NDArray[Any]


def customers(count: int, rng: np.random.Generator) -> tuple[Numbers, Numbers, Numbers]:
    return rng.uniform(18, 80, count), rng.gamma(2, 60, count), rng.poisson(4, count).astype(float)


def buys(age: Numbers, spent: Numbers, discount: Any) -> Numbers:
    """The chance that a customer buys."""
    pull = discount * (0.22 - 0.0025 * (age - 45))
    return 1 / (1 + np.exp(2.2 - 0.012 * (age - 45) - 0.004 * spent - pull))


def margin(discount: Any) -> Any:
    """Of a price of 60 and a cost of 30."""
    return 60 * (1 - discount / 100) - 30


def write(path: str) -> None:
    count, rng = 20_000, np.random.default_rng(5)
    age, spent, visits = customers(count, rng)
    discount = np.clip(8 + 0.02 * spent + 4 * rng.standard_normal(count), 0, 30)
    earned = (rng.random(count) < buys(age, spent, discount)) * margin(discount)
    with open(path, "w") as file:
        file.write("customer,age,spent,visits,discount,margin,done\n")
        for number, row in enumerate(zip(age, spent, visits, discount, earned, strict=True)):
            file.write("{},{:.1f},{:.2f},{:.0f},{:.2f},{:.2f},1\n".format(number, *row))
    expected = (buys(age, spent, discount) * margin(discount)).mean()
    print(f"an offer earns {earned.mean():.2f}, without chance {expected:.2f}")


def play(path: str) -> None:
    """The mean over fresh customers, and that of the best discount for each."""
    age, spent, visits = customers(200_000, np.random.default_rng(9))
    policy = sbac.Policy.load(path)
    discount = np.asarray(policy(np.stack([age, spent, visits], 1).astype(np.float32)))[:, 0]
    tried = np.arange(0, 30.1, 0.5)
    best = np.max([buys(age, spent, each) * margin(each) for each in tried], axis=0)
    print(f"an offer earns {(buys(age, spent, discount) * margin(discount)).mean():.2f}, the best {best.mean():.2f}")


if __name__ == "__main__":
    {"write": write, "play": play}[sys.argv[1]](sys.argv[2])
