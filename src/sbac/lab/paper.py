"""What the paper says: its Table 1, what is to be known of it, and the ablations that it makes."""

from sbac.environments.tasks import find_task
from sbac.results.series import Series

Score = tuple[float, float | None]
"""Mean and standard deviation over seeds; the paper gives no deviation for scores it took from elsewhere."""
ABLATIONS = ("sbac", "sbac-no-w", "sbac-q-pi", "one-step")
NOTES = (
    "The paper's numbers for other methods were published for the v0 datasets of D4RL; which version SBAC itself was "
    "trained on, it does not say. Three of its printed means do not follow from its rows: SBAC's over the MuJoCo tasks "
    "is 76.5 (printed 76.4), F-BRC's 68.1 (printed 68.0), and BRAC-p's over the Adroit tasks 2.0 (printed 1.0). Its "
    "MuJoCo means of BCQ, BRAC+ and AlgaeDICE are over 12 tasks, the others over 15."
)
# "-" where the paper has no number. Its baselines are D4RL v0 figures.
TEXT = """
task                       bcq    bear   brac-p brac-v brac-plus  sbac      algae-dice  cql    fisher-brc
halfcheetah-random         2.2    25.1   24.1   31.2   26.4±1.0   28.7±1.2  -0.3        35.4   33.3±1.3
walker2d-random            4.9    7.3    -0.2   1.9    16.7±2.3   1.3±1.7   0.5         7.0    1.5±0.7
hopper-random              10.6   11.4   11.0   12.2   12.5±0.3   16.7±1.3  0.9         10.8   11.3±0.2
halfcheetah-medium         40.7   41.7   43.8   46.3   46.6±0.6   51.4±0.3  -2.2        44.4   41.3±0.3
walker2d-medium            53.1   59.1   77.5   81.1   75.1±3.5   81.1±1.1  0.3         79.2   78.8±1.0
hopper-medium              54.5   52.1   32.7   31.1   53.2±3.1   99.6±1.7  1.2         58.0   99.4±0.3
halfcheetah-medium-replay  38.2   38.6   45.4   47.7   46.1±0.2   48.2±0.2  -2.1        46.2   43.2±1.5
walker2d-medium-replay     15.0   19.2   -0.3   0.9    39.0±4.6   78.3±1.2  0.6         26.7   41.8±7.9
hopper-medium-replay       33.1   33.7   0.6    0.6    72.7±18.9  98.9±0.8  1.1         48.6   35.6±1.0
halfcheetah-expert         -      108.2  3.8    -1.1   -          98.7±0.1  -           104.8  108.4±0.5
walker2d-expert            -      106.1  -0.2   0.0    -          113.7±0.2 -           153.9  103.0±5.3
hopper-expert              -      110.3  6.6    3.7    -          112.2±0.1 -           109.9  112.3±0.1
halfcheetah-medium-expert  64.7   53.4   44.2   41.9   61.2±2.8   93.1±0.8  -0.8        62.4   93.3±10.2
walker2d-medium-expert     57.5   40.1   76.9   81.6   95.3±5.9   112.4±1.5 0.4         98.7   105.2±3.9
hopper-medium-expert       110.9  96.3   1.9    0.8    112.9±0.1  112.8±2.3 1.1         111.0  112.4±0.3
pen-human                  68.9   -1.0   8.1    0.6    64.9±1.6   78.8±2.0  -3.3        55.8   -
hammer-human               0.5    0.3    0.3    0.2    3.9±0.9    7.7±1.1   0.3         2.1    -
door-human                 0.0    -0.3   -0.3   -0.3   11.5±1.2   10.1±3.5  -0.0        9.1    -
relocate-human             -0.1   -0.3   -0.3   -0.3   0.2±0.11   0.6±0.3   -0.1        0.4    -
"""


def _parsed(text: str) -> dict[str, dict[str, Score]]:
    head, *lines = (line.split() for line in text.strip().splitlines())
    table: dict[str, dict[str, Score]] = {}
    for task, *cells in lines:
        parts = {name: cell.split("±") for name, cell in zip(head[1:], cells, strict=True) if cell != "-"}
        table[task] = {name: (float(p[0]), float(p[1]) if len(p) > 1 else None) for name, p in parts.items()}
    return table


TABLE_1 = _parsed(TEXT)
"""By task, without its version, and method."""


def paper_score(series: Series) -> Score | None:
    """What the paper printed for the method on the task, if anything."""
    task = series.record.data.task
    if task is None or task != series.task:
        return None
    return TABLE_1.get(find_task(task).base, {}).get(series.record.algorithm)
