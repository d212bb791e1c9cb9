"""Sites that differ: SharedCentre beside FedGrEM, FedEM and local fits, in the simulations of arXiv:2310.15330.

M = 10 sites of n = 150 rows, K = 5 components in 10 dimensions at distance h from common centres, one site of noise;
h = 0, 0.25, ..., 2. Gaussian mixtures (50 replications) and mixtures of regressions (20); the pooled fit in 10 of them.
Local-EM is the fit of a site alone, from the library's own starts (and, at h = 0 and 1, from Ward's clusters, which is
nearest to mclust's start); all other methods but the pooled fit start from it. Errors are the largest over honest sites
and components. Rounds and bytes are those of the record, per site, both ways.

Aims: for Gaussian mixtures SharedCentre at most 0.33 / 0.80 / 1.05 / 1.40 at h = 0 / 0.5 / 1 / 2 in at most 20 rounds
(mean); at most 0.6 / 0.9 / 0.85 / 0.95 times FedGrEM's, pair by pair; never more than 5 % above the local fits; for
regressions at h = 0 a median of at most 0.45; at most a tenth of FedGrEM's rounds.
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks.lib import figures
from benchmarks.lib.differing import (
    PAPER_STEP,
    PERMUTATIONS,
    STEPS,
    THETA,
    K,
    KeptFits,
    Simulated,
    baselines,
    local_fits,
    max_errors,
    parameters_of,
    simulated,
)
from benchmarks.lib.study import RESULTS, Record, Study, rounded, table
from consilience.fit import fit_mixture
from consilience.methods import SharedCentre, Task
from consilience.model import Rows
from consilience.published import FedGrEM
from consilience.runs import run

H = tuple(0.25 * i for i in range(9))
PAPER = {  # arXiv:2310.15330, table 5: mean (standard deviation) of the largest error of θ
    0.55: (1.36, 1.47, 1.62, 1.71, 1.89, 2.07, 2.23, 2.44),
    0.75: (1.22, 1.34, 1.44, 1.54, 1.71, 1.93, 2.02, 2.25),
    0.95: (1.13, 1.30, 1.34, 1.45, 1.60, 1.82, 1.90, 2.14),
    1.15: (1.10, 1.25, 1.32, 1.39, 1.52, 1.79, 1.82, 2.04),
    1.35: (1.21, 1.24, 1.31, 1.36, 1.49, 1.81, 1.79, 1.99),
}
BARS = {0.0: (0.33, 0.6), 0.5: (0.80, 0.9), 1.0: (1.05, 0.85), 2.0: (1.40, 0.95)}
SWEEP = f"FedGrEM, one sweep, C_η = {PAPER_STEP}"
MOST = {"gmm": 20, "mor": 50}
"""Rounds of SharedCentre."""
METHODS = ("Local-EM", "Local-GrEM", "FedEM", "Pooled-EM", SWEEP, "FedGrEM", "SharedCentre")


def of_key(key: str) -> tuple[Simulated, dict, int]:
    """The data of ``model/start/h/seed``, the sites' own fits, and the seed."""
    model, start, h, seed = key.split("/")
    data = simulated(model, float(h), int(seed))
    return data, local_fits(f"differing-{key.replace('/', '-')}", data, seed=int(seed), start=start), int(seed)


def shared(key: str) -> Record:
    """The errors of SharedCentre."""
    data, fits, seed = of_key(key)
    return {"errors": {"SharedCentre": federated(data, fits, SharedCentre(rounds=MOST[key[:3]]), seed)}}


def compared(key: str) -> Record:
    """The errors of the other methods."""
    data, fits, seed = of_key(key)
    found = {"Local-EM": record_of(data, [fit.model.mixture for fit in fits.values()], 0, 0)}
    for name, (theta, shares, rounds) in baselines(data, fits).items():
        of_theta, of_shares = max_errors(data, dict(enumerate(theta)), dict(enumerate(shares)))
        found[name] = {"theta": of_theta, "shares": of_shares, "rounds": rounds}
    if seed < 10:  # it takes most of the time, and is far off in all of them
        found["Pooled-EM"] = record_of(data, [pooled_fit(data, seed)] * len(data.rows), 0, 0)
    if seed == 0:  # the library's own dialogue: the same figures as the vectorised one, and its bytes
        found["FedGrEM of the library"] = federated(data, fits, FedGrEM(), seed)
    return {"errors": found}


def record_of(data: Simulated, mixtures: list, rounds: int, size: int) -> Record:
    """The largest errors of one mixture per site."""
    both = [parameters_of(mixture) for mixture in mixtures]
    of_theta, of_shares = max_errors(
        data, {m: a for m, (a, _) in enumerate(both)}, {m: b for m, (_, b) in enumerate(both)}
    )
    return {"theta": of_theta, "shares": of_shares, "rounds": rounds, "bytes": size}


