"""Two regressions that are each other's negative: the minimax method (WMLR) beside EM, in the experiments of seed 000.

``y = ± x'b + ε`` in d = 128 dimensions, ``ε ~ N(0, 1)``, ``‖b‖ = SNR``. Table 1 of the paper: n = 10,000 (20 seeds) and
100,000 (10 seeds), SNR 1 and 10, after 100 rounds. Table 2: 10,000 agents with 10 rows and one sign each, SNR 1, 5, 10
and 20 (10 seeds), rounds until the error stays within 5 % of where it ends. The error is ``min_± ‖β ∓ b‖ / ‖b‖``.

Rows named after the paper run what its authors' code does, with the published step sizes; beside them are the printed
figures. Ours are exact EM, gradient EM with the natural step, the minimax method with expectations by quadrature, and
EM that knows which rows are one agent's. All are vectorised; the last table shows that the library's methods give the
same. Gradient EM as in the paper needs up to 14,000 rounds: at SNR 20 it has 3 seeds. The time is CPU time.

Aims: the paper's rows within 25 % of the printed errors, or inside the printed quartiles; exact EM at most 0.0039 at
SNR 10 with 100,000 rows; EM by agents at most 1.03 times the error with known labels after 4 rounds, from random and
from spectral starts, at every SNR.
"""

from __future__ import annotations

import time

import numpy as np
from _study import Record, Study, rounded, stopwatch, table
from _symmetric import (
    AGENT_ROWS,
    D,
    Data,
    em,
    minimax,
    natural_gradient_em,
    paper_em,
    paper_federated_em,
    paper_gradient_em,
    paper_wmlr,
    rounds_needed,
)

from consilience.engines import InProcess
from consilience.fit import Specification
from consilience.model import Groups, Rows
from consilience.protocols import GradientEM, MinimaxRegression, run
from consilience.site import Site

T, MOST = 100, 20_000
PAPER_EM, PAPER_GEM = "EM, paper's code", "gradient EM, paper's code"
EXACT, SPECTRAL, NATURAL = "EM, random start", "EM, spectral start", "gradient EM, natural step"
FIXED, REFRESHED = "WMLR, quadrature, fixed reference", "WMLR, quadrature, refreshed"
BY_AGENT, BY_AGENT_SPECTRAL, KNOWN = "EM by agents, random start", "EM by agents, spectral start", "known labels"
ONE_DRAW = "WMLR, paper's code, λ = {}"
LONGER = ", 200 rounds"
OTHER_LAMBDA = {1: (), 10: (ONE_DRAW.format(0.38), ONE_DRAW.format(0.38) + LONGER)}
FEDERATED_EM = "federated EM, paper's code"
LAMBDA = {1: 0.38, 10: 0.53}
"""Of the centralised experiments, from a grid on which 0.38 and 0.53 are neighbours."""
LAMBDA_AGENTS = {1: 0.35, 5: 0.41, 10: 0.41, 20: 0.41}
ALPHA, ALPHAS = 2.78, tuple(np.logspace(-4, 1, 10))
"""Of gradient EM: published for SNR 1; at SNR 10 the one with the smallest likelihood loss of the paper's grid."""
ALPHA_AGENTS = {1: 2.98, 5: 0.89, 10: 0.48, 20: 0.14}
PRINTED = {  # n, SNR, method: error, quartiles of it over 50 runs, mean negative log-likelihood
    (100_000, 10, PAPER_EM): (3.79e-2, (3.68e-2, 4.02e-2), 2.115),
    (100_000, 10, PAPER_GEM): (1.03, None, 3.765),
    (100_000, 10, ONE_DRAW.format(0.53)): (5.31e-3, (4.97e-3, 5.64e-3), 2.059),
    (100_000, 1, PAPER_EM): (8.62e-2, (8.60e-2, 9.25e-2), 1.657),
    (100_000, 1, PAPER_GEM): (5.20e-2, None, 1.656),
    (100_000, 1, ONE_DRAW.format(0.38)): (7.78e-2, (7.02e-2, 7.58e-2), 1.656),
    (10_000, 10, PAPER_EM): (1.21e-1, (1.21e-1, 1.31e-1), 2.715),
    (10_000, 10, PAPER_GEM): (9.98e-1, None, 3.758),
    (10_000, 10, ONE_DRAW.format(0.53)): (2.08e-2, (1.83e-2, 1.99e-2), 2.065),
    (10_000, 1, PAPER_EM): (2.95e-1, (2.74e-1, 3.05e-1), 1.671),
    (10_000, 1, PAPER_GEM): (1.80e-1, None, 1.657),
    (10_000, 1, ONE_DRAW.format(0.38)): (2.75e-1, (2.37e-1, 2.53e-1), 1.668),
}
PRINTED_AGENTS = {  # SNR, method: rounds, error
    (20, PAPER_GEM): (12_948, 1.93e-3),
    (20, ONE_DRAW.format(0.41)): (74, 2.49e-3),
    (10, PAPER_GEM): (2_007, 3.92e-3),
    (10, ONE_DRAW.format(0.41)): (98, 4.93e-3),
    (5, PAPER_GEM): (295, 8.32e-3),
    (5, ONE_DRAW.format(0.41)): (81, 9.95e-3),
    (1, FEDERATED_EM): (544, 5.60e-2),
    (1, PAPER_GEM): (15, 5.60e-2),
    (1, ONE_DRAW.format(0.35)): (66, 7.25e-2),
}


