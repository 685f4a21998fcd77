"""python lab-notes/worlds/play.py WORLD EPISODES POLICY ...: what policies, by their files, do in a world."""

import sys

import sbac
from sbac.lab.worlds import WORLDS
from sbac.lab.worlds.__main__ import truth

world, episodes, *files = sys.argv[1:]
for file in files:
    played = truth(WORLDS[world], sbac.Policy.load(file), int(episodes))
    rates = ", ".join(f"{what} {number:.4g}" for what, number in played["happened"].items())
    print(f"{file}: {rates}, error {played['error']:.2f}", flush=True)
