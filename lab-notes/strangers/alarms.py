"""Which warnings of `sbac.data.misleading` come for logs that were not made for it.

python lab-notes/strangers/alarms.py hopper-demo log.npz ...
python lab-notes/strangers/alarms.py --make FOLDER      # the fifteen stand-ins, 40,000 rows each, and their warnings
python lab-notes/strangers/alarms.py --rows 10000000    # how long a log of noise takes
"""

import argparse
import resource
import time
import warnings

import numpy as np

import sbac
from sbac.data.locating import stand_ins
from sbac.data.misleading import View, misleading
from sbac.making.making import make_datasets


def show(data: sbac.Dataset) -> None:
    began = time.time()
    sentences = misleading(data)
    told = View(data, str).prediction
    assert told is not None
    ratio = np.where(told.one > 0.01 * told.change, np.sqrt(told.two / told.one), 1.0).min()
    print(
        f"{data.name}: {len(data):,} rows, {time.time() - began:.1f} s; two rows' error by one's: {ratio:.2f} or more"
    )
    for sentence in sentences:
        print(f"  - {sentence}")


def noise(rows: int) -> sbac.Dataset:
    random = np.random.default_rng(0)
    observations = np.empty((rows, 17), np.float32)
    for column in observations.T:
        column[:] = random.standard_normal(rows, np.float32)
    actions = random.uniform(-1, 1, (rows, 6)).astype(np.float32)
    cut = np.arange(rows) % 1000 == 999
    return sbac.Dataset(observations, actions, random.standard_normal(rows), np.zeros(rows, bool), cut, name="noise")


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*")
    parser.add_argument("--make", metavar="FOLDER")
    parser.add_argument("--rows", type=int)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    made = [] if asked.make is None else make_datasets(stand_ins(), out=asked.make, workers=1, size=40_000)
    for source in [*asked.logs, *made]:
        show(sbac.load(source))
    if asked.rows is not None:
        data = noise(asked.rows)
        before = peak()
        show(data)
        print(f"peak memory: {before:.2f} GiB before, {peak():.2f} after")


def peak() -> float:
    """The most memory so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    run()