# ---------------------------------------------------------------- replications


def replication(key: str) -> Record:
    """``kind/n/SNR/seed``; with CPU seconds, since a study may share its core."""
    kind, n, snr, seed = key.split("/", maxsplit=1)[0], *map(int, key.split("/")[1:])
    with stopwatch() as watch:
        data = Data.simulated(n, snr, seed)
        methods = {"rows": by_rows, "agents": by_agents, "gradient": long_gradient, "library": of_library}[kind](data)
    return {"methods": methods, "cpu": watch.cpu}


def figures(data: Data, path: np.ndarray, sigma2: float) -> Record:
    """Error and likelihood at the end, rounds needed."""
    errors = data.errors(path)
    return {"error": float(errors[-1]), "loss": data.nll(path[-1], sigma2), "rounds": rounds_needed(errors)}


def by_rows(data: Data) -> Record:
    """Table 1, n = 10,000."""
    start = data.random()
    return ours(data, start) | papers(data, start)


def ours(data: Data, start: np.ndarray) -> Record:
    b, sigma2 = data.spectral
    return {
        EXACT: figures(data, *em(data, start, 1.0, T)),
        SPECTRAL: figures(data, *em(data, b, sigma2, T)),
        NATURAL: figures(data, *natural_gradient_em(data, start, 1.0, T)),
        FIXED: figures(data, *minimax(data, b, sigma2, T, refresh=None)),
        REFRESHED: figures(data, *minimax(data, b, sigma2, T, refresh=10)),
        KNOWN: figures(data, data.oracle[None], float(np.mean((data.z * data.y - data.X @ data.oracle) ** 2))),
    }


def papers(data: Data, start: np.ndarray) -> Record:
    """What the authors' code does, for 100 rounds; WMLR also for 200, as there."""
    steps = ALPHAS if data.snr == 10 else (ALPHA,)
    ends = [figures(data, *paper_gradient_em(data, start, step, T)) for step in steps]
    found = {PAPER_EM: figures(data, *paper_em(data, start, T)), PAPER_GEM: min(ends, key=lambda end: end["loss"])}
    vectors = (start, data.random(), data.random())
    for penalty in sorted({0.38, LAMBDA[data.snr]}):
        path, _ = paper_wmlr(data, vectors, penalty, 2 * T)
        for suffix, part in (("", path[: T + 1]), (LONGER, path)):
            found[ONE_DRAW.format(penalty) + suffix] = figures(data, part, noise_of(data, part[-1]))
    return found


def noise_of(data: Data, beta: np.ndarray) -> float:
    """``mean y² - ‖β‖²``: the paper's estimate, which may be negative."""
    return float(np.mean(data.y**2) - beta @ beta)


