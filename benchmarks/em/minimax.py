"""Two regressions that are each other's negative: the minimax method (WMLR) beside EM, as in arXiv:2106.07537.

``y = ± x'b + ε`` in d = 128 dimensions, ``ε ~ N(0, 1)``, ``‖b‖ = SNR``. Table 1 of the paper: n = 10,000 (20 seeds) and
100,000 (10 seeds), SNR 1 and 10, after 100 rounds. Table 2: 10,000 agents with 10 rows and one sign each, SNR 1, 5, 10
and 20 (10 seeds), rounds until the error stays within 5 % of where it ends. The error is ``min_± ‖β ∓ b‖ / ‖b‖``.

Rows named after the paper run what its authors' code does, with the published step sizes; beside them are the printed
figures. Ours are exact EM, gradient EM with the natural step, the minimax method with expectations by quadrature, and
EM that knows which rows are one agent's. All are vectorised; the last table shows that the library's methods give the
same. The time is CPU time of one core.

Aims: the paper's rows within 25 % of the printed errors, or inside the printed quartiles; exact EM at most 0.0039 at
SNR 10 with 100,000 rows; EM by agents at most 1.03 times the error with known labels after 4 rounds, from random and
from spectral starts, at every SNR.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.lib.study import Record, Study, rounded, stopwatch, table
from benchmarks.lib.symmetric import (
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
from consilience.methods import Task
from consilience.model import Groups, Rows
from consilience.published import GradientEM, MinimaxRegression
from consilience.runs import run
from consilience.site import Site

T, MOST = 100, 20_000
PAPER_EM, PAPER_GEM = "EM, paper's code", "gradient EM, paper's code"
EXACT, SPECTRAL, NATURAL = "EM, random start", "EM, spectral start", "gradient EM, natural step"
FIXED, REFRESHED = "WMLR, quadrature, fixed reference", "WMLR, quadrature, refreshed"
BY_AGENT, BY_AGENT_SPECTRAL, KNOWN = "EM by agents, random start", "EM by agents, spectral start", "known labels"
ONE_DRAW = "WMLR, paper's code, λ = {}"
LONGER = ", 200 rounds"
TOO_FEW = "from some random starts 100 rounds are too few"
FEDERATED_EM = "federated EM, paper's code"
LAMBDA = {1: 0.38, 10: 0.53}
"""Of the centralised experiments, from a grid on which 0.38 and 0.53 are neighbours."""
LAMBDA_AGENTS = {1: 0.35, 5: 0.41, 10: 0.41, 20: 0.41}
ALPHA, ALPHAS = 2.78, tuple(np.logspace(-4, 1, 10))
"""Of gradient EM: published for SNR 1; at SNR 10 the one with the smallest likelihood loss of the paper's grid."""
ALPHA_AGENTS = {1: 2.98, 5: 0.89, 10: 0.48, 20: 0.14}
PRINTED = {  # n, SNR: for each method the error, its quartiles over 50 runs, the loss
    (10_000, 1): {
        "EM": (0.295, (0.274, 0.305), 1.671),
        "GEM": (0.180, None, 1.657),
        "WMLR": (0.275, (0.237, 0.253), 1.668),
    },
    (10_000, 10): {
        "EM": (0.121, (0.121, 0.131), 2.715),
        "GEM": (0.998, None, 3.758),
        "WMLR": (0.0208, (0.0183, 0.0199), 2.065),
    },
    (100_000, 1): {
        "EM": (0.0862, (0.0860, 0.0925), 1.657),
        "GEM": (0.0520, None, 1.656),
        "WMLR": (0.0778, (0.0702, 0.0758), 1.656),
    },
    (100_000, 10): {
        "EM": (0.0379, (0.0368, 0.0402), 2.115),
        "GEM": (1.03, None, 3.765),
        "WMLR": (0.00531, (0.00497, 0.00564), 2.059),
    },
}
PRINTED_AGENTS = {  # SNR: for each method rounds and error
    1: {"EM": (544, 0.0560), "GEM": (15, 0.0560), "WMLR": (66, 0.0725)},
    5: {"GEM": (295, 0.00832), "WMLR": (81, 0.00995)},
    10: {"GEM": (2_007, 0.00392), "WMLR": (98, 0.00493)},
    20: {"GEM": (12_948, 0.00193), "WMLR": (74, 0.00249)},
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
    done = run(method.dialogue(Task([specification], D, 1)), engine)
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


def spread(records: list[Record], method: str, what: str) -> np.ndarray:
    """Median and quartiles."""
    return np.percentile([r["methods"][method][what] for r in records], [50, 25, 75])


def shown(records: list[Record], method: str, what: str = "error") -> str | None:
    """Median and quartiles of errors; the median of losses; median, least and most of rounds."""
    if not records or method not in records[0]["methods"]:
        return None
    median, low, high = spread(records, method, what)
    if what == "loss":
        return f"{median:.3f}"
    if what == "rounds":
        values = [r["methods"][method]["rounds"] for r in records]
        low, high = min(values), max(values)
        return f"{median:,g} ({low:,} to {high:,})"
    return f"{rounded(median)} ({rounded(low)} to {rounded(high)})"


def first_table(groups: dict[tuple[int, int], list[Record]], what: str) -> list[Record]:
    """After 100 rounds: ours, what the authors' code does, what is printed."""
    drawn = [ONE_DRAW.format(penalty) + suffix for penalty in (0.38, 0.53) for suffix in ("", LONGER)]
    rows = []
    for method in (KNOWN, SPECTRAL, EXACT, NATURAL, REFRESHED, FIXED, PAPER_EM, PAPER_GEM, *drawn):
        cells = {f"n = {n:,}, SNR {snr}": shown(records, method, what) for (n, snr), records in groups.items()}
        rows.append({"method": method, **cells})
    for label, kind in (("EM, printed", "EM"), ("gradient EM, printed", "GEM"), ("WMLR, printed", "WMLR")):
        cells = {f"n = {n:,}, SNR {snr}": printed(PRINTED[n, snr][kind], what) for n, snr in groups}
        rows.append({"method": label, **cells})
    return rows


def printed(figures: tuple[float, tuple[float, float] | None, float], what: str) -> str:
    error, quartiles, loss = figures
    if what == "loss":
        return f"{loss}"
    return f"{error:g}" if quartiles is None else f"{error:g} ({quartiles[0]:g} to {quartiles[1]:g})"


def second_table(groups: dict[int, list[Record]], long: dict[int, list[Record]], what: str) -> list[Record]:
    """Rounds, or errors, over 10,000 agents."""
    ours = (BY_AGENT_SPECTRAL, BY_AGENT, SPECTRAL, EXACT, NATURAL, REFRESHED, FIXED)
    rows = [
        {"method": method, **{f"SNR {snr}": shown(of, method, what) for snr, of in groups.items()}}
        for method in (ours if what == "rounds" else (KNOWN, *ours))
    ]
    for label, kind in ((FEDERATED_EM, "EM"), (PAPER_GEM, "GEM"), ("WMLR, paper's code", "WMLR")):
        ran = {snr: of_paper(snr, kind, groups, long) for snr in groups}
        rows.append({"method": label, **{f"SNR {snr}": shown(*one, what) for snr, one in ran.items()}})
    for label, kind in (("federated EM, printed", "EM"), ("gradient EM, printed", "GEM"), ("WMLR, printed", "WMLR")):
        cells = {snr: PRINTED_AGENTS[snr].get(kind) for snr in groups}
        place = 0 if what == "rounds" else 1
        rows.append({"method": label, **{f"SNR {snr}": one and f"{one[place]:,g}" for snr, one in cells.items()}})
    return rows


def of_paper(
    snr: int, kind: str, groups: dict[int, list[Record]], long: dict[int, list[Record]]
) -> tuple[list[Record], str]:
    """Records, and the name in them, of a method of the paper over agents."""
    if kind == "WMLR":
        return groups[snr], ONE_DRAW.format(LAMBDA_AGENTS[snr])
    if kind == "EM":
        return groups[snr], FEDERATED_EM
    return (groups[snr], "agents' " + PAPER_GEM) if snr == 1 else (long[snr], PAPER_GEM)


def faithful(
    first: dict[tuple[int, int], list[Record]], groups: dict[int, list[Record]], long: dict[int, list[Record]]
) -> list[Record]:
    """Whether what the authors' code does gives what is printed."""
    rows = []
    for (n, snr), records in first.items():
        drawn = [ONE_DRAW.format(penalty) + suffix for penalty in (LAMBDA[snr], 0.38) for suffix in ("", LONGER)]
        tried = {"EM": [PAPER_EM], "GEM": [PAPER_GEM], "WMLR": list(dict.fromkeys(drawn))}
        for kind, (error, quartiles, _) in PRINTED[n, snr].items():
            for method in tried[kind]:
                median = spread(records, method, "error")[0]
                inside = quartiles is not None and quartiles[0] <= median <= quartiles[1]
                rows.append(verdict(f"table 1, n = {n:,}, SNR {snr}", method, median, error, inside))
    for snr in groups:
        for kind, (_, error) in PRINTED_AGENTS[snr].items():
            records, method = of_paper(snr, kind, groups, long)
            if records:
                median = spread(records, method, "error")[0]
                rows.append(verdict(f"table 2, SNR {snr}", method.removeprefix("agents' "), median, error, False))
    return rows


def verdict(where: str, method: str, median: float, printed: float, inside: bool) -> Record:
    ratio = median / printed
    fine = bool(inside or abs(ratio - 1) <= 0.25)
    return {
        "where": where,
        "method": method,
        "ours, median": rounded(median),
        "printed": printed,
        "ratio": rounded(ratio),
        "inside the printed quartiles": bool(inside),
        "within 25 %, or inside": fine,
        "cause": TOO_FEW if not fine and method.startswith("WMLR") and LONGER not in method else None,
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
                    "error of EM by rows, median": rounded(spread(records, SPECTRAL, "error")[0]),
                }
            )
    return rows


