"""Clients of three regressions: few rounds of EM on their labels beside moment descent, IFCA, FedAvg and one shot.

The simulations of L. Su, J. Xu and P. Yang (arXiv:2206.07279, section C): K = 3 regressions in d = 100 dimensions,
θ ~ N(0, I / d), noise of standard deviation 0.2. C.1: 200 clients of 50 rows. C.2: 900 clients of 10 rows and 20 of 50.
C.3: the same with shares 0.2, 0.3 and 0.5. The error is the largest over clusters, in the best order of labels; the
oracle is least squares with the true labels. 20 seeds each. The paper's text says N = 1,000; these are 10,000 rows.

FedMomentDescent is the paper's method (five steps of the anchors, s = 5 local steps). Its rounds are those of the
record: one for sizes, six for each step of the anchors (five of orthogonal iteration, one for the step), then one for
each round of FedX. All methods with local steps have the same rate, the library's default. IFCA is FedX from a random
start, FedAvg is FedX with one cluster, and oracle IFCA is FedX from the truth. These are vectorised; so is FedX
itself, and the last table compares it with the library's dialogue.

Aims: ClusteredClients ends at most 5 % above the oracle in at least 19 of 20 seeds, in at most 5 rounds; the first
phase of FedMomentDescent ends below Δ / 2 in at least 16 of 20 seeds of C.1 and 12 of C.2.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.lib import figures
from benchmarks.lib.clients import (
    LocalRounds,
    distance,
    fitted,
    least_squares,
    moment_descent,
    one_shot,
    random_start,
    separation,
    sites_of,
)
from benchmarks.lib.study import RESULTS, Record, Study, rounded, table
from consilience.datasets import ClientSimulation, clients
from consilience.fit import Expect
from consilience.messages import PerSite, Several
from consilience.methods import ClusteredClients
from consilience.published import FedMomentDescent
from consilience.published.client_steps import Anchors, LocalSteps
from consilience.published.moment_descent import PASSES, PROX_RATE, anchor_clusters, longest_step

UNBALANCED = np.repeat([10, 50], [900, 20])
SETTINGS = {"C.1": (np.full(200, 50), None), "C.2": (UNBALANCED, None), "C.3": (UNBALANCED, (0.2, 0.3, 0.5))}
SEEDS, ROUNDS, IFCA_ROUNDS = 20, 250, 400
CLOSE, MOST_ROUNDS = 1.05, 5
AIMS = {"C.1": 16, "C.2": 12}
STEPS = {
    "s = 1": {"steps": 1},
    "s = 5": {"steps": 5},
    "s = 10": {"steps": 10},
    "FedProx": {"steps": 1, "prox": True, "rate": PROX_RATE},
}
PRINTED = {
    "one pair of rows of each client, no sign": {"all_pairs": False, "signed": False},
    "one pair of rows of each client, the sign of the mean": {"all_pairs": False, "signed": True},
    "all pairs, no sign": {"all_pairs": True, "signed": False},
    "all pairs, the sign of the mean": {"all_pairs": True, "signed": True},
}
QUICK_ROUNDS = 30
STEP_ROUNDS = PASSES + 1
PHASE_ONE = 1 + 5 * STEP_ROUNDS
BLUE, RED, GREEN = "#1f6fb2", "#b5485d", "#009e73"
VARIANT_COLOURS = {"s = 1": "#7fb2d9", "s = 5": BLUE, "s = 10": "#123f66", "FedProx": "#7f4f9f"}
COLOURS = {"IFCA": "#e07b39", "FedAvg": "#999999", "oracle IFCA": "#7f4f9f"}


def of_key(key: str) -> tuple[ClientSimulation, int]:
    """The data of ``setting/seed``, and the seed."""
    setting, seed = key.split("/")
    sizes, shares = SETTINGS[setting]
    return clients(sizes, shares=shares, random_state=int(seed)), int(seed)


def compared(key: str, rounds: int, ifca_rounds: int) -> Record:
    """The errors of all methods but ClusteredClients."""
    data, seed = of_key(key)
    rng = np.random.default_rng([seed, 1])
    found = {
        "oracle": distance(least_squares(data, data.labels), data.theta),
        "separation": separation(data.theta),
        "FedMomentDescent": descended(data, seed, rounds),
        "one shot": distance(one_shot(data, rng), data.theta),
    }
    rate = longest_step({"all": np.bincount(data.groups).astype(float)}, data.X.shape[1])
    local = {name: LocalRounds(data, **({"rate": rate} | how)) for name, how in STEPS.items()}
    start = np.array(found["FedMomentDescent"].pop("start"))
    found["variants"] = {name: digits(how.trace(start, rounds)) for name, how in local.items()}
    five = local["s = 5"]
    found["IFCA"] = digits(five.trace(random_start(data, rng, 3), ifca_rounds))
    found["oracle IFCA"] = digits(five.trace(data.theta, ifca_rounds))
    found["FedAvg"] = digits(five.trace(random_start(data, rng, 1), ifca_rounds))
    return found


def clustered(key: str) -> Record:
    """Errors of ClusteredClients after each of its rounds, and why it stopped."""
    data, seed = of_key(key)
    done, seen = fitted(data, ClusteredClients(), seed, sites_of(data))
    (fit,) = done.value
    errors: list[float | None] = []
    for request in seen:
        question = request.question.questions[0] if isinstance(request.question, Several) else request.question
        asked = isinstance(question, Expect) and question.mixture.K > 1
        errors.append(distance(question.mixture.raw().coefficients, data.theta) if asked else None)
    record = {
        "errors": [*errors, distance(fit.mixture.coefficients, data.theta)],
        "rounds": len(seen),
        "stop": fit.ascent.stop.name,
        "bytes": done.record.bytes_received / len(done.record.sites),
    }
    return {"ClusteredClients": record}


def descended(data: ClientSimulation, seed: int, rounds: int) -> Record:
    """Errors of FedMomentDescent after each of its rounds, and what its anchors found."""
    sites = sites_of(data)
    done, seen = fitted(data, FedMomentDescent(rounds=rounds), seed, sites)
    (fit,) = done.value
    before = np.cumsum([0, *(len(site.data.groups.bounds) - 1 for site in sites)])
    labels = {site.name: data.labels[before[m] : before[m + 1]] for m, site in enumerate(sites)}
    own = [labels[site][list(places)] for site, places in fit.anchors.items()]
    errors, anchors, coarse = [], [], []
    for request in seen:
        question = request.question
        error = None
        if isinstance(question, Anchors) and isinstance(request, PerSite):
            theta = np.vstack([asked.theta for asked in request.questions.values()]) @ question.design.to_raw().T
            of_anchor = np.concatenate(own)
            anchors.append(float(np.median(np.linalg.norm(theta - data.theta[of_anchor], axis=1))))
            coarse.append(error := coarse_error(theta, data))
        elif isinstance(question, LocalSteps):
            error = distance(question.mixture.raw().coefficients, data.theta)
        errors.append(error)
    return {
        "errors": [
            None if e is None else round(e, 6) for e in (*errors, distance(fit.mixture.coefficients, data.theta))
        ],
        "anchors": anchors,
        "coarse": [*coarse, distance(fit.coarse.coefficients, data.theta)],
        "covers": len(np.unique(np.concatenate(own))) == len(data.theta),
        "start": fit.coarse.coefficients.tolist(),
        "bytes": done.record.bytes_received / len(sites),
    }


def left_out(key: str) -> Record:
    """Moment descent as it is printed, and with what the text leaves out."""
    data, seed = of_key(key)
    found = {}
    for name, how in PRINTED.items():
        theta, anchors = moment_descent(data, seed, **how)
        own = float(np.median(np.linalg.norm(theta - data.theta[data.labels[anchors]], axis=1)))
        found[name] = {"anchors": own, "coarse": coarse_error(theta, data)}
    return {"printed": found}


def coarse_error(theta: np.ndarray, data: ClientSimulation) -> float:
    """Error of the means of clusters of anchors."""
    labels = anchor_clusters(theta, len(data.theta))
    if len(np.unique(labels)) < len(data.theta):  # at the start all are at one place
        return distance(theta[:1], data.theta)
    return distance(np.array([theta[labels == k].mean(axis=0) for k in range(len(data.theta))]), data.theta)


def digits(errors: list[float]) -> list[float]:
    return [round(error, 6) for error in errors]


# ---------------------------------------------------------------- tables


def aims(groups: dict[str, list[Record]]) -> list[Record]:
    rows = []
    for setting, records in groups.items():
        ratios = np.array([r["ClusteredClients"]["errors"][-1] / r["oracle"] for r in records])
        rounds = np.array([r["ClusteredClients"]["rounds"] for r in records])
        close = np.array([rounds_until(r["ClusteredClients"]["errors"], r["oracle"]) for r in records])
        good = (ratios <= CLOSE) & (close <= MOST_ROUNDS)
        rows.append(
            {
                "setting": setting,
                "seeds": len(records),
                "at most 1.05 × oracle, in at most 5 rounds": f"{good.sum()} of {len(records)}",
                "aim": f"{int(np.ceil(0.95 * len(records)))} of {len(records)}",
                "largest error / oracle's": rounded(ratios.max(), 4),
                "rounds until within 5 %, median": rounded(float(np.median(close))),
                "most": int(close.max()) if np.isfinite(close).all() else None,
                "rounds until it stopped, median": rounded(float(np.median(rounds))),
                "most of these": int(rounds.max()),
                "kB from a site": rounded(np.median([r["ClusteredClients"]["bytes"] for r in records]) / 1e3),
            }
        )
    return rows


def rounds_until(errors: list[float | None], oracle: float) -> float:
    """The first round after which the error is within 5 % of the oracle's, and stays so."""
    far = [i for i, error in enumerate(errors) if error is None or error > CLOSE * oracle]
    last = far[-1] + 1 if far else 0
    return last if last < len(errors) else np.inf


