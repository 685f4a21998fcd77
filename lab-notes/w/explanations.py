"""The paper's three explanations of SBAC's stability, each measured where the truth is known.

    python lab-notes/w/explanations.py --out lab-notes/w/explanations.json     # a few minutes, one core

1. Without the entropy term the policy is narrower.   2. w pulls pi's states towards the data's.
3. Q^mu is easier to estimate than Q^pi. Only the third draws samples (logs of 200 to 5,000 transitions).
"""

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from exact_worlds import (
    FORCES,
    POSITIONS,
    advantage_scale,
    controls,
    garnets,
    garnets_sharing_mu,
    in_groups,
    noisy_q,
    score,
    true_q,
)
from w_exact import ALPHAS, interval

from truth.improvement import Found, Maximiser, Worlds, each_state, gaussian_step, greedy, improve

Cell = tuple[float, float]
"""Mean and half the width of its 95 % interval."""
LEVELS = (0.25, 0.5, 0.75)
LOGS, LOG_SIZES = 20, (200, 1_000, 5_000)
STRENGTHS = (0.5, 1.0, 2.0, 4.0)
OWN_ROUNDS = 15
FEATURES = 24


def shown(cell: Cell) -> str:
    return f"{cell[0]:+.3f} ± {cell[1]:.3f}"


def solved(worlds: Worlds, q: np.ndarray, weigh: bool, entropy: float, maximise: Maximiser = each_state) -> Found:
    alpha = ALPHAS[:, None] * advantage_scale(worlds)
    return improve(worlds, lambda w: q, alpha, weighting="q" if weigh else "none", entropy=entropy, maximise=maximise)


# --- 1. The entropy term ----------------------------------------------------------------------------------------------


def closed_form_error() -> dict[str, float]:
    """The formula's spread against pi = mu exp(Q / alpha) / Z on the linear-quadratic grid, w = 1, at x = 0: largest
    relative deviation in standard deviation, and the narrowest and widest spread relative to mu's."""
    ratios, errors = [], []
    middle = len(POSITIONS) // 2
    for _, worlds in controls(uneven=False):
        policy = solved(worlds, true_q(worlds), False, 1.0).policy[:, :, middle]
        q = true_q(worlds)[:, middle]
        curvature = -np.polyfit(FORCES, q.T, 2)[0] * 2
        std_mu, std_pi = (std_on(FORCES, x) for x in (worlds.mu[:, middle], policy))
        for k, m in np.ndindex(std_pi.shape):
            alpha = ALPHAS[k] * advantage_scale(worlds)[m]
            expected = gaussian_step(0.0, float(std_mu[m]), 0.0, float(curvature[m]), 1.0, float(alpha), 1.0)[1]
            inside = policy[k, m, [0, -1]].sum() < 1e-4  # the grid does not cut pi off
            if inside and expected > FORCES[1] - FORCES[0]:  # nor is it coarser than pi
                ratios.append(std_pi[k, m] / std_mu[m])
                errors.append(abs(std_pi[k, m] / expected - 1))
    found = {"worst": max(errors), "narrowest": min(ratios), "widest": max(ratios)}
    return {"cases": len(errors)} | {name: float(value) for name, value in found.items()}