def library_table(records: list[Record]) -> list[Record]:
    rows = []
    cells: dict[tuple[int, int, str], list[Record]] = {}
    for record in records:
        _, n, snr, _ = record["key"].split("/")
        for method, found in record["methods"].items():
            cells.setdefault((int(n), int(snr), method), []).append(found)
    for (n, snr, method), found in cells.items():
        middle = {name: float(np.median([one[name] for one in found])) for name in found[0]}
        rows.append(
            {
                "n": n,
                "SNR": snr,
                "seeds": len(found),
                "method": REFRESHED + ", 30 rounds" if method == "30 rounds" else method,
                "error of the library's": rounded(middle["library"], 5),
                "vectorised": rounded(middle["vectorised"], 5),
                "largest difference, standard errors": rounded(max(one["difference"] for one in found), 2),
                "rounds in all": f"{middle['rounds']:g}",
                "kB from a site": rounded(middle["received"] / 1e3),
                "kB to a site": rounded(middle["sent"] / 1e3),
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
        *(f"gradient/100000/20/{seed}" for seed in range(10)),
    ]


def main() -> None:
    study = Study(__file__, __doc__)
    records = study.replicate(keys(study.quick), replication)

    def of(kind: str, snr: int | None = None) -> list[Record]:
        mine = [r for r in records if r["key"].startswith(f"{kind}/")]
        return [r for r in mine if snr is None or r["key"].split("/")[2] == str(snr)]

    agents, long = ({snr: of(kind, snr) for snr in (1, 5, 10, 20)} for kind in ("agents", "gradient"))
    first = {(10_000, snr): of("rows", snr) for snr in (1, 10)}
    if not study.quick:
        first |= {(100_000, snr): agents[snr] for snr in (1, 10)}
    study.earlier, study.started = sum(r["cpu"] for r in records), time.perf_counter()
    study.save(
        table("Table 1 of the paper, after 100 rounds: error, median (quartiles)", first_table(first, "error")),
        table("Table 1, mean negative log-likelihood, median", first_table(first, "loss")),
        table(
            "Table 2 of the paper, 10,000 agents: rounds, median (least to most)", second_table(agents, long, "rounds")
        ),
        table("Table 2, error at the end, median (quartiles)", second_table(agents, long, "error")),
        table("What the authors' code does, beside what is printed: errors", faithful(first, agents, long)),
        table("EM by agents, in 4 rounds", aims(agents)),
        table("The library's methods over 20 sites, and the vectorised ones", library_table(of("library"))),
    )


if __name__ == "__main__":
    main()
