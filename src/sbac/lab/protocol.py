"""How policies are measured: when they are evaluated, for how many episodes, from which seeds."""

from dataclasses import dataclass

EVALUATIONS = 10
SPARSE = 5


@dataclass(frozen=True)
class Protocol:
    """How a bench measures policies.

    During training: `episodes` episodes from environment seed `seed` on, every `every` steps over the last ten
    evaluations of the last phase, at five evenly spaced steps before them, and at the end of every earlier phase.
    At the end: `final_episodes` of the last policy, from other seeds. Settings are chosen on the former episodes
    and reported on the latter.
    """

    episodes: int = 10
    seed: int = 10_000
    every: int = 5_000
    final_episodes: int = 100
    final_seed: int = 1_000_000

    def schedule(self, steps: int) -> list[int]:
        """The steps of the last phase at which policies are evaluated; trainings too short for it scale it down."""
        every = min(self.every, max(1, steps // (2 * EVALUATIONS)))
        dense = [steps - every * back for back in range(EVALUATIONS)]
        before = steps - every * EVALUATIONS
        sparse = [before * part // SPARSE // every * every for part in range(1, SPARSE + 1)]
        return sorted({step for step in (*sparse, *dense) if step > 0})