def first_phase(groups: dict[str, list[Record]]) -> list[Record]:
    rows = []
    for setting, records in groups.items():
        own = [r["FedMomentDescent"] for r in records]
        good = np.array([r["coarse"][-1] < 0.5 * all_of["separation"] for r, all_of in zip(own, records, strict=True)])
        covers = np.array([r["covers"] for r in own])
        errors = np.median([r["anchors"] for r in own], axis=0)
        rows.append(
            {
                "setting": setting,
                "Δ": rounded(np.median([r["separation"] for r in records])),
                "anchors' error before each step": " ".join(f"{e:.2f}" for e in errors),
                "coarse estimate": rounded(np.median([r["coarse"][-1] for r in own])),
                "below Δ / 2": f"{good.sum()} of {len(good)}",
                "aim": f"{AIMS[setting]} of {SEEDS}" if setting in AIMS else None,
                "anchors are of all clusters": f"{covers.sum()} of {len(covers)}",
                "below Δ / 2 where they are": f"{np.sum(good & covers)} of {covers.sum()}",
                "below Δ / 2 where not": f"{np.sum(good & ~covers)} of {np.sum(~covers)}",
            }
        )
    return rows


def as_printed(groups: dict[str, list[Record]]) -> list[Record]:
    rows = []
    for name in PRINTED:
        row: Record = {"first phase": name}
        for setting, records in groups.items():
            own = [r["printed"][name] for r in records]
            good = [r["coarse"] < 0.5 * of["separation"] for r, of in zip(own, records, strict=True)]
            row[f"{setting}: anchors' error"] = rounded(np.median([r["anchors"] for r in own]))
            row[f"{setting}: below Δ / 2"] = f"{sum(good)} of {len(good)}"
        rows.append(row)
    return rows


