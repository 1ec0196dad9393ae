"""Makes goldens.json beside this file: the results of ruptures and SciPy for the inputs that tests/goldens.rs gives our code.

Needed only to regenerate the goldens:

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install ruptures==1.1.10 scipy==1.17.1 numpy==2.4.6
    /tmp/goldens/bin/python crates/stats/tests/goldens/make.py

The series have the shapes that Traini et al. (EMSE 2022) found among processes of benchmarks, generated from a seed and stored
rounded, so that both sides see the same numbers. ruptures adds 1e-6 to every segment's variance and SciPy's bootstrap draws its own
resamples; goldens.rs explains how it allows for both.
"""

import importlib.metadata
import json
import math
import pathlib
import sys

import numpy
import ruptures
import scipy
from scipy import stats

random = numpy.random.default_rng(20260101)


def noise(n, width):
    return random.normal(0, width, n)


def shapes():
    """Iteration times in microseconds."""
    yield "flat", 10_000 + noise(400, 80)
    yield "warmup", numpy.concatenate([16_000 + noise(25, 400), 12_000 + noise(60, 150), 10_000 + noise(315, 80)])
    yield "slowdown", numpy.concatenate([10_000 + noise(150, 80), 11_500 + noise(250, 90)])
    yield "cyclic", numpy.concatenate([10_000 + 2_000 * (i % 2) + noise(40, 80) for i in range(10)])
    yield "none", numpy.concatenate([10_000 * (1 + 0.12 * i) + noise(30, 60) for i in range(14)])
    yield "spread", numpy.concatenate([10_000 + noise(200, 30), 10_000 + noise(200, 300)])
    spikes = 10_000 + noise(400, 80)
    spikes[[37, 111, 205, 290, 371]] *= 1.9
    yield "outliers", spikes
    yield "short", numpy.concatenate([14_000 + noise(12, 90), 10_000 + noise(38, 60)])


def changepoints(values):
    n = len(values)
    scaled = (values - values.mean()) / values.std()
    shortest = 5 if n < 200 else 2
    found = ruptures.Pelt(model="normal", min_size=shortest, jump=1).fit(scaled).predict(pen=15 * math.log(n))
    return [int(p) for p in found[:-1]]


def at_penalties(values):
    """The changepoints at other penalties, in units of ln n, with segments of 5 values or more, as CROPS takes them."""
    scaled = (values - values.mean()) / values.std()
    pelt = ruptures.Pelt(model="normal", min_size=5, jump=1).fit(scaled)
    for factor in [4, 6, 10, 40, 200, 1000]:
        found = pelt.predict(pen=factor * math.log(len(values)))
        yield {"factor": factor, "changepoints": [int(p) for p in found[:-1]]}


def series():
    for name, values in shapes():
        values = numpy.round(values, 1)
        yield {"name": name, "times": values.tolist(), "changepoints": changepoints(values),
               "at": list(at_penalties(values))}


def groups():
    """Pairs of groups for the rank tests: small and large, separate and overlapping, with and without ties."""
    draw = lambda n, centre: numpy.round(random.normal(centre, 1, n), 3)
    yield draw(5, 10), draw(5, 12)
    yield draw(8, 10), draw(8, 10)
    yield draw(3, 10), draw(12, 11)
    yield draw(10, 10), draw(10, 10.8)
    yield draw(30, 10), draw(25, 10.5)
    yield numpy.round(draw(10, 10)), numpy.round(draw(10, 11))
    yield numpy.round(draw(6, 10)), numpy.round(draw(7, 10))
    yield draw(8, 10), draw(40, 10.5)


def ranks():
    for a, b in groups():
        test = stats.mannwhitneyu(a, b, alternative="two-sided", method="auto")
        yield {"a": a.tolist(), "b": b.tolist(), "u": float(test.statistic), "p": float(test.pvalue)}


def student():
    for df in [1, 2, 3.7, 9, 18, 29, 120, 1000]:
        for p in [1e-6, 0.001, 0.025, 0.3, 0.5, 0.9, 0.975, 0.9995]:
            t = float(stats.t.ppf(p, df))
            yield {"df": df, "p": p, "t": t, "cdf": float(stats.t.cdf(t, df))}


def t_interval():
    values = numpy.round(random.normal(103, 1.5, 5), 3)
    interval = stats.ttest_1samp(values, 100).confidence_interval(0.95)
    return {"values": values.tolist(), "low": float(interval.low), "high": float(interval.high)}


goldens = {
    "made_by": f"ruptures {importlib.metadata.version('ruptures')}, SciPy {scipy.__version__}, "
               f"NumPy {numpy.__version__}, Python {sys.version.split()[0]}",
    "series": list(series()),
    "ranks": list(ranks()),
    "student": list(student()),
    "t_interval": t_interval(),
}
path = pathlib.Path(__file__).with_name("goldens.json")
# One line per golden.
lines = [f'  "made_by": {json.dumps(goldens["made_by"])}']
for key in ["series", "ranks", "student"]:
    rows = ",\n".join("    " + json.dumps(row) for row in goldens[key])
    lines.append(f'  "{key}": [\n{rows}\n  ]')
lines.append(f'  "t_interval": {json.dumps(goldens["t_interval"])}')
path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
