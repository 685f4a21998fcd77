"""A choice in a few lines of text."""

from collections.abc import Sequence

import numpy as np

from sbac.text import counted, number, text_table, within
from sbac.trust.choosing import Choice
from sbac.trust.estimates import Diagnostics
from sbac.trust.trials import Tried


def choice_text(choice: Choice) -> str:
    """The table, the policy that is taken, and what speaks against it and against others."""
    digits = decimals(choice.log)
    head = ["policy", "whole episode", "value", "gain over the log", ""]
    rows = [
        [
            row["label"],
            episode_text(None if candidate.estimate is None else candidate.estimate.diagnostics),
            "" if row["value"] is None else within(row["value"], row["low"], row["high"], digits),
            "" if row["gain"] is None else within(row["gain"], row["gain_low"], row["gain_high"], digits),
            "taken" if row["label"] == choice.label else "set aside" if row["set_aside"] else "",
        ]
        for candidate, row in zip(choice.candidates, choice.table, strict=True)
    ]
    lines = [
        f"the log's mean discounted return: {choice.log:.{digits}f} (discount {choice.discount:g}); "
        "values are discounted too, in brackets 90 % intervals",
        "a whole episode: what it earns in the learned model, undiscounted, +- the deviation of the model's members",
        text_table(head, rows),
        f"{choice.label}: {choice.reason}",
    ]
    for row in choice.table:
        lines += [f"warning: {row['label']}: {text}" for text in row["warnings"]]
    return "\n".join(lines)


def episode_text(found: Diagnostics | None) -> str:
    """What a whole episode of the policy earns in the learned model, and how far its members differ."""
    if found is None or found.episode is None:
        return ""
    digits = decimals(found.episode)
    return f"{found.episode:.{digits}f} +- {found.episode_spread:.{digits}f}"


def trials_text(tried: Tried, ranked: Sequence[str]) -> str:
    """What the real episodes say."""
    rows = [
        [label, str(len(tried.returns[label])), number(float(np.mean(tried.returns[label])))]
        for label in ranked
        if tried.returns[label]
    ]
    table = text_table(["policy", "episodes", "mean return"], rows, numbers=True)
    return f"{table}\nafter {counted(tried.episodes, 'episode')}: {tried.label}"


def decimals(size: float) -> int:
    """So many that a value of this size shows about four digits."""
    return int(np.clip(3 - np.floor(np.log10(max(abs(size), 1e-3))), 0, 5))