def at_the_end(groups: dict[str, list[Record]]) -> list[Record]:
    """Median error and seeds within 5 % of the oracle, for each method."""
    methods = {
        "oracle least squares": lambda r: r["oracle"],
        "ClusteredClients": lambda r: r["ClusteredClients"]["errors"][-1],
        "FedMomentDescent": lambda r: r["FedMomentDescent"]["errors"][-1],
        "oracle IFCA": lambda r: r["oracle IFCA"][-1],
        "IFCA": lambda r: r["IFCA"][-1],
        "one shot": lambda r: r["one shot"],
        "FedAvg": lambda r: r["FedAvg"][-1],
    }
    rows = []
    for name, error in methods.items():
        row: Record = {"method": name}
        for setting, records in groups.items():
            values, bar = np.array([error(r) for r in records]), np.array([r["oracle"] for r in records])
            row[setting] = f"{np.median(values):.3g} (largest {values.max():.3g})"
            row[f"{setting}: within 5 %"] = f"{np.sum(values <= CLOSE * bar)} of {len(records)}"
        rows.append(row)
    return rows


def by_round(groups: dict[str, list[Record]]) -> list[Record]:
    """Median errors after so many rounds of FedX, from the estimates of the first phase."""
    rows = []
    for setting, records in groups.items():
        for name in STEPS:
            errors = np.median([r["variants"][name] for r in records], axis=0)
            shown = {f"{t} rounds": rounded(errors[t]) for t in (0, 10, 25, 50, 100, 150, 250) if t < len(errors)}
            rows.append({"setting": setting, "local steps": name, **shown})
        errors = np.median([r["IFCA"] for r in records], axis=0)
        shown = {f"{t} rounds": rounded(errors[t]) for t in (0, 10, 25, 50, 100, 150, 250) if t < len(errors)}
        rows.append({"setting": setting, "local steps": "IFCA, s = 5", **shown})
    return rows


def agreement(groups: dict[str, list[Record]]) -> list[Record]:
    """FedX of the library beside the vectorised one, on every seed."""
    rows = []
    for setting, records in groups.items():
        gaps = []
        for record in records:
            own = [e for e in record["FedMomentDescent"]["errors"][PHASE_ONE:] if e is not None]
            gaps.append(np.abs(np.array(own) - np.array(record["variants"]["s = 5"])[: len(own)]).max())
        rows.append(
            {
                "setting": setting,
                "seeds": len(records),
                "largest difference of errors over rounds and seeds, to six decimals": rounded(max(gaps)),
                "kB from a site, FedMomentDescent": rounded(
                    np.median([r["FedMomentDescent"]["bytes"] for r in records]) / 1e3
                ),
            }
        )
    return rows