def pooled_fit(data: Simulated, seed: int):
    rows = Rows(np.concatenate([r.X for r in data.rows]), np.concatenate([r.Y for r in data.rows]))
    return fit_mixture(rows, data.specification, rng=np.random.default_rng(seed)).mixture


def federated(data: Simulated, fits, method, seed: int) -> Record:
    """A method of the library over the engine, from the fits at hand; its rounds after them, and bytes per site."""
    dialogue = method.dialogue(Task([data.specification], *data.columns, seed=seed))
    done = run(dialogue, KeptFits(data.rows, fits))
    (fit,) = done.value
    size = sum(e.bytes_sent + e.bytes_received for r in done.record.rounds[1:] for e in r.exchanges) / len(data.rows)
    rounds = len(done.record.rounds) - 1
    record = record_of(data, [fit.fits[str(m)].mixture for m in range(len(data.rows))], rounds, round(size))
    if isinstance(method, SharedCentre):
        record |= {"named": [s.name for s in fit.sites if s.reasons], "trusted": fit.trusted, "covered": covered(fit)}
    return record


def covered(fit) -> list[int]:
    """How many coefficients of the centre have the truth in their 95 % interval, and of how many; none if withheld."""
    lower, upper = (part.experts.reshape(K, -1) for part in fit.inference.interval())
    if np.isnan(lower).any():
        return [0, 0]
    centre = parameters_of(fit.mixture)[0]
    cost = np.linalg.norm(centre[:, None] - THETA, axis=2)
    order = PERMUTATIONS[cost[PERMUTATIONS, np.arange(K)].sum(axis=1).argmin()]
    inside = (lower[order] <= THETA) & (upper[order] >= THETA)
    return [int(inside.sum()), inside.size]


def summary(records: list[Record], method: str, what: str = "theta") -> tuple[float, float, float]:
    values = np.array([r["errors"][method][what] for r in records if method in r["errors"]])
    return float(values.mean()), float(np.median(values)), float(values.std())


def by_method(groups: dict[float, list[Record]], what: str) -> list[Record]:
    rows = []
    for method in METHODS:
        cells = {f"h = {h:g}": _cell(records, method, what) for h, records in groups.items()}
        rows.append({"method": method, **cells})
    return rows


def _cell(records: list[Record], method: str, what: str) -> str:
    mean, median, spread = summary(records, method, what)
    return f"{mean:.3g} ({median:.3g}; {spread:.2g})"


def by_step(groups: dict[float, list[Record]]) -> list[Record]:
    rows = []
    for step in STEPS:
        name = f"FedGrEM, one sweep, C_η = {step}"
        cells = {f"h = {h:g}": rounded(summary(records, name)[0]) for h, records in groups.items() if h < 2}
        rows.append({"C_η": step, "figures": "ours", **cells})
        printed = {f"h = {h:g}": value for h, value in zip(H, PAPER[step], strict=False) if h in groups}
        rows.append({"C_η": step, "figures": "printed", **printed})
    return rows


def aims(groups: dict[float, list[Record]], bars: dict[float, tuple[float, float]]) -> list[Record]:
    rows = []
    for h, records in groups.items():
        ours = np.array([r["errors"]["SharedCentre"]["theta"] for r in records])
        theirs = np.array([r["errors"]["FedGrEM"]["theta"] for r in records])
        local = np.array([r["errors"]["Local-EM"]["theta"] for r in records])
        bar, ratio = bars.get(h, (None, None))
        inside = np.sum([r["errors"]["SharedCentre"]["covered"] for r in records], axis=0)
        rows.append(
            {
                "h": h,
                "replications": len(records),
                "SharedCentre": rounded(ours.mean()),
                "aim": bar,
                "ratio of means to FedGrEM": rounded(ours.mean() / theirs.mean()),
                "mean of paired ratios": rounded(np.mean(ours / theirs)),
                "aim for the ratio": ratio,
                "mean over local mean": rounded(ours.mean() / local.mean()),
                "most rounds": max(r["errors"]["SharedCentre"]["rounds"] for r in records),
                "noise named": f"{sum('9' in r['errors']['SharedCentre']['named'] for r in records)} of {len(records)}",
                "honest named": rounded(np.mean([_honest_named(r) for r in records])),
                "centre's 95 % intervals": rounded(inside[0] / inside[1]) if inside[1] else "withheld",
            }
        )
    return rows


def _honest_named(record: Record) -> float:
    return sum(name != "9" for name in record["errors"]["SharedCentre"]["named"]) / 9