def by_agents(data: Data) -> Record:
    """Table 2, and for SNR 1 and 10 table 1 with n = 100,000: methods by rows do not see which rows are an agent's."""
    start, (b, sigma2) = data.random(), data.spectral
    found = ours(data, start)
    known = found[KNOWN]["error"]
    for name, path in (
        (BY_AGENT, em(data, start, 1.0, T, by_agent=True)),
        (BY_AGENT_SPECTRAL, em(data, b, sigma2, T, by_agent=True)),
    ):
        errors = data.errors(path[0])
        of_known = {"after 4 rounds": float(errors[4] / known), "to 1.03": int(np.argmax(errors <= 1.03 * known))}
        found[name] = figures(data, *path) | of_known
    vectors, penalty = (start, data.random(), data.random()), LAMBDA_AGENTS[data.snr]
    path, _ = paper_wmlr(data, vectors, penalty, 3 * T)
    found[ONE_DRAW.format(penalty)] = figures(data, path, noise_of(data, path[-1]))
    if data.snr == 1:
        found[FEDERATED_EM] = figures(data, *paper_federated_em(data, start, 0.08, 1000))
        found["agents' " + PAPER_GEM] = figures(data, *paper_gradient_em(data, start, ALPHA_AGENTS[1], T))
    return (papers(data, start) if data.snr in LAMBDA else {}) | found


def long_gradient(data: Data) -> Record:
    """Gradient EM as in the paper, until it is within 2 % of where it will end: the maximum of the likelihood."""
    start = data.random()
    limit = float(data.errors(em(data, start, 1.0, T)[0][-1]))
    path, sigma2 = paper_gradient_em(data, start, ALPHA_AGENTS[data.snr], MOST, until=1.02 * limit)
    needed = rounds_needed(np.r_[data.errors(path), limit])
    return {PAPER_GEM: figures(data, path, sigma2) | {"error": limit, "rounds": needed}}


# ---------------------------------------------------------------- the library's own


def of_library(data: Data) -> Record:
    """The library's methods over sites beside the vectorised ones."""
    b, sigma2 = data.spectral
    rows, agents = sites(data, grouped=False), sites(data, grouped=True)
    return {
        "30 rounds": compared(
            data, MinimaxRegression(symmetric=True, rounds=30), rows, minimax(data, b, sigma2, 30, refresh=10)
        ),
        REFRESHED: compared(data, MinimaxRegression(symmetric=True), rows, minimax(data, b, sigma2, T, refresh=10)),
        FIXED: compared(
            data, MinimaxRegression(symmetric=True, refresh=None), rows, minimax(data, b, sigma2, T, refresh=None)
        ),
        SPECTRAL: compared(data, GradientEM(symmetric=True), rows, em(data, b, sigma2, T)),
        BY_AGENT_SPECTRAL: compared(data, GradientEM(symmetric=True), agents, em(data, b, sigma2, T, by_agent=True)),
    }


