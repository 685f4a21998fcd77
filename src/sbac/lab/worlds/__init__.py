"""Worlds that are not MuJoCo, in which a promise meets the truth. Their packages are no part of this one's.

Each world is one file. It says how its environment is made, what its columns are called, who writes its log
(controller A), who is judged beside what was learned (controller B), and what a user would watch.
"""

from sbac.lab.worlds.diabetes import DIABETES
from sbac.lab.worlds.plant import PLANT

WORLDS = {world.name: world for world in (DIABETES, PLANT)}
