"""Makes the twenty breaks of breaks.md, one at a time, and runs the tests that should turn red.

python lab-notes/house/breaks.py [NUMBER ...]     (in a checkout without uncommitted changes; it puts each file back)
"""

import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "sbac"
BREAKS: dict[int, tuple[str, str, str, str]] = {  # file, code, broken code, tests
    1: (
        "algorithms/sbac.py",
        "config.penalty * config.alpha * log_mu",
        "-config.penalty * config.alpha * log_mu",
        "tests/algorithms/test_sbac.py",
    ),
    2: (
        "algorithms/evaluation.py",
        "discount * (1.0 - batch.terminals) * next_value",
        "discount * next_value",
        "tests/algorithms/test_sbac.py",
    ),
    3: (
        "algorithms/sbac.py",
        "before.clone.model if config.scale_free else fresh",
        "fresh",
        "tests/truth/test_estimate.py",
    ),
    4: ("algorithms/iql.py", "jnp.where(u > 0,", "jnp.where(u < 0,", "tests/algorithms/test_iql.py"),
    5: (
        "algorithms/td3_bc.py",
        "config.alpha / jnp.abs(jax.lax.stop_gradient(q)).mean()",
        "config.alpha",
        "tests/algorithms/test_td3_bc.py",
    ),
    6: (
        "training/table.py",
        "index + goes_on[:, 0].astype(jnp.uint32)",
        "index + 1",
        "tests/training/test_table.py tests/training/test_stream.py tests/training/test_engine.py",
    ),
    7: (
        "training/checkpoint.py",
        "leaves.append(jnp.asarray(have, want.dtype))",
        'leaves.append(jnp.asarray(0 * have if "moments" in name else have, want.dtype))',
        "tests/training/test_resume.py",
    ),
    8: (
        "policy/formulas.py",
        "clipped(arrays, a * (0.5 * (high - low)) + 0.5 * (high + low))",
        "clipped(arrays, a)",
        "tests/training/test_engine.py tests/policy",
    ),
    9: (
        "policy/formulas.py",
        "self.mode(arrays, standardised(arrays, observations))",
        "self.mode(arrays, observations)",
        "tests/exporting",
    ),
    10: (
        "files.py",
        'temporary = path.parent / f".{secrets.token_hex(8)}.tmp"',
        "temporary = path",
        "tests/test_files.py",
    ),
    11: ("records.py", "if kind is Any or kind is object:", "if True:", "tests/test_records.py"),
    12: (
        "data/ends.py",
        '{"timeouts": limits}',
        '{"terminals": limits | ended}',
        "tests/data/test_dataset.py tests/data",
    ),
    13: (
        "data/dataset.py",
        "inside = (actions >= low).all()",
        "inside = True or (actions >= low).all()",
        "tests/data/test_bounds.py tests/data",
    ),
    14: (
        "environments/tasks.py",
        "return 100.0 * (value - self.reference_min) /",
        "return 100.0 * value /",
        "tests/environments/test_tasks.py",
    ),
    15: (
        "trust/fitting.py",
        "discount * batch.going_on[:, None] * ahead",
        "batch.going_on[:, None] * ahead",
        "tests/trust/test_estimates.py",
    ),
    16: (
        "trust/walking.py",
        "walk.survived * (1.0 - ends)",
        "walk.survived",
        "tests/trust/test_model.py",
    ),
    17: (
        "trust/deciding.py",
        "if not candidate.set_aside]",
        "if True]",
        "tests/trust/test_choosing.py",
    ),
    18: (
        "ratio/classifier.py",
        "+ restarted @ jax.nn.softplus(-h_start)",
        "",
        "tests/truth/test_ratio_exact.py",
    ),
    19: ("lab/bench/runner.py", "if record is None:", "if True:", "tests/lab/bench/test_bench.py"),
    20: ("report/page.py", "autoescape=True", "autoescape=False", "tests/lab/report tests/report"),
}


def turns_red(file: str, code: str, broken: str, tests: str) -> bool:
    path = SRC / file
    before = path.read_text()
    if before.count(code) != 1:
        sys.exit(f"{file}: {code!r} stands there {before.count(code)} times; expected once")
    try:
        path.write_text(before.replace(code, broken))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
        return subprocess.run(command, cwd=SRC.parents[1], capture_output=True).returncode == 1
    finally:
        path.write_text(before)


if __name__ == "__main__":
    for number in map(int, sys.argv[1:] or BREAKS):
        print(f"{number:2}  {'red' if turns_red(*BREAKS[number]) else 'NOT CAUGHT'}  {BREAKS[number][0]}", flush=True)