# ---------------------------------------------------------------- figures


def figure(groups: dict[str, list[Record]]) -> None:
    """Like figures 1 to 3 of the paper, with medians over seeds; rounds are those of the record."""
    canvas, axes = figures.canvas(len(groups), 2, (11.5, 3.4 * len(groups)))
    for (left, right), (setting, records) in zip(axes, groups.items(), strict=True):
        coarse = np.median([r["FedMomentDescent"]["coarse"] for r in records], axis=0)
        for axis in (left, right):
            axis.plot(1 + STEP_ROUNDS * np.arange(len(coarse)), coarse, "o-", color=BLUE, markersize=3, linewidth=1.2)
        for (name, colour), dash in zip(VARIANT_COLOURS.items(), ("-", "-", "-", "--"), strict=True):
            left.plot(*later(middle(records, "variants", name)), dash, color=colour, linewidth=1.3, label=name)
        right.plot(*later(middle(records, "variants", "s = 5")), color=BLUE, linewidth=1.6, label="FedMomentDescent")
        for name, colour in COLOURS.items():
            right.plot(middle(records, name)[: ROUNDS + PHASE_ONE], color=colour, linewidth=1.3, label=name)
        right.plot(*ours(records), "o-", color=RED, markersize=3, linewidth=1.8, label="ClusteredClients")
        right.axhline(middle(records, "one shot"), color=GREEN, linestyle="-.", linewidth=1.2, label="one shot")
        for axis, what in ((left, "local steps"), (right, "methods")):
            bar = middle(records, "oracle")
            axis.axhline(bar, color="black", linestyle=":", label="oracle least squares")
            axis.set(yscale="log", xlabel="round", ylabel="error of θ, median", title=f"{setting}: {what}")
            axis.set_ylim(bottom=0.6 * bar)
            figures.tidy(axis)
            axis.legend(frameon=False, fontsize=8, ncol=2)
    figures.save(canvas, RESULTS / "clustered.png")


def middle(records: list[Record], *path: str) -> np.ndarray:
    """Medians over replications of what lies at a path."""
    found = records
    for name in path:
        found = [r[name] for r in found]
    return np.median(found, axis=0)


def later(trace: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A trace of the second phase, after the rounds of the first."""
    return PHASE_ONE + np.arange(len(trace)), trace


def ours(records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Rounds and median errors of ClusteredClients, from its first mixture to the end."""
    traces = [[e for e in r["ClusteredClients"]["errors"] if e is not None] for r in records]
    first = min(r["ClusteredClients"]["rounds"] + 1 - len(t) for r, t in zip(records, traces, strict=True))
    length = max(map(len, traces))
    filled = [t + t[-1:] * (length - len(t)) for t in traces]
    return first + np.arange(length), np.median(filled, axis=0)


def main() -> None:
    study = Study(__file__, __doc__)
    seeds = 1 if study.quick else SEEDS
    keys = [f"{setting}/{seed}" for seed in range(seeds) for setting in SETTINGS]
    short = (QUICK_ROUNDS, QUICK_ROUNDS) if study.quick else (ROUNDS, IFCA_ROUNDS)
    records = in_parts(study, keys, lambda key: compared(key, *short))
    groups = {setting: [r for r in records if r["key"].startswith(setting)] for setting in SETTINGS}
    study.save(
        table("ClusteredClients beside the oracle", aims(groups)),
        table("FedMomentDescent: the first phase (medians)", first_phase(groups)),
        table("The first phase as it is printed, and with what the text leaves out (medians)", as_printed(groups)),
        table("Error at the end, median over seeds", at_the_end(groups)),
        table("Error by rounds of the second phase, median over seeds", by_round(groups)),
        table("FedX of the library and vectorised", agreement(groups)),
    )
    if figures.available() and not study.quick:
        figure(groups)


def in_parts(study: Study, keys: list[str], others: Callable[[str], Record]) -> list[Record]:
    """The replications of all parts, which are kept apart."""
    label, parts = study.label, {"others": others, "ours": clustered, "printed": left_out}
    found = []
    for part, run in parts.items():
        study.label = f"{label}-{part}"
        found.append(study.replicate(keys, run))
    study.label = label
    records = [a | b | c | {"seconds": sum(r["seconds"] for r in (a, b, c))} for a, b, c in zip(*found, strict=True)]
    study.earlier, study.started = sum(r["seconds"] for r in records), time.perf_counter()
    return records


if __name__ == "__main__":
    main()