def std_on(grid: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    mean = probabilities @ grid
    return np.sqrt(np.maximum(probabilities @ grid**2 - mean**2, 0))


def without_entropy(q_of: Callable[[Worlds], np.ndarray]) -> dict[str, Any]:
    """Objective (8) less KL, w = 1: score and standard deviation of an episode's return, relative to mu's."""
    scores: dict[float, list[np.ndarray]] = {0.0: [], 1.0: []}
    spreads: dict[float, list[np.ndarray]] = {0.0: [], 1.0: []}
    for _, worlds in garnets():
        for entropy in scores:
            policy = solved(worlds, q_of(worlds), False, entropy).policy
            scores[entropy].append(score(worlds, policy))
            spreads[entropy].append(worlds.return_std(policy) / worlds.return_std(worlds.mu))
    sharp, soft = (np.concatenate(scores[entropy], 1) for entropy in (0.0, 1.0))
    sharp_std, soft_std = (np.concatenate(spreads[entropy], 1) for entropy in (0.0, 1.0))
    best_sharp, best_soft = sharp.mean(1).argmax(), soft.mean(1).argmax()
    return {
        "score": [interval(gap) for gap in sharp - soft],
        "return_std": [interval(gap) for gap in sharp_std - soft_std],
        "best_score": interval(sharp[best_sharp] - soft[best_soft]),
        "best_return_std": interval(sharp_std[best_sharp] - soft_std[best_soft]),
        "best_alphas": [float(ALPHAS[best_sharp]), float(ALPHAS[best_soft])],
        "best_scores": [float(sharp[best_sharp].mean()), float(soft[best_soft].mean())],
    }


# --- 2. Where pi goes -------------------------------------------------------------------------------------------------


def distance_at(score_curve: np.ndarray, distance_curve: np.ndarray, level: float) -> float:
    """The distance where the score, coming from large alpha, first reaches the level (linear in between)."""
    scores, distances = score_curve[::-1], distance_curve[::-1]
    k = int((scores >= level).argmax())
    if k == 0:
        return float(distances[0])
    share = (level - scores[k - 1]) / (scores[k] - scores[k - 1])
    return float(distances[k - 1] + share * (distances[k] - distances[k - 1]))


def state_distances(
    problems: Iterable[tuple[str, Worlds]],
    entropy: float = 0.0,
    maximiser: Callable[[Worlds], Maximiser] = lambda worlds: each_state,
) -> dict[str, Any]:
    """Total variation between pi's and the data's states: with w less with w = 1, at equal alpha and equal score."""
    scores: dict[bool, list[np.ndarray]] = {True: [], False: []}
    distances: dict[bool, list[np.ndarray]] = {True: [], False: []}
    for _, worlds in problems:
        for weigh in scores:
            policy = solved(worlds, true_q(worlds), weigh, entropy, maximiser(worlds)).policy
            scores[weigh].append(score(worlds, policy))
            distances[weigh].append(0.5 * np.abs(worlds.visitation(policy) - worlds.data).sum(-1))
    s, d = ({side: np.concatenate(x, 1) for side, x in found.items()} for found in (scores, distances))
    reach = np.minimum(s[True].max(0), s[False].max(0))
    use = np.flatnonzero((reach > 0.05) & (np.maximum(s[True][-1], s[False][-1]) < 0.25 * reach))
    equal_score = {
        level: interval(
            np.array(
                [
                    distance_at(s[True][:, m], d[True][:, m], level * reach[m])
                    - distance_at(s[False][:, m], d[False][:, m], level * reach[m])
                    for m in use
                ]
            )
        )
        for level in LEVELS
    }
    return {
        "with_w": d[True].mean(1).tolist(),
        "without": d[False].mean(1).tolist(),
        "equal_alpha": [interval(gap) for gap in d[True] - d[False]],
        "equal_score": equal_score,
        "problems_at_equal_score": len(use),
    }


# --- 3. Q^mu against Q^pi ---------------------------------------------------------------------------------------------


def draw_logs(worlds: Worlds, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Counts of (s, a) -> s' in logs of mu, and of (s, a) -> (s', a'): (log, pair, state), (log, pair, pair)."""
    _, s, a = worlds.shape
    pairs = (worlds.data[0, :, None] * worlds.mu[0]).ravel()
    next_states = (pairs[:, None] * worlds.transitions[0].reshape(s * a, s)).ravel()
    states = rng.multinomial(size, next_states / next_states.sum(), size=LOGS).reshape(LOGS, s * a, s)
    return states, rng.multinomial(states, worlds.mu[0]).reshape(LOGS, s * a, s * a)


def fitted(worlds: Worlds, counts: np.ndarray, next_pairs: np.ndarray) -> np.ndarray:
    """Q of each log by least squares, one number per pair; a pair that the log lacks gets the log's mean value."""
    rows = counts.sum(-1)
    rewards = worlds.rewards[0].ravel()
    usual = (rows @ rewards / rows.sum(-1))[:, None] / (1 - worlds.discount)
    doubt = 1e-3  # of a row: decides only where there is none
    left = (rows + doubt)[..., None] * np.eye(len(rewards)) - worlds.discount * next_pairs
    right = rows * rewards + doubt * usual
    return np.linalg.solve(left, right[..., None])[..., 0].reshape(len(rows), *worlds.shape[1:])


def following(counts: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """Expected counts of (s, a) -> (s', a') if a' came from the policy (log or 1, s, a)."""
    return (counts[..., None] * policy[:, None]).reshape(*counts.shape[:2], -1)


def tilted(mu: np.ndarray, q: np.ndarray, alpha: float) -> np.ndarray:
    """The KL objective's pi, w = 1: mu exp(Q / alpha) / Z."""
    scores = np.log(mu) + q / alpha
    odds = np.exp(scores - scores.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def errors(worlds: Worlds, found: np.ndarray, truth: np.ndarray, policy: np.ndarray) -> tuple[float, float]:
    """Root mean square and mean of the error at the data's states and the policy's actions, over logs, in standard
    deviations of A^mu."""
    gap = (found - truth) / advantage_scale(worlds)[0]
    weights = worlds.data[0, :, None] * policy
    return float(np.sqrt((weights * gap**2).sum((-2, -1))).mean()), float((weights * gap).sum((-2, -1)).mean())


def evaluate(worlds: Worlds, size: int, rng: np.random.Generator) -> dict[str, float]:
    """All errors of one MDP, averaged over its logs."""
    mu, scale = worlds.mu, advantage_scale(worlds)[0]
    q_mu = true_q(worlds)
    counts, sarsa = draw_logs(worlds, size, rng)
    found_mu = fitted(worlds, counts, sarsa)
    row = {
        "Q^mu at mu": errors(worlds, found_mu, q_mu, mu)[0],
        "Q^mu, a' averaged over mu, at mu": errors(worlds, fitted(worlds, counts, following(counts, mu)), q_mu, mu)[0],
    }
    policies = {f"x{x:g}": tilted(mu, q_mu, scale / x) for x in STRENGTHS} | {"greedy": greedy(q_mu)}
    for name, policy in policies.items():
        q_pi = worlds.values(policy)[1]
        found = fitted(worlds, counts, following(counts, policy))
        row[f"{name}: distance"] = float((worlds.data * 0.5 * np.abs(policy - mu).sum(-1)).sum())
        row[f"{name}: Q^mu at pi"] = errors(worlds, found_mu, q_mu, policy)[0]
        row[f"{name}: Q^pi at pi"] = errors(worlds, found, q_pi, policy)[0]
        row[f"{name}: Q^pi at mu"] = errors(worlds, found, q_pi, mu)[0]
    for strength in STRENGTHS:
        row |= learned(worlds, counts, found_mu, strength)
    return row


def learned(worlds: Worlds, counts: np.ndarray, found_mu: np.ndarray, strength: float) -> dict[str, float]:
    """pi chosen by the estimate itself: one step on Q^mu, and pi and Q^pi in turn on the same log."""
    alpha = advantage_scale(worlds)[0] / strength
    once = tilted(worlds.mu, found_mu, alpha)
    own = once
    for _ in range(OWN_ROUNDS):
        found_own = fitted(worlds, counts, following(counts, own))
        last, own = own, tilted(worlds.mu, found_own, alpha)
    many = Worlds(*(np.repeat(getattr(worlds, name), LOGS, 0) for name in FIELDS), discount=worlds.discount)
    once_error, once_bias = errors(worlds, found_mu, true_q(worlds), once)
    own_error, own_bias = errors(worlds, found_own, many.values(last)[1], last)
    low, high = worlds.returns(worlds.mu), worlds.best_returns()
    return {
        f"learned x{strength:g}: Q^mu error": once_error,
        f"learned x{strength:g}: Q^mu bias": once_bias,
        f"learned x{strength:g}: Q^pi error": own_error,
        f"learned x{strength:g}: Q^pi bias": own_bias,
        f"learned x{strength:g}: score, Q^mu": float(((many.returns(once) - low) / (high - low)).mean()),
        f"learned x{strength:g}: score, Q^pi": float(((many.returns(own) - low) / (high - low)).mean()),
    }


FIELDS = ("transitions", "termination", "rewards", "initial", "mu", "data")


def singles(worlds: Worlds, count: int) -> list[Worlds]:
    return [
        Worlds(*(getattr(worlds, name)[m : m + 1] for name in FIELDS), discount=worlds.discount) for m in range(count)
    ]


def estimation(discount: float) -> dict[int, dict[str, Cell]]:
    """By size of the log: every error with its interval over MDPs."""
    label = f"gamma {discount}, no ends, medium mu"
    chosen = singles(dict(garnets())[label], 20)
    tables = {}
    for size in LOG_SIZES:
        rng = np.random.default_rng(size)
        rows = [evaluate(worlds, size, rng) for worlds in chosen]
        tables[size] = {name: interval(np.array([row[name] for row in rows])) for name in rows[0]}
        for name in [f"x{x:g}" for x in STRENGTHS] + ["greedy"]:
            gaps = [row[f"{name}: Q^pi at pi"] - row["Q^mu at mu"] for row in rows]
            tables[size][f"{name}: Q^pi at pi less Q^mu at mu"] = interval(np.array(gaps))
        for x in STRENGTHS:
            gaps = [row[f"learned x{x:g}: score, Q^mu"] - row[f"learned x{x:g}: score, Q^pi"] for row in rows]
            tables[size][f"learned x{x:g}: score, Q^mu less Q^pi"] = interval(np.array(gaps))
    return tables


def linear_critic() -> dict[str, dict[str, float]]:
    """Fitted evaluation on random features from endless data: where it diverges, and how far its answer is off.

    One step maps the weights by gamma (F' D F)^-1 F' D P F, F the features and D the data. For mu that is a
    contraction: its data's visitation obeys d P <= d / gamma, so the step's norm is at most sqrt(gamma).
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    rng = np.random.default_rng(3)
    for worlds in (single for _, stack in garnets() for single in singles(stack, stack.shape[0])):
        _, s, a = worlds.shape
        features = np.c_[np.ones(s * a), rng.normal(size=(s * a, FEATURES))]
        weights = (worlds.data[0, :, None] * worlds.mu[0]).ravel()
        gram = features.T * weights @ features
        scale = advantage_scale(worlds)[0]
        q_mu = true_q(worlds)
        policies = {"mu": worlds.mu} | {f"x{x:g}": tilted(worlds.mu, q_mu, scale / x) for x in STRENGTHS}
        for name, policy in (policies | {"greedy": greedy(q_mu)}).items():
            moves = following(worlds.transitions[0].reshape(1, s * a, s), policy)[0]
            step = worlds.discount * np.linalg.solve(gram, features.T * weights @ moves @ features)
            start = np.linalg.solve(gram, features.T * weights @ worlds.rewards.ravel())
            answer = features @ np.linalg.solve(np.eye(len(step)) - step, start)
            truth = worlds.values(policy)[1].ravel()
            closest = features @ np.linalg.solve(gram, features.T * weights @ truth)
            error, least = (float(np.sqrt(weights @ (x - truth) ** 2) / scale) for x in (answer, closest))
            found.setdefault(name, []).append((float(np.abs(np.linalg.eigvals(step)).max()), error, least))
    return {
        name: {
            "diverges": float((radius >= 1).mean()),
            "median error": float(np.median(error)),
            "90 % of errors below": float(np.quantile(error, 0.9)),
            "median of the least possible error": float(np.median(least)),
        }
        for name, (radius, error, least) in ((name, np.array(rows).T) for name, rows in found.items())
    }


# --- Report -----------------------------------------------------------------------------------------------------------


def report(results: dict[str, Any]) -> None:
    print("1. spread of the KL policy against its closed form:", results["closed form"])
    for name, found in results["entropy"].items():
        print(f"\n1. objective (8) less KL, {name}; best alphas and scores", found["best_alphas"], found["best_scores"])
        print("at the best alphas: score", shown(found["best_score"]), "return std", shown(found["best_return_std"]))
        for alpha, gap, spread in zip(ALPHAS, found["score"], found["return_std"], strict=True):
            print(f"alpha {alpha:8.2g}  score {shown(gap)}  return std {shown(spread)}")
    for name, found in results["distance"].items():
        print(f"\n2. total variation to the data's states, w less w = 1, {name}")
        print(f"at equal score ({found['problems_at_equal_score']} problems):", end=" ")
        print({level: shown(cell) for level, cell in found["equal_score"].items()})
        for k, alpha in enumerate(ALPHAS):
            print(f"alpha {alpha:8.2g}  {found['without'][k]:.3f}  {shown(found['equal_alpha'][k])}")
    print("\n3. fitted evaluation on random features, endless data")
    for name, row in results["linear critic"].items():
        print(f"{name:8s}", {key: round(value, 3) for key, value in row.items()})
    for name, tables in results["estimation"].items():
        print(f"\n3. errors in standard deviations of A^mu, {name}")
        for row in tables[LOG_SIZES[0]]:
            print(f"{row:45s}", "  ".join(shown(tables[size][row]) for size in LOG_SIZES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    arguments = parser.parse_args()
    results = {
        "closed form": closed_form_error(),
        "entropy": {"exact Q": without_entropy(true_q), "noisy Q": without_entropy(noisy_q)},
        "distance": {
            "MDPs, objective (8)": state_distances(garnets()),
            "MDPs, KL": state_distances(garnets(), entropy=1.0),
            "MDPs, shared policy and mu, objective (8)": state_distances(garnets_sharing_mu(), 0.0, in_groups),
            "MDPs, shared policy and mu, KL": state_distances(garnets_sharing_mu(), 1.0, in_groups),
            "linear-quadratic, objective (8)": state_distances(controls(uneven=False)),
            "linear-quadratic, KL": state_distances(controls(uneven=False), entropy=1.0),
        },
        "linear critic": linear_critic(),
        "estimation": {f"gamma {discount}": estimation(discount) for discount in (0.9, 0.99)},
    }
    report(results)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