def sites(data: Data, *, grouped: bool) -> InProcess:
    """The rows over 20 sites, with their agents as groups or without."""
    parts = np.array_split(np.arange(data.n // AGENT_ROWS), 20)
    found = []
    for i, part in enumerate(parts):
        rows = slice(part[0] * AGENT_ROWS, (part[-1] + 1) * AGENT_ROWS)
        groups = Groups.of(np.repeat(part, AGENT_ROWS)) if grouped else None
        found.append(Site(str(i), Rows(data.X[rows], data.y[rows, None], groups=groups)))
    return InProcess().over(found)


def compared(data: Data, method, engine: InProcess, vectorised: tuple[np.ndarray, float]) -> Record:
    """Errors of both, the largest difference of a coefficient in standard errors, rounds and bytes."""
    specification = Specification(K=2, gate="constant", structure="tied", intercept=False)
    done = run(method.dialogue([specification], D, 1), engine)
    b, path = done.value[0].mixture.experts.B[0, 0], vectorised[0]
    sign = np.sign(b @ path[-1])
    exchanges = [e for r in done.record.rounds for e in r.exchanges]
    return {
        "library": float(data.errors(b)),
        "vectorised": float(data.errors(path[-1])),
        "difference": float(np.abs(sign * b - path[-1]).max() * np.sqrt(data.n)),
        "rounds": len(done.record.rounds),
        "received": sum(e.bytes_received for e in exchanges) / 20,
        "sent": sum(e.bytes_sent for e in exchanges) / 20,
    }


# ---------------------------------------------------------------- tables


def spread(records: list[Record], method: str, what: str) -> tuple[float, float, float]:
    """Median and quartiles."""
    return tuple(np.percentile([r["methods"][method][what] for r in records], [50, 25, 75]))


def shown(values: tuple[float, float, float]) -> str:
    return f"{rounded(values[0])} ({rounded(values[1])} to {rounded(values[2])})"


def first_table(groups: dict[tuple[int, int], list[Record]]) -> list[Record]:
    """After 100 rounds, ours and the paper's, beside what is printed."""
    rows = []
    for (n, snr), records in groups.items():
        for method in records[0]["methods"]:
            if not is_of_table_1(method, snr):
                continue
            error, quartiles, nll = PRINTED.get((n, snr, method), (None, None, None))
            rows.append(
                {
                    "n": n,
                    "SNR": snr,
                    "method": method,
                    "error, median (quartiles)": shown(spread(records, method, "error")),
                    "printed": error,
                    "printed quartiles": None if quartiles is None else f"{quartiles[0]:g} to {quartiles[1]:g}",
                    "loss": rounded(spread(records, method, "loss")[0], 4),
                    "printed loss": nll,
                }
            )
    return rows


def is_of_table_1(method: str, snr: int) -> bool:
    drawn = method.startswith("WMLR, paper") and not any(f"λ = {x}" in method for x in (0.38, LAMBDA[snr]))
    return not drawn and "agents" not in method and method != FEDERATED_EM


def second_table(groups: dict[int, list[Record]], long: dict[int, list[Record]]) -> list[Record]:
    """Rounds and errors over 10,000 agents."""
    rows = []
    for snr, records in groups.items():
        for label, method, of in methods_of_table_2(snr, records, long):
            printed = PRINTED_AGENTS.get((snr, label), (None, None))
            counts = np.array([r["methods"][method]["rounds"] for r in of])
            rows.append(
                {
                    "SNR": snr,
                    "method": label,
                    "seeds": len(of),
                    "rounds, median (least to most)": f"{np.median(counts):g} ({counts.min()} to {counts.max()})",
                    "printed rounds": printed[0],
                    "error, median (quartiles)": shown(spread(of, method, "error")),
                    "printed error": printed[1],
                }
            )
    return rows


def methods_of_table_2(snr: int, records: list[Record], long: dict[int, list[Record]]):
    """Labels, names in the records, and the records."""
    if snr == 1:
        yield FEDERATED_EM, FEDERATED_EM, records
        yield PAPER_GEM, "agents' " + PAPER_GEM, records
    elif long[snr]:
        yield PAPER_GEM, PAPER_GEM, long[snr]
    drawn = ONE_DRAW.format(LAMBDA_AGENTS[snr])
    for method in (drawn, FIXED, REFRESHED, NATURAL, EXACT, SPECTRAL, BY_AGENT, BY_AGENT_SPECTRAL, KNOWN):
        yield method, method, records


def faithful(first: dict[tuple[int, int], list[Record]], second: list[Record]) -> list[Record]:
    """Whether what the authors' code does gives what is printed."""
    rows = []
    for (n, snr, method), (error, quartiles, _) in PRINTED.items():
        tried = [method, *([method + LONGER, *OTHER_LAMBDA[snr]] if method.startswith("WMLR") else [])]
        for name in tried if (n, snr) in first else ():
            median = spread(first[n, snr], name, "error")[0]
            inside = quartiles is not None and quartiles[0] <= median <= quartiles[1]
            rows.append(verdict(f"table 1, n = {n:,}, SNR {snr}", name, median, error, inside))
    for row in second:
        if row["printed error"] is not None:
            median = float(row["error, median (quartiles)"].split()[0])
            rows.append(verdict(f"table 2, SNR {row['SNR']}", row["method"], median, row["printed error"], False))
    return rows


def verdict(where: str, method: str, median: float, printed: float, inside: bool) -> Record:
    ratio = median / printed
    return {
        "where": where,
        "method": method,
        "ours, median": rounded(median),
        "printed": printed,
        "ratio": rounded(ratio),
        "inside the printed quartiles": bool(inside),
        "within 25 %, or inside": bool(inside or abs(ratio - 1) <= 0.25),
    }


def aims(groups: dict[int, list[Record]]) -> list[Record]:
    rows = []
    for snr, records in groups.items():
        for start, method in (("random", BY_AGENT), ("spectral", BY_AGENT_SPECTRAL)):
            after = np.array([r["methods"][method]["after 4 rounds"] for r in records])
            needed = np.array([r["methods"][method]["to 1.03"] for r in records])
            rows.append(
                {
                    "SNR": snr,
                    "EM by agents from a start that is": start,
                    "error over that with known labels after 4 rounds, median": rounded(float(np.median(after)), 4),
                    "largest": rounded(after.max(), 4),
                    "at most 1.03": f"{int(np.sum(after <= 1.03))} of {len(after)}",
                    "rounds to 1.03, median (most)": f"{np.median(needed):g} ({needed.max()})",
                    "EM by rows, largest error": rounded(max(r["methods"][SPECTRAL]["error"] for r in records)),
                }
            )
    return rows


def library_table(records: list[Record]) -> list[Record]:
    rows = []
    for record in records:
        _, n, snr, seed = record["key"].split("/")
        for method, found in record["methods"].items():
            rows.append(
                {
                    "n": int(n),
                    "SNR": int(snr),
                    "seed": int(seed),
                    "method": REFRESHED + ", 30 rounds" if method == "30 rounds" else method,
                    "error of the library's": rounded(found["library"], 5),
                    "vectorised": rounded(found["vectorised"], 5),
                    "largest difference, standard errors": rounded(found["difference"], 2),
                    "rounds in all": found["rounds"],
                    "kB from a site": rounded(found["received"] / 1e3),
                    "kB to a site": rounded(found["sent"] / 1e3),
                }
            )
    return rows


def keys(quick: bool) -> list[str]:
    if quick:
        return [
            *(f"rows/10000/{snr}/0" for snr in (1, 10)),
            *(f"agents/10000/{snr}/0" for snr in (1, 5, 10, 20)),
            "gradient/10000/5/0",
            "library/10000/10/0",
        ]
    return [
        *(f"rows/10000/{snr}/{seed}" for seed in range(20) for snr in (1, 10)),
        *(f"agents/100000/{snr}/{seed}" for seed in range(10) for snr in (1, 5, 10, 20)),
        *(f"library/10000/{snr}/{seed}" for seed in range(3) for snr in (1, 10)),
        *(f"gradient/100000/{snr}/{seed}" for seed in range(10) for snr in (5, 10)),
        "library/100000/10/0",
        *(f"gradient/100000/20/{seed}" for seed in range(3)),
    ]


def main() -> None:
    study = Study(__file__, __doc__)
    records = study.replicate(keys(study.quick), replication)

    def of(kind: str, snr: int) -> list[Record]:
        return [r for r in records if r["key"].startswith(f"{kind}/") and r["key"].split("/")[2] == str(snr)]

    agents, long = ({snr: of(kind, snr) for snr in (1, 5, 10, 20)} for kind in ("agents", "gradient"))
    first = {(10_000, snr): of("rows", snr) for snr in (1, 10)}
    if not study.quick:
        first |= {(100_000, snr): agents[snr] for snr in (1, 10)}
    second = second_table(agents, long)
    study.earlier, study.started = sum(r["cpu"] for r in records), time.perf_counter()
    study.save(
        table("Table 1 of the paper: after 100 rounds", first_table(first)),
        table("Table 2 of the paper: 10,000 agents with 10 rows each", second),
        table("What the authors' code does, beside what is printed", faithful(first, second)),
        table("EM by agents, in 4 rounds", aims(agents)),
        table(
            "The library's methods over 20 sites, and the vectorised ones",
            library_table(of("library", 1) + of("library", 10)),
        ),
    )


if __name__ == "__main__":
    main()