def talk(groups: dict[float, list[Record]]) -> list[Record]:
    rows = []
    for h, records in groups.items():
        rounds = {m: float(np.median([r["errors"][m]["rounds"] for r in records])) for m in ("FedGrEM", "SharedCentre")}
        (theirs,) = [r["errors"]["FedGrEM of the library"] for r in records if "FedGrEM of the library" in r["errors"]]
        (vectorised,) = [r["errors"]["FedGrEM"] for r in records if "FedGrEM of the library" in r["errors"]]
        rows.append(
            {
                "h": h,
                **{f"rounds of {m}": value for m, value in rounds.items()},
                "ratio of rounds": rounded(rounds["SharedCentre"] / rounds["FedGrEM"]),
                "kB per site of FedGrEM (one replication)": rounded(theirs["bytes"] / 1e3),
                "kB per site of SharedCentre": rounded(
                    float(np.median([r["errors"]["SharedCentre"]["bytes"] for r in records])) / 1e3
                ),
                "FedGrEM of the library": rounded(theirs["theta"], 6),
                "the same, vectorised": rounded(vectorised["theta"], 6),
            }
        )
    return rows


def figure(groups: dict[str, dict[float, list[Record]]]) -> None:
    """Like figure 3 of the paper: the mean largest error over h, on a log scale."""
    canvas, axes = figures.canvas(1, len(groups), (6.0 * len(groups), 4.2))
    colours = ("#999999", "#bbbbbb", "#d4a017", "#7f4f9f", "#e07b39", "#b5485d", "#1f6fb2")
    for axis, (title, found) in zip(axes.flat, groups.items(), strict=True):
        for method, colour in zip(METHODS, colours, strict=True):
            means = [summary(records, method)[0] for records in found.values()]
            wide = 2.4 if method == "SharedCentre" else 1.3
            axis.plot(list(found), means, "o-", color=colour, linewidth=wide, markersize=3.5, label=method)
        axis.set_yscale("log", base=2)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("h, how far sites' components are from the common centres", fontsize=9)
        axis.set_ylabel("largest error of θ (mean)", fontsize=9)
        figures.tidy(axis)
    axes.flat[0].legend(frameon=False, fontsize=8)
    figures.save(canvas, RESULTS / "shared_centre.png")


def main() -> None:
    study = Study(__file__, __doc__)
    part = os.environ.get("PART")  # two processes may share a full study: PART=gmm, PART=mor
    hs = (0.0, 1.0) if study.quick else H
    wanted = {
        "gmm": [f"gmm/own/{h:g}/{seed}" for seed in range(1 if study.quick else 50) for h in hs],
        "ward": [f"gmm/ward/{h:g}/{seed}" for seed in range(1 if study.quick else 20) for h in (0.0, 1.0)],
        "mor": [f"mor/own/{h:g}/{seed}" for seed in range(1 if study.quick else 20) for h in hs],
    }
    if part:
        of_part(study, part, wanted[part])
        return
    records = {r["key"]: r for name in wanted for r in of_part(study, name, wanted[name])}

    def grouped(name: str) -> dict[float, list[Record]]:
        groups: dict[float, list[Record]] = {}
        for key in wanted[name]:
            groups.setdefault(float(key.split("/")[2]), []).append(records[key])
        return dict(sorted(groups.items()))

    study.earlier = sum(r["seconds"] for r in records.values())
    gmm, mor, by_ward = grouped("gmm"), grouped("mor"), grouped("ward")
    study.save(
        table("Gaussian mixtures: largest error of θ, mean (median; standard deviation)", by_method(gmm, "theta")),
        table("Gaussian mixtures: aims", aims(gmm, BARS)),
        table(
            "Gaussian mixtures: largest error of the shares, mean (median; standard deviation)",
            by_method(gmm, "shares"),
        ),
        table("FedGrEM as in its authors' code, mean largest error of θ, beside the printed table 5", by_step(gmm)),
        table("Gaussian mixtures from Ward's clusters: largest error of θ", by_method(by_ward, "theta")),
        table("Gaussian mixtures: rounds and bytes (medians)", talk(gmm)),
        table(
            "Mixtures of regressions: largest error of θ, mean (median; standard deviation)", by_method(mor, "theta")
        ),
        table("Mixtures of regressions (aim: a median of 0.45 at h = 0)", aims(mor, {})),
        table("Mixtures of regressions: rounds and bytes (medians)", talk(mor)),
    )
    if figures.available() and not study.quick:
        figure({"Gaussian mixtures": gmm, "mixtures of regressions": mor})


def of_part(study: Study, part: str, keys: list[str]) -> list[Record]:
    label = study.label
    study.label = f"{label}-{part}-others"
    others = study.replicate(keys, compared)
    study.label = f"{label}-{part}"
    ours = study.replicate(keys, shared)
    study.label = label
    return [
        a | {"errors": a["errors"] | b["errors"], "seconds": a["seconds"] + b["seconds"]}
        for a, b in zip(others, ours, strict=True)
    ]


if __name__ == "__main__":
    main()
