"""A picture of shrinkage: twelve sites' own means, and what SharedCentre makes of them, as sites differ more and more.

Two components in two dimensions, 80 rows a site; the sites' components are normal around common centres with standard
deviation 0, 0.4 and 1.5. The thirteenth site is another population.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone

from benchmarks.lib import figures
from benchmarks.lib.study import RESULTS, Record, Study, rounded, table
from consilience import Federation, GaussianMixture, SharedCentre
from consilience.errors import ConsilienceWarning

SPREADS = {"sites alike": 0.0, "sites similar": 0.4, "sites apart": 1.5}
CENTRES = np.array([[0.0, 0.0], [7.0, 3.0]])
SITES, ROWS = 12, 80


def data(spread: float, seed: int) -> tuple[dict[str, tuple[np.ndarray]], np.ndarray]:
    """Rows of each site, and the means they were drawn around ``(SITES, 2, 2)``."""
    rng = np.random.default_rng(seed)
    truth = CENTRES + spread * rng.normal(size=(SITES, 2, 2))
    sites = {}
    for m in range(SITES):
        labels = rng.random(ROWS) < 0.4
        sites[f"site {m + 1}"] = (truth[m][labels.astype(int)] + rng.normal(scale=1.4, size=(ROWS, 2)),)
    labels = rng.random(ROWS) < 0.4
    sites["another population"] = (
        CENTRES[labels.astype(int)] + np.array([6.0, -7.0]) + rng.normal(scale=1.4, size=(ROWS, 2)),
    )
    return sites, truth


def replication(key: str) -> Record:
    """``kind/seed``."""
    kind, seed = key.split("/")
    sites, truth = data(SPREADS[kind], int(seed))
    model = GaussianMixture(2, covariance_type="spherical", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        result = Federation(sites).fit(model, method=SharedCentre())
        own = {name: clone(model).fit(*rows) for name, rows in sites.items()}
    shared = np.array([in_order(result.models[name].means_) for name in sites])
    alone = np.array([in_order(model.means_) for model in own.values()])
    centre = in_order(result.model.means_)
    shrinkage = [float(site.shrinkage.mean()) for site in result.sites]
    return {
        "own": alone.tolist(),
        "shared": shared.tolist(),
        "centre": centre.tolist(),
        "borrowed": shrinkage,
        "status": [site.status for site in result.sites],
        "errors": [rms(each, truth) for each in (alone[:SITES], np.repeat(centre[None], SITES, 0), shared[:SITES])],
    }


def in_order(means: np.ndarray) -> np.ndarray:
    return means[np.argsort(means[:, 0])]


def rms(means: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((means - truth) ** 2)))


def picture(records: list[Record]) -> None:
    """The first component: own estimates as rings, shared ones as dots, an arrow from each to each."""
    canvas, axes = figures.canvas(1, len(records), (4.6 * len(records), 4.4))
    for axis, record in zip(axes.flat, records, strict=True):
        own, shared, centre = (np.array(record[name]) for name in ("own", "shared", "centre"))
        for m, status in enumerate(record["status"]):
            colour = "#1f6fb2" if status == "shared" else "#b5485d"
            a, b = own[m, 0], shared[m, 0]
            axis.annotate("", b, a, arrowprops={"arrowstyle": "->", "color": colour, "lw": 0.9, "alpha": 0.8})
            axis.plot(*a, "o", markerfacecolor="white", color=colour, markersize=6)
            axis.plot(*b, "o", color=colour, markersize=4.5)
        axis.plot(*centre[0], "k+", markersize=13, markeredgewidth=2)
        kind = record["key"].split("/", maxsplit=1)[0]
        axis.set_title(f"{kind}: {np.mean(record['borrowed'][:SITES]):.0%} borrowed".replace("%", " %"), fontsize=11)
        axis.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal")
        axis.text(3.1, -3.1, "the other population\nis far off ↘", color="#b5485d", fontsize=8, ha="right", va="bottom")
        figures.tidy(axis)
    shown = (("o", "white", "a site's own mean"), ("o", "#1f6fb2", "with what it borrowed"), ("+", "k", "the centre"))
    for marker, face, label in shown:
        edge = "k" if marker == "+" else "#1f6fb2"
        axes.flat[0].plot([], [], marker, color=edge, markerfacecolor=face, label=label)
    axes.flat[0].legend(frameon=False, fontsize=8, loc="upper left")
    figures.save(canvas, RESULTS / "shrinkage.png")


def main() -> None:
    study = Study(__file__, __doc__)
    seeds = range(1 if study.quick else 20)
    records = study.replicate([f"{kind}/{seed}" for seed in seeds for kind in SPREADS], replication)
    rows = []
    for kind, spread in SPREADS.items():
        mine = [r for r in records if r["key"].startswith(f"{kind}/")]
        errors = np.mean([r["errors"] for r in mine], axis=0)
        rows.append(
            {
                "sites": kind.removeprefix("sites "),
                "standard deviation between them": spread,
                "borrowed, mean": rounded(float(np.mean([r["borrowed"][:SITES] for r in mine]))),
                "error of own estimates": rounded(errors[0]),
                "of the centre for all": rounded(errors[1]),
                "of shared ones": rounded(errors[2]),
                "sites not kept as a whole": rounded(
                    float(np.mean([[s != "shared" for s in r["status"][:SITES]] for r in mine]))
                ),
                "the other population is seen": f"{sum(r['status'][-1] == 'on its own' for r in mine)} of {len(mine)}",
            }
        )
    study.save(table("Root mean square errors of the means, 20 draws", rows))
    if figures.available() and not study.quick:
        picture([next(r for r in records if r["key"] == f"{kind}/5") for kind in SPREADS])


if __name__ == "__main__":
    main()
