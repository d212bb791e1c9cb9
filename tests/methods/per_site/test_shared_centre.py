"""The shared centre: sites that are alike share all, sites that differ keep their own; names and units matter not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from answering import Calls, failing
from combining import parted, softly_categorical
from consilience import SharedCentre
from consilience.aggregate.robust.estimate import Estimate
from consilience.aggregate.robust.sharing import Sharing
from consilience.engines import DaskCluster, InProcess
from consilience.errors import InvalidInputError, RoundStoppedError
from consilience.fit import Expect, Fit, Specification, fit_mixture
from consilience.fit.climb import StopReason
from consilience.messages import Answers, FitSite, Likelihood, LogLikelihood, Several, decode, encode
from consilience.methods import Task
from consilience.methods.per_site import shared_centre as module
from consilience.methods.per_site import shared_fit as module_text
from consilience.methods.per_site.local_fits import LocalFits
from consilience.methods.per_site.rivals import RegressionRivals, SharedRivals
from consilience.methods.per_site.shared_fit import OF_A_SITE, SharedFit, SiteShare
from consilience.model import ConstantGate, Design, GaussianExperts, Mixture, Rows, expect
from consilience.model.mixture import alignment
from consilience.model.summary import column_summary
from consilience.runs import Journal, Run, run
from consilience.site import Site, answer
from families import SIZED
from sharded import write_sites
from simulated import FAMILIES, Simulated, simulated

MEANS = np.array([[0.0, 0.0, 0.0, 0.0], [6.0, 0.0, 2.0, 0.0], [2.0, 7.0, 0.0, -3.0]])
SHARES = np.array([0.5, 0.3, 0.2])
SLOW = pytest.mark.slow
LONG = pytest.mark.long
GATES = ("constant", "softmax")
IN_TURN = [
    pytest.param(family, gate, id=f"{family}-{gate}", marks=() if (i + j) % 2 else LONG)
    for i, family in enumerate(FAMILIES)
    for j, gate in enumerate(GATES)
]
"""Every family with every gate; every change runs each family with one of them."""


def mixture_of(means: np.ndarray, structure: str = "full") -> Mixture:
    K, q = means.shape
    unit = {"full": np.tile(np.eye(q), (K, 1, 1)), "tied": np.eye(q), "diag": np.ones((K, q)), "spherical": np.ones(K)}
    experts = GaussianExperts(means[:, :, None], unit[structure], structure)
    return Mixture(Design.raw(0), ConstantGate(np.full(K, 1 / K)), experts)


def gaussian_sites(
    M: int, n: int = 100, *, h: float = 0.0, seed: int = 0, means: np.ndarray = MEANS
) -> tuple[dict[str, Rows], np.ndarray]:
    """Sites of three clusters, whose means differ by ``h`` in each coordinate; and these means ``(M, K, q)``."""
    rng = np.random.default_rng(seed)
    own = means + h * rng.normal(size=(M, *means.shape))
    parts = {}
    for m in range(M):
        labels = rng.choice(len(means), n, p=SHARES[: len(means)] / SHARES[: len(means)].sum())
        parts[f"site {m}"] = Rows(np.empty((n, 0)), own[m][labels] + rng.normal(size=(n, means.shape[1])))
    return parts, own


def sites_of(parts: Mapping[str, Rows]) -> list[Site]:
    return [Site(name, rows, key=name.encode()) for name, rows in parts.items()]  # several may have the same rows


def study(
    parts: Mapping[str, Rows],
    specification: Specification | None = None,
    start: Mixture | None = None,
    method: SharedCentre | None = None,
    *,
    journal: Journal | None = None,
    **options: Any,
) -> Run[tuple[SharedFit]]:
    """A run of the method from a given start, by default for the three clusters."""
    specification = specification or Specification(K=3, gate="constant")
    start = mixture_of(MEANS) if start is None else start
    d, q = (part.shape[1] for part in (next(iter(parts.values())).X, next(iter(parts.values())).Y))
    dialogue = (method or SharedCentre(rounds=8)).dialogue(Task([specification], d, q, start=start, seed=0))
    return run(dialogue, InProcess().over(sites_of(parts)), journal=journal, **options)


@cache
def plain(M: int, h: float = 0.0) -> Run[tuple[SharedFit]]:
    """The run over the sites of :func:`gaussian_sites`, for all tests that compare with it."""
    return study(gaussian_sites(M, h=h)[0])


def own_fit(rows: Rows, specification: Specification | None = None, start: Mixture | None = None) -> Fit:
    specification = specification or Specification(K=3, gate="constant")
    start = mixture_of(MEANS) if start is None else start
    return fit_mixture(rows, specification, rng=np.random.default_rng(0), start=start)


def flat(mixture: Mixture) -> np.ndarray:
    """All that a mixture is made of."""
    mixture = mixture.raw()
    parts = [mixture.gate.contrasts().ravel(), mixture.experts.free_coefficients()]
    if isinstance(mixture.experts, GaussianExperts):
        parts.append(mixture.experts.matrices.ravel())
    return np.concatenate(parts)


def gap(one: Mixture, two: Mixture) -> float:
    """Largest difference between two mixtures, whatever their labels."""
    return float(np.abs(flat(one.permuted(alignment(one.raw(), two.raw()))) - flat(two)).max())


def bits(fit: SharedFit) -> dict[str, bytes]:
    mixtures = {"the centre": fit.mixture, **{name: own.mixture for name, own in fit.fits.items()}}
    return {name: encode(LogLikelihood(mixture)) for name, mixture in mixtures.items()}


def case_of(family: str, gate: str, n: int = 1_000, **options: Any) -> Simulated:
    if family == "categorical":
        return softly_categorical(gate=gate, n=n)
    return simulated(family, gate=gate, n=n, exposure=family in SIZED, seed=3, **options)


# ---------------------------------------------------------------------- sites that are alike


def test_one_site_has_its_own_fit() -> None:
    parts, _ = gaussian_sites(1)
    (fit,) = study(parts).value
    own = own_fit(parts["site 0"]).mixture
    assert gap(fit.fits["site 0"].mixture, own) < 1e-6
    assert gap(fit.mixture, own) < 1e-6
    np.testing.assert_array_equal(fit.sites[0].shrinkage, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gate"), IN_TURN)
def test_one_site_of_any_family_has_nearly_its_own_fit(family: str, gate: str) -> None:
    case = case_of(family, gate, 400)
    (fit,) = study({"only": case.rows}, case.specification, case.truth).value
    own = own_fit(case.rows, case.specification, case.truth)
    found = fit.fits["only"]
    assert found.mixture.K == 2
    assert found.log_likelihood > own.log_likelihood - 0.5  # rounds end at a tenth of a standard error


@pytest.mark.slow
@pytest.mark.parametrize("M", [2, 3, pytest.param(6, marks=LONG)])
def test_identical_sites_have_the_pooled_fit(M: int) -> None:
    rows = gaussian_sites(1)[0]["site 0"]
    (fit,) = study({f"site {m}": rows for m in range(M)}).value
    pooled = own_fit(Rows(np.empty((100 * M, 0)), np.tile(rows.Y, (M, 1)))).mixture
    for own in fit.fits.values():
        assert gap(own.mixture, pooled) < 1e-5
    assert gap(fit.mixture, pooled) < 1e-5
    np.testing.assert_allclose(fit.sharing.shrinkage, 1 - 1 / M)
    assert fit.trusted


def test_identical_sites_with_gates_have_the_pooled_fit() -> None:
    case = case_of("gaussian", "softmax", 400)
    (fit,) = study({f"site {m}": case.rows for m in range(4)}, case.specification, case.truth).value
    own = own_fit(case.rows, case.specification, case.truth)
    for found in fit.fits.values():
        assert gap(found.mixture, own.mixture) < 0.01
        assert gap(found.mixture, fit.fits["site 0"].mixture) < 1e-9


# ---------------------------------------------------------------------- what does not matter


@pytest.mark.slow
def test_the_order_of_sites_does_not_matter() -> None:
    parts, _ = gaussian_sites(5, h=1.0)
    (fit,), (turned,) = plain(5, 1.0).value, study(dict(reversed(parts.items()))).value
    for name, own in fit.fits.items():
        assert gap(own.mixture, turned.fits[name].mixture) < 1e-8
    assert gap(fit.mixture, turned.mixture) < 1e-8
    assert [site.name for site in turned.sites] == list(reversed(parts))


@pytest.mark.slow
def test_names_of_sites_do_not_matter() -> None:
    parts, _ = gaussian_sites(5, h=1.0)
    names = dict(zip(parts, ("zoo", "b", "42", "a", "Ω"), strict=True))
    (fit,), (other,) = plain(5, 1.0).value, study({names[name]: rows for name, rows in parts.items()}).value
    for name, own in fit.fits.items():
        np.testing.assert_array_equal(flat(own.mixture), flat(other.fits[names[name]].mixture))


@SLOW
def test_labels_of_the_start_do_not_matter() -> None:
    parts, _ = gaussian_sites(5, h=1.0)
    start = mixture_of(MEANS)
    (fit,), (other,) = plain(5, 1.0).value, study(parts, start=start.permuted(np.array([2, 0, 1]))).value
    for name, own in fit.fits.items():
        assert gap(own.mixture, other.fits[name].mixture) < 1e-6
    np.testing.assert_allclose(fit.sharing.shrinkage, other.sharing.shrinkage, atol=1e-6)


@pytest.mark.slow
def test_labels_that_a_site_calls_otherwise_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, _ = gaussian_sites(5, h=1.0)
    (fit,) = plain(5, 1.0).value

    def relabelled(question: Any, site: Site) -> bytes:
        found = answer(question, site)
        if not isinstance(question, FitSite):
            return encode(found)
        model, order = found.model, np.array([2, 0, 1])
        lists = {name: getattr(model, name)[order] for name in ("label_counts", "mass", "second", "precision")}
        return encode(replace(found, model=replace(model, mixture=model.mixture.permuted(order), **lists)))

    calls = Calls(monkeypatch)
    for name in ("site 1", "site 4"):
        calls.misbehave(name, lambda question, site: relabelled(question_of(question), site))
    (other,) = study(parts).value
    for name, own in fit.fits.items():
        assert gap(own.mixture, other.fits[name].mixture) < 1e-8


def question_of(question: Any) -> Any:
    """A question, whether it came as bytes or not."""
    return decode(question) if isinstance(question, bytes) else question


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "gate"),
    [
        pytest.param("gaussian", "constant", marks=LONG),
        ("gaussian", "softmax"),
        ("poisson", "softmax"),
    ],
)
def test_units_of_covariates_do_not_matter(family: str, gate: str) -> None:
    case = case_of(family, gate, 900)
    D, c = np.array([250.0, 1e-3]), np.array([-40.0, 9.0])
    parts = parted(case.rows, 4)
    T = np.array([[1.0, *(-c / D)], [0, 1 / D[0], 0], [0, 0, 1 / D[1]]])  # from coefficients on X to those on X D + c

    def moved(mixture: Mixture) -> Mixture:
        return replace(mixture, gate=mixture.gate.transformed(T), experts=mixture.experts.transformed(T))

    changed = {name: replace(rows, X=rows.X * D + c) for name, rows in parts.items()}
    (fit,) = study(parts, case.specification, case.truth).value
    (other,) = study(changed, case.specification, moved(case.truth)).value
    for name, own in fit.fits.items():
        np.testing.assert_allclose(flat(other.fits[name].mixture), flat(moved(own.mixture)), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.sharing.shrinkage, fit.sharing.shrinkage, atol=1e-6)


@pytest.mark.slow
def test_the_unit_of_responses_does_not_matter() -> None:
    parts, _ = gaussian_sites(5, h=1.0)
    changed = {name: replace(rows, Y=1e3 * rows.Y - 77) for name, rows in parts.items()}
    (fit,), (other,) = plain(5, 1.0).value, study(changed, start=mixture_of(1e3 * MEANS - 77)).value
    for name, own in fit.fits.items():
        found = other.fits[name].mixture.experts
        np.testing.assert_allclose(found.B, 1e3 * own.mixture.experts.B - 77, atol=0.1)
        np.testing.assert_allclose(found.covariance, 1e6 * own.mixture.experts.covariance, atol=100)
    np.testing.assert_allclose(other.sharing.shrinkage, fit.sharing.shrinkage, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "gate"),
    [
        pytest.param("gaussian", "constant", marks=LONG),
        ("gaussian", "softmax"),
        ("poisson", "constant"),
    ],
)
def test_a_weight_is_so_many_rows(family: str, gate: str) -> None:
    case = case_of(family, gate, 600, weights=True)
    parts = parted(case.rows, 3)
    repeated = {}
    for name, rows in parts.items():
        index = np.repeat(np.arange(rows.n), rows.weight.astype(int))
        repeated[name] = replace(rows.take(index), weight=None)
    (fit,), (other,) = (study(sites, case.specification, case.truth).value for sites in (parts, repeated))
    for name, own in fit.fits.items():
        assert gap(own.mixture, other.fits[name].mixture) < 1e-6
    np.testing.assert_allclose(fit.sharing.shrinkage, other.sharing.shrinkage, atol=1e-6)
    assert [site.weight for site in fit.sites] == pytest.approx([site.weight for site in other.sites])


# ---------------------------------------------------------------------- every model


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param((*each.values, {}), id=each.id, marks=each.marks) for each in IN_TURN),
        *(
            pytest.param(
                ("gaussian", "constant", {"q": 2, "structure": structure}),
                id=f"two responses, {structure}",
                marks=() if structure in {"full", "tied"} else LONG,
            )
            for structure in ("full", "diag", "spherical", "tied")
        ),
        pytest.param(("gaussian", "softmax", {"q": 2}), id="two responses, softmax", marks=LONG),
        pytest.param(("gaussian", "constant", {"intercept": False}), id="no intercept"),
        pytest.param(("gaussian", "softmax", {"group_size": 4}), id="groups"),
    ],
)
def test_every_model_has_a_centre_and_a_mixture_for_each_site(case: tuple[str, str, dict[str, Any]]) -> None:
    family, gate, options = case
    data = case_of(family, gate, **options)
    (fit,) = study(parted(data.rows, 4), data.specification, data.truth, SharedCentre()).value
    pooled = own_fit(data.rows, data.specification, data.truth)
    assert fit.ascent.stop is StopReason.SETTLED
    assert list(fit.fits) == [site.name for site in fit.sites] == [f"site {i}" for i in range(4)]
    assert fit.trusted
    assert np.all(fit.sharing.shrinkage > 0.1)  # rows of one mixture, dealt out
    parts = parted(data.rows, 4)
    values = [own.mixture.log_density(parts[name]).sum() for name, own in fit.fits.items()]
    assert sum(values) > pooled.log_likelihood - fit.mixture.parameter_count
    structure = getattr(data.truth.experts, "structure", None)
    for own in (fit, *fit.fits.values()):
        assert type(own.mixture.gate) is type(data.truth.gate)
        assert type(own.mixture.experts) is type(data.truth.experts)
        assert getattr(own.mixture.experts, "structure", None) == structure
        assert own.mixture.design.d == 2


@pytest.mark.slow
@pytest.mark.parametrize("structure", ["full", "tied", *(pytest.param(s, marks=LONG) for s in ("diag", "spherical"))])
def test_gaussian_mixtures_of_every_structure(structure: str) -> None:
    parts, own = gaussian_sites(5, h=0.3)
    specification = Specification(K=3, gate="constant", structure=structure)
    (fit,) = study(parts, specification, mixture_of(MEANS, structure)).value
    assert np.abs(fit.mixture.experts.B[:, :, 0] - MEANS).max() < 0.6
    for m, found in enumerate(fit.fits.values()):
        assert np.abs(found.mixture.experts.B[:, :, 0] - own[m]).max() < 1.0
        np.testing.assert_allclose(found.mixture.experts.variances, 1.0, atol=0.8)


def test_a_single_expert_is_shared_too() -> None:
    parts, _ = gaussian_sites(4, means=MEANS[:1])
    (fit,) = study(parts, Specification(K=1, gate="constant"), mixture_of(MEANS[:1])).value
    assert np.abs(fit.mixture.experts.B).max() < 0.3
    assert fit.trusted


@SLOW
def test_sites_start_by_themselves_where_no_start_is_given() -> None:
    parts, _ = gaussian_sites(3)
    dialogue = SharedCentre().dialogue(Task([Specification(K=3, gate="constant")], 0, 4, seed=1, n_init=2))
    (fit,) = run(dialogue, InProcess().over(sites_of(parts))).value
    assert gap(fit.mixture, plain(3).value[0].mixture) < 0.05


# ---------------------------------------------------------------------- the result


@pytest.mark.slow
def test_the_result_says_what_each_site_borrowed_and_kept() -> None:
    (fit,) = plain(5, 0.3).value
    for m, site in enumerate(fit.sites):
        np.testing.assert_array_equal(site.shrinkage, fit.sharing.shrinkage[m])
        np.testing.assert_array_equal(site.kept, fit.sharing.kept[m])
        assert site.shrinkage.shape == site.kept.shape == (3,)
        assert np.all((site.shrinkage > 0) & (site.shrinkage < 1))
        assert np.isnan(site.gate_shrinkage)
        assert site.weight == 100
    shares = fit.mixture.gate.probabilities
    assert np.all(np.diff(shares) < 0)  # experts by decreasing share
    np.testing.assert_allclose(fit.mixture.experts.B[:, :, 0], MEANS, atol=0.6)


@pytest.mark.slow
def test_who_is_nearer_to_the_others_than_chance_is_drawn_to_the_centre() -> None:
    parts, _ = gaussian_sites(6)
    (fit,) = plain(6).value
    for name, own in fit.fits.items():
        alone = own_fit(parts[name]).mixture.experts.B
        drawn = np.linalg.norm(own.mixture.experts.B - fit.mixture.experts.B)
        assert drawn < np.linalg.norm(alone - fit.mixture.experts.B)


@pytest.mark.slow
def test_a_site_far_away_keeps_its_own_and_is_named() -> None:
    parts, _ = gaussian_sites(6)
    parts["site 2"] = replace(parts["site 2"], Y=parts["site 2"].Y + 3.0)
    (fit,), (without,) = study(parts).value, study({n: r for n, r in parts.items() if n != "site 2"}).value
    named = [site for site in fit.sites if site.reasons]
    assert [site.name for site in named] == ["site 2"]
    assert "further from those of the other sites" in named[0].reasons[0]
    assert gap(fit.mixture, without.mixture) < 0.2
    found = fit.fits["site 2"].mixture.experts.B
    assert np.linalg.norm(found[:, :, 0] - MEANS - 3) < 0.5 * np.linalg.norm(found - fit.mixture.experts.B)


@pytest.mark.slow
def test_many_rows_by_its_own_account_are_remarked_on() -> None:
    parts, _ = gaussian_sites(5)
    parts["site 1"] = replace(parts["site 1"], weight=np.full(100, 50.0))
    (fit,) = study(parts).value
    asked = "50 times those of the next site: ask whether rows were counted twice"
    remarked = [site.name for site in fit.evidence() if any(asked in said for said in site.remarks)]
    assert remarked == ["site 1"]


@pytest.mark.slow
def test_the_likelihood_is_the_sum_over_sites() -> None:
    parts, _ = gaussian_sites(5)
    (fit,) = plain(5).value
    assert fit.log_likelihood == pytest.approx(sum(own.log_likelihood for own in fit.fits.values()))
    assert fit.ascent.statistics.weight == 500
    near = sum(own.mixture.log_density(parts[name]).sum() for name, own in fit.fits.items())
    assert fit.log_likelihood == pytest.approx(near, abs=3)


@pytest.mark.slow
def test_standard_errors_are_the_centres_coefficients_alone() -> None:
    parts, _ = gaussian_sites(12, h=0.5, n=200)
    (fit,) = study(parts).value
    errors = fit.inference.standard_errors()
    assert np.all(np.isnan(errors.gate))
    assert np.all(np.isnan(errors.log_shapes))
    expected = np.sqrt((0.25 + 1 / (200 * SHARES)) / 12)  # differences between sites, and chance at each
    np.testing.assert_allclose(errors.experts[:, :, 0], np.column_stack([expected] * 4), rtol=0.5)
    assert fit.inference.kind == "between sites"
    assert set(fit.inference.withheld) == {"gate"}


# ---------------------------------------------------------------------- gates


def slopes(mixture: Mixture) -> np.ndarray:
    return mixture.gate.contrasts()[:, 1:]


@pytest.mark.slow
def test_slopes_of_gates_are_drawn_to_the_centre() -> None:
    case = case_of("gaussian", "softmax", 2_000)
    parts = parted(case.rows, 5)
    (fit,) = study(parts, case.specification, case.truth).value
    shrinkage = np.array([site.gate_shrinkage for site in fit.sites])
    assert np.all((shrinkage > 0) & (shrinkage < 1))
    for name, own in fit.fits.items():
        alone = own_fit(parts[name], case.specification, case.truth).mixture
        alone = alone.permuted(alignment(alone, fit.mixture))
        drawn = np.linalg.norm(slopes(own.mixture) - slopes(fit.mixture))
        assert drawn < np.linalg.norm(slopes(alone) - slopes(fit.mixture))


@pytest.mark.slow
def test_slopes_that_rows_say_little_of_are_nearer_the_truth_than_alone() -> None:
    case = case_of("gaussian", "softmax", 240)  # too few rows between experts for intervals
    parts = parted(case.rows, 4)
    (fit,) = study(parts, case.specification, case.truth).value
    assert all(0.2 < site.gate_shrinkage < 1 for site in fit.sites)
    alone = {name: own_fit(rows, case.specification, case.truth).mixture for name, rows in parts.items()}

    def gaps(target: Mixture, mixtures: Mapping[str, Mixture]) -> np.ndarray:
        return np.array([np.linalg.norm(slopes(mixtures[name]) - slopes(target)) for name in parts])

    found = {name: own.mixture for name, own in fit.fits.items()}
    assert np.all(gaps(fit.mixture, found) < gaps(fit.mixture, alone))
    assert gaps(case.truth, found).mean() < 0.75 * gaps(case.truth, alone).mean()


@pytest.mark.slow
def test_slopes_that_rows_do_not_determine_are_those_of_the_others() -> None:
    case = case_of("gaussian", "softmax", 2_000)
    parts = parted(case.rows, 5)
    X = parts["site 2"].X.copy()
    X[:, 1] = 0.0  # the column is constant at this site
    parts["site 2"] = replace(parts["site 2"], X=X)
    alone = own_fit(parts["site 2"], case.specification, case.truth).mixture
    (fit,) = study(parts, case.specification, case.truth).value
    assert slopes(alone)[0, 1] == 0  # it is not read there
    np.testing.assert_allclose(slopes(fit.fits["site 2"].mixture)[0, 1], slopes(fit.mixture)[0, 1], atol=0.02)


def test_two_sites_have_one_gates_slopes_and_their_own_shares() -> None:
    case = case_of("gaussian", "softmax", 2_000)
    (fit,) = study(parted(case.rows, 2), case.specification, case.truth).value
    one, two = (own.mixture for own in fit.fits.values())
    np.testing.assert_allclose(slopes(one), slopes(two), rtol=1e-9)


# ---------------------------------------------------------------------- sites with little to say


@pytest.mark.slow
def test_a_site_with_too_few_rows_for_a_fit_has_a_mixture_from_the_centre() -> None:
    parts, _ = gaussian_sites(5)
    parts["tiny"] = parts["site 0"].take(np.arange(6))
    assert answer(FitSite(Specification(K=3, gate="constant"), (3,), 0), Site("tiny", parts["tiny"])).model is None
    (fit,) = study(parts).value
    (tiny,) = [site for site in fit.sites if site.name == "tiny"]
    assert tiny.shrinkage.min() > 0.85
    assert np.abs(fit.fits["tiny"].mixture.experts.B - fit.mixture.experts.B).max() < 0.3
    assert tiny.weight == 6
    assert not tiny.reasons


@pytest.mark.slow
def test_a_site_without_rows_of_an_expert_borrows_all_of_it() -> None:
    parts, _ = gaussian_sites(5)
    near_first = np.linalg.norm(parts["site 3"].Y - MEANS[0], axis=1) < 3.5
    parts["site 3"] = parts["site 3"].take(np.flatnonzero(near_first))
    (fit,) = study(parts).value
    site, own = fit.sites[3], fit.fits["site 3"].mixture
    assert site.shrinkage[0] < 1
    np.testing.assert_array_equal(site.shrinkage[1:], 1.0)
    np.testing.assert_array_equal(site.kept, [True, False, False])
    np.testing.assert_allclose(own.experts.B[1:], fit.mixture.experts.B[1:], rtol=1e-9)
    remark = "it has too few rows, or too large standard errors, for 2 of the 3 experts: it gets those of the centre"
    assert site.remarks == (remark,)
    assert site.status == "shared"
    assert not site.reasons


def test_where_no_site_has_rows_enough_another_method_is_named() -> None:
    parts, _ = gaussian_sites(4, n=6)
    with pytest.raises(InvalidInputError, match="use FederatedEM"):
        study(parts)


# ---------------------------------------------------------------------- rounds


@pytest.mark.slow
def test_the_rounds_are_the_fits_and_questions_of_their_own() -> None:
    done = study(gaussian_sites(4)[0], method=SharedCentre())
    kinds = [(r.request, r.question) for r in done.record.rounds]
    steps = len(kinds) - 2
    several, expect_only = ("PerSite", "Several"), ("PerSite", "Expect")  # the regressions of rivals, and rivals
    assert kinds == [("Each", "FitSite"), several, *[expect_only] * (steps - 1), several]
    assert done.value[0].ascent.passes == steps <= 20
    assert done.value[0].ascent.stop is StopReason.SETTLED


def own_questions(request: Any, names: Iterable[str]) -> dict[str, Any]:
    """What each site is asked by a request, of whatever kind."""
    return getattr(request, "questions", None) or dict.fromkeys(request.sites or names, request.question)


@pytest.mark.slow
def test_information_is_asked_for_in_every_fifth_round_once_sites_may_differ() -> None:
    parts, _ = gaussian_sites(4, h=1.0)
    dialogue = SharedCentre().dialogue(Task([Specification(K=3, gate="constant")], 0, 4, start=mixture_of(MEANS)))
    sites, asked = sites_of(parts), []
    request = next(dialogue)
    with suppress(StopIteration):
        while True:
            own = own_questions(request, parts)
            firsts = [each.questions[0] if isinstance(each, Several) else each for each in own.values()]
            asked += [{question.information for question in firsts if isinstance(question, Expect)}]
            request = dialogue.send({site.name: answer(own[site.name], site) for site in sites})
    assert asked[:2] == [set(), {False}]
    informed = [True in found for found in asked]
    first = informed.index(True)
    assert informed[first:] == [i % 5 == 0 for i in range(len(informed) - first)]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_few_rounds_are_no_more_than_asked_for(rounds: int) -> None:
    done = study(gaussian_sites(4)[0], method=SharedCentre(rounds=rounds))
    (fit,) = done.value
    assert [r.question for r in done.record.rounds] == ["FitSite", "Several", *["Expect"] * (rounds - 1), "Several"]
    assert fit.ascent.passes == rounds
    assert np.abs(fit.mixture.experts.B[:, :, 0] - MEANS).max() < 0.6


@pytest.mark.slow
def test_after_one_round_all_have_the_centre() -> None:
    (fit,) = study(gaussian_sites(4)[0], method=SharedCentre(rounds=1)).value
    assert fit.ascent.stop is StopReason.ROUNDS
    np.testing.assert_array_equal(fit.sharing.shrinkage, 1.0)
    for own in fit.fits.values():
        np.testing.assert_allclose(own.mixture.experts.B, fit.mixture.experts.B, atol=1e-12)


@pytest.mark.slow
def test_the_method_is_deterministic() -> None:
    parts, _ = gaussian_sites(4, h=0.3)
    one, two = (study(parts, method=SharedCentre(rounds=4)).value[0] for _ in range(2))
    assert bits(one) == bits(two)


# ---------------------------------------------------------------------- a share of the sites per round


@pytest.mark.slow
@pytest.mark.parametrize("participation", [pytest.param(0.25, marks=LONG), 0.5, pytest.param(0.9, marks=LONG)])
def test_no_round_asks_more_than_its_share_and_a_roll_call_comes_first(participation: float) -> None:
    done = study(gaussian_sites(8)[0], method=SharedCentre(participation=participation, rounds=6))
    first, fits, *rounds, last = done.record.rounds
    assert (first.request, first.question, len(first.exchanges)) == ("Each", "Summarise", 8)
    assert (fits.request, fits.question) == ("Each", "FitSite")
    assert {len(r.exchanges) for r in (fits, *rounds)} == {round(8 * participation)}
    assert len({asked_in(r) for r in rounds}) > 1
    assert (last.request, last.question) == ("PerSite", "Several")
    assert set(asked_in(last)) == {site for r in rounds for site in asked_in(r)} == set(done.value[0].fits)


def asked_in(one: Any) -> tuple[str, ...]:
    """The sites that a round asked."""
    return tuple(sorted(exchange.sites[0] for exchange in one.exchanges))


@pytest.mark.slow
def test_a_tiny_share_is_one_site() -> None:
    done = study(gaussian_sites(3)[0], method=SharedCentre(participation=0.01, rounds=4))
    *rounds, last = done.record.rounds[1:]
    assert {len(r.exchanges) for r in rounds} == {1}
    assert set(asked_in(last)) == {site for r in rounds[1:] for site in asked_in(r)}


@SLOW
def test_who_is_asked_is_drawn_by_the_seed() -> None:
    parts, _ = gaussian_sites(6)

    def asked(seed: int) -> tuple[list[list[str]], dict[str, bytes]]:
        method = SharedCentre(participation=0.5, rounds=3)
        dialogue = method.dialogue(
            Task([Specification(K=3, gate="constant")], 0, 4, start=mixture_of(MEANS), seed=seed)
        )
        done = run(dialogue, InProcess().over(sites_of(parts)))
        return [sorted(e.sites[0] for e in r.exchanges) for r in done.record.rounds], bits(done.value[0])

    once = asked(3)
    assert once == asked(3)
    assert once[0] != asked(4)[0]


@pytest.mark.slow
def test_all_sites_asked_is_no_roll_call() -> None:
    assert plain(5).record.rounds[0].question == "FitSite"


@pytest.mark.slow
def test_a_site_that_joins_late_starts_from_the_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, _ = gaussian_sites(8, h=1.0)
    centres: list[Mixture] = []
    original, first = module.share_estimates, module.restart

    def recorded(estimates: Mapping[str, Estimate], **options: Any) -> Sharing:
        found = original(estimates, **options)
        centres.append(found.centre)
        return found

    def restarted(fits: LocalFits) -> Mixture:
        centres.append(first(fits))
        return centres[-1]

    monkeypatch.setattr(module, "share_estimates", recorded)
    monkeypatch.setattr(module, "restart", restarted)
    method = SharedCentre(participation=0.25, rounds=10)
    dialogue = method.dialogue(Task([Specification(K=3, gate="constant")], 0, 4, start=mixture_of(MEANS), seed=1))
    sites, seen, late = sites_of(parts), set(), 0
    request, number = next(dialogue), 0
    try:
        while True:
            number += 1
            own = own_questions(request, parts)
            for name, asked in own.items():
                question = asked.questions[0] if isinstance(asked, Several) else asked
                if isinstance(question, Expect) and name not in seen:
                    seen.add(name)
                    late += number > 3
                    assert encode(Expect(question.mixture)) == encode(Expect(centres[-1]))
            request = dialogue.send({site.name: answer(own[site.name], site) for site in sites if site.name in own})
    except StopIteration as finished:
        (fit,) = finished.value
    assert late >= 3
    assert seen == set(fit.fits)


@SLOW
def test_with_a_share_of_the_sites_the_result_is_nearly_that_of_all() -> None:
    parts, _ = gaussian_sites(8)
    (fit,) = study(parts, method=SharedCentre(participation=0.5, rounds=14)).value
    (everyone,) = plain(8).value
    assert set(fit.fits) == set(parts)
    for name, mixture in fit.sharing.mixtures.items():  # which of them a site gets may differ
        assert gap(mixture, everyone.sharing.mixtures[name]) < 0.2


# ---------------------------------------------------------------------- interruptions and engines


@pytest.mark.slow
@pytest.mark.parametrize(("time", "participation"), [(1, 0.5), pytest.param(2, 1.0, marks=LONG)])
def test_a_journal_resumes_where_a_run_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: int, participation: float
) -> None:
    parts, _ = gaussian_sites(4, h=1.0)
    method = SharedCentre(participation=participation, rounds=5)
    whole = study(parts, method=method)
    with monkeypatch.context() as patch:
        Calls(patch).misbehave("site 2", failing, time=time)
        with pytest.raises(RoundStoppedError, match="site 2"):
            study(parts, method=method, journal=Journal(tmp_path / "journal"))
    calls = Calls(monkeypatch)
    again = study(parts, method=method, journal=Journal(tmp_path / "journal"))
    assert bits(again.value[0]) == bits(whole.value[0])
    assert len(again.record.rounds) == len(whole.record.rounds)
    assert 0 < len(calls.asked) < sum(len(r.exchanges) for r in whole.record.rounds)


@pytest.mark.slow
def test_a_site_that_drops_out_is_named_and_its_last_word_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    parts, _ = gaussian_sites(5)
    Calls(monkeypatch).misbehave("site 1", failing, time=2)
    done = study(parts, on_drop="continue")
    fit = done.value[0].with_dropped(done.record.dropped)
    assert done.record.dropped.keys() == {"site 1"}
    (gone,) = [site for site in fit.sites if site.name == "site 1"]
    assert gone.reasons == (done.record.dropped["site 1"],)
    assert "site 1" in fit.fits


@LONG  # tests/contracts has questions to each site, tests/kit/test_mail.py this method on a cluster
def test_a_cluster_has_the_bits_of_this_process(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    sites, truth = write_sites(tmp_path, 3, 900)

    def dialogue() -> Any:
        return SharedCentre(participation=0.7, rounds=8).dialogue(Task([Specification(K=3)], 3, 1, start=truth, seed=0))

    (expected,) = run(dialogue(), InProcess().over(sites)).value
    with DaskCluster(n_workers=2) as cluster:
        (got,) = run(dialogue(), cluster.over(sites, in_memory=False)).value
    assert bits(got) == bits(expected)
    np.testing.assert_array_equal(got.sharing.shrinkage, expected.sharing.shrinkage)


# ---------------------------------------------------------------------- sites that differ


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=LONG)])
def test_sites_that_differ_are_nearer_to_their_truth_than_alone_or_in_common(seed: int) -> None:
    means = 4 * np.random.default_rng(9).normal(size=(3, 6))
    specification, start = Specification(K=3, gate="constant", structure="diag"), mixture_of(means, "diag")
    parts, own = gaussian_sites(10, n=100, h=0.2, seed=seed, means=means)
    (fit,) = study(parts, specification, start).value
    errors = []
    for m, (name, rows) in enumerate(parts.items()):
        found = [fit.fits[name].mixture, own_fit(rows, specification, start).mixture, fit.mixture]
        aligned = [mixture.permuted(alignment(mixture, mixture_of(own[m], "diag"))) for mixture in found]
        errors.append([np.sum((mixture.experts.B[:, :, 0] - own[m]) ** 2) for mixture in aligned])
    shared, alone, common = np.mean(errors, axis=0)
    assert shared < 0.95 * alone
    assert shared < 0.95 * common


@pytest.mark.slow
def test_how_much_is_borrowed_depends_on_how_much_sites_differ() -> None:
    means, shares = 30 * MEANS, []
    for h in (0.0, 5.0):
        (fit,) = study(gaussian_sites(6, h=h, means=means)[0], start=mixture_of(means)).value
        shares.append(np.median(fit.sharing.shrinkage))
    assert shares[0] > 0.6
    assert shares[1] < 0.05


# ---------------------------------------------------------------------- what is said of sites


def share(name: str = "north", shrinkage: Any = (0.8, 0.7), kept: Any = (True, True), **more: Any) -> SiteShare:
    return SiteShare(name, 150.0, np.array(shrinkage, dtype=float), np.array(kept, dtype=bool), np.nan, **more)


@pytest.mark.parametrize(
    ("site", "status", "agreement"),
    [
        (share(), "shared", 1.0),
        (share(shrinkage=(0.8, 0.1), kept=(True, False)), "shared in part", 0.5),
        (share(shrinkage=(0.8, 1.0), kept=(True, False)), "shared", 1.0),  # no rows of the second expert
        (share(shrinkage=(0.1, 0.1), kept=(False, False)), "on its own", 0.0),
        (share(shrinkage=(0.1, 1.0), kept=(False, False)), "on its own", 0.0),
        (SiteShare.gone("north", "it said nothing"), "no answer", 0.0),
    ],
)
def test_the_status_of_a_site(site: SiteShare, status: str, agreement: float) -> None:
    assert (site.status, site.agreement) == (status, agreement)
    assert str(site).startswith(f"north: {status}: ")


def test_a_site_as_text() -> None:
    assert str(share()) == "north: shared: shrinkage 75 %"
    assert str(share(reasons=("far",), remarks=("large",))) == "north: shared: shrinkage 75 %; far; large"
    assert str(SiteShare.gone("north", "it said nothing")) == "north: no answer: it said nothing"


@pytest.fixture
def settled() -> SharedFit:
    return plain(5).value[0]


def with_sites(fit: SharedFit, agreeing: int, lone: int) -> SharedFit:
    own = share(shrinkage=(0.0, 0.0), kept=(False, False))
    return replace(fit, sites=(*[share()] * agreeing, *[own] * lone))


@pytest.mark.parametrize(("agreeing", "lone", "trusted"), [(5, 0, True), (6, 4, True), (5, 4, False), (1, 1, False)])
def test_a_centre_is_trusted_where_three_in_five_agree(
    settled: SharedFit, agreeing: int, lone: int, trusted: bool
) -> None:
    fit = with_sites(settled, agreeing, lone)
    assert (fit.trusted, fit.agreeing) == (trusted, agreeing)
    assert trusted or f"only {agreeing} of {agreeing + lone} sites agree" in fit.doubts[0]


def test_camps_are_not_trusted(settled: SharedFit) -> None:
    divided = replace(settled, sharing=replace(settled.sharing, division=1.01))
    assert not divided.trusted
    assert "the sites form groups" in divided.doubts[0]
    assert replace(settled, sharing=replace(settled.sharing, division=1.0)).trusted
    assert len(with_sites(divided, 1, 1).doubts) == 2


def test_sites_that_were_dropped_count_as_not_agreeing(settled: SharedFit) -> None:
    some = settled.with_dropped({"gone": "it said nothing"})
    assert [site.status for site in some.sites] == [*["shared"] * 5, "no answer"]
    assert some.trusted
    assert some.agreeing == 5
    many = settled.with_dropped({f"gone {i}": "it said nothing" for i in range(4)})
    assert not many.trusted
    assert "only 5 of 9 sites agree" in many.doubts[0]


def test_a_site_that_was_dropped_later_keeps_what_is_known_of_it(settled: SharedFit) -> None:
    fit = settled.with_dropped({"site 1": "it said nothing more"})
    assert len(fit.sites) == 5
    (one,) = [site for site in fit.sites if site.name == "site 1"]
    assert one.reasons == ("it said nothing more",)
    np.testing.assert_array_equal(one.shrinkage, settled.sites[1].shrinkage)
    assert fit.with_dropped({}).sites == fit.sites


@SLOW
def test_camps_of_real_sites_are_seen() -> None:
    parts, _ = gaussian_sites(10, n=200)
    for m in range(5):
        parts[f"site {m}"] = replace(parts[f"site {m}"], Y=parts[f"site {m}"].Y + 1.2)
    (fit,) = study(parts).value
    assert not fit.trusted


# ---------------------------------------------------------------------- no site is worse than alone


def regression_sites(
    M: int, n: int, *, seed: int = 0, h: float = 0.2, elsewhere: float = 0.0, apart: float = 0.0
) -> tuple[dict[str, Rows], dict[str, Rows]]:
    """Sites of two regressions on four covariates, and new rows of each; ``elsewhere`` moves the first covariate."""
    rng = np.random.default_rng(seed)
    common = np.array([[0.0, 1.5, -1.0, 0.5, 0.0], [3.0, -1.0, 1.0, 0.0, 1.0]])
    parts, new = {}, {}
    for m in range(M):
        B = common + h * rng.normal(size=common.shape)
        B[:, 1] += apart * (m >= M // 2)
        for kept, size in ((parts, n), (new, 2_000)):
            X = rng.normal(size=(size, 4))
            X[:, 0] += elsewhere * (m - M / 2)
            y = np.einsum("nd,nd->n", np.c_[np.ones(size), X], B[rng.choice(2, size)]) + rng.normal(size=size)
            kept[f"site {m}"] = Rows(X, y[:, None])
    return parts, new


TWO_REGRESSIONS = Mixture(
    Design.raw(4),
    ConstantGate(np.full(2, 0.5)),
    GaussianExperts(np.array([[[0.0, 1.5, -1.0, 0.5, 0.0]], [[3.0, -1.0, 1.0, 0.0, 1.0]]]), np.ones((2, 1, 1))),
)
REGRESSIONS = Specification(K=2, gate="constant")


@SLOW
@pytest.mark.parametrize("seed", [0, pytest.param(3, marks=LONG)])
def test_sites_centred_elsewhere_are_not_worse_than_alone(seed: int) -> None:
    parts, new = regression_sites(8, 200, seed=seed, elsewhere=3.0)
    (fit,) = study(parts, REGRESSIONS, TWO_REGRESSIONS, SharedCentre()).value
    loss = []
    for name, rows in parts.items():
        alone = own_fit(rows, REGRESSIONS, TWO_REGRESSIONS).mixture
        loss.append(np.mean(alone.log_density(new[name]) - fit.fits[name].mixture.log_density(new[name])))
    assert max(loss) < 0.02
    assert np.mean(loss) < 0


KINDS = ("shared", "centre", "one", "regression")


def contested(values: Mapping[str, float], *, shrinkage: float = 0.5, n: float = 1e4) -> SharedFit:
    """A fit in which ``site 1`` states these log-likelihoods of its rivals (-1e6 if not given); all own fits have 0."""
    parts, _ = gaussian_sites(4)
    own = own_fit(parts["site 0"]).mixture
    fits = LocalFits(dict.fromkeys(parts, own), dict.fromkeys(parts, n), dict.fromkeys(parts, 0.0), None, {})
    specification, summary = Specification(K=3, gate="constant"), column_summary(parts["site 0"])
    one = RegressionRivals(specification.with_order(1).blank(summary), specification.penalty(summary), exact=True)
    state = module._Rounds(fits, own, one.penalty, {}, one)
    state.take({site: Answers((expect(own, rows), expect(one.mixture, rows))) for site, rows in parts.items()})
    state.share(last=True)
    state.share(last=True)
    state.sharing = replace(state.sharing, shrinkage=np.full_like(state.sharing.shrinkage, shrinkage))
    plainly = {"shared": 0.0}
    stated = {
        site: Answers(tuple(Likelihood((values if site == "site 1" else plainly).get(kind, -1e6), n) for kind in KINDS))
        for site in parts
    }
    return state.ending(stated).fit(one.penalty)


@pytest.mark.slow
def test_a_site_keeps_its_own_fit_only_where_it_is_better_by_more_than_its_parameters_cost() -> None:
    P = own_fit(gaussian_sites(4)[0]["site 0"]).mixture.parameter_count
    of_site, of_all = 0.5 * np.log(1e4), 0.5 * np.log(4e4) / 4  # of a shared mixture half the parameters are the site's
    bound = 2 * of_site * P - (0.5 * of_site + 0.5 * of_all) * P
    for gap, kept in ((bound + 1.0, True), (bound - 1.0, False)):
        fit = contested({"shared": -gap})
        one = fit.sites[1]
        assert one.own == kept
        assert (module_text.GETS["own"] in one.remarks) == kept
        assert (one.status == "on its own") == kept
        assert fit.fits["site 1"].log_likelihood == (0.0 if kept else -gap)
        assert not any(site.own for i, site in enumerate(fit.sites) if i != 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["centre", "one", "regression"])
def test_a_site_gets_a_simpler_model_that_explains_its_rows_as_well(kind: str) -> None:
    fit = contested({"shared": 0.0, kind: 1000.0})
    site, own = fit.sites[1], fit.fits["site 1"]
    assert site.model == kind
    assert module_text.GETS[site.model] in site.remarks
    assert len(own.mixture.experts.B) == (3 if kind == "centre" else 1)
    assert own.log_likelihood == 1000.0
    assert site.status == ("shared" if kind == "centre" else "one regression")
    assert fit.site_fits()["site 1"].borrowed == (kind != "regression")
    assert fit.trusted  # the mixtures of the other sites are far better


@pytest.mark.slow
def test_shared_mixture_and_centre_are_compared_by_akaike() -> None:
    P = own_fit(gaussian_sites(4)[0]["site 0"]).mixture.parameter_count
    for gap, kind in ((0.5 * P + 0.5, "shared"), (0.5 * P - 0.5, "centre")):
        assert contested({"shared": 0.0, "centre": -gap}).sites[1].model == kind


def test_regressions_at_most_sites_are_a_doubt() -> None:
    (doubt,) = SharedRivals(given={"one": 2, "regression": 1, "shared": 2}).doubts
    assert doubt == "at 3 of 5 sites one regression explains the rows better than a mixture does"
    assert SharedRivals(given={"one": 2, "shared": 1, "own": 1}).doubts == ()
    assert SharedRivals().doubts == ()


@pytest.mark.slow
def test_what_a_few_sites_state_of_their_likelihoods_decides_for_them_only() -> None:
    fit = contested({"one": 1e9})
    assert [site.model for site in fit.sites] == ["shared", "one", "shared", "shared"]
    assert fit.trusted
    assert "experts" not in fit.inference.withheld


def test_sites_whose_mixtures_are_hardly_there_get_one_regression_and_the_fit_is_in_doubt() -> None:
    rng = np.random.default_rng(4000)
    parts, new = {}, {}
    for m, n in enumerate((57, 66, 72, 99, 108, 111)):
        B = np.array([1.0, 0.5, -0.5, 0.3]) + 0.05 * rng.normal(size=4)
        for kept, size in ((parts, n), (new, 2_000)):
            X = rng.normal(size=(size, 3))
            y = np.c_[np.ones(size), X] @ B + 0.3 * rng.choice(2, size) + 0.6 * rng.normal(size=size)
            kept[f"site {m}"] = Rows(X, y[:, None])
    dialogue = SharedCentre().dialogue(Task([REGRESSIONS], 3, 1, seed=0, n_init=2))
    (fit,) = run(dialogue, InProcess().over(sites_of(parts))).value
    assert "sites one regression explains the rows better" in fit.doubts[-1]
    assert "one regression explains the rows better" in fit.inference.withheld["experts"]
    assert sum(site.model == "one" for site in fit.sites) >= 4
    pooled = Rows(*(np.concatenate([getattr(rows, name) for rows in parts.values()]) for name in ("X", "Y")))
    one = fit_mixture(pooled, REGRESSIONS.with_order(1), rng=rng).mixture
    given = next(site.name for site in fit.sites if site.model == "one")
    assert gap(fit.fits[given].mixture, one) < 1e-8
    loss = [np.mean(one.log_density(rows) - fit.fits[name].mixture.log_density(rows)) for name, rows in new.items()]
    assert max(loss) < 0.1
    assert np.mean(loss) < 0.02


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_the_rounds_find_one_regression_of_families_without_sufficient_sums(family: str) -> None:
    case = case_of(family, "constant", 600)
    parts = parted(case.rows, 3)
    one = case.specification.with_order(1)
    summary = column_summary(case.rows)
    found = RegressionRivals(one.blank(summary), one.penalty(summary), exact=False)
    for _ in range(30):
        questions = found.beside(dict.fromkeys(parts, Expect(one.blank(summary))))
        if found.settled:
            break
        found.take({site: answer(questions[site].questions[1], Site(site, rows)) for site, rows in parts.items()})
    best = fit_mixture(case.rows, one, rng=np.random.default_rng(0)).log_likelihood
    assert found.mixture.log_density(case.rows).sum() > best - 0.5
    assert set(found.of_sites) == set(parts)


def test_intervals_of_the_centre_need_rows_for_each_coefficient() -> None:
    parts, _ = regression_sites(5, 40)  # 20 rows of each of two experts for 5 coefficients
    (fit,) = study(parts, REGRESSIONS, TWO_REGRESSIONS, SharedCentre(rounds=4)).value
    assert "rows of an expert at a typical site for its 5 coefficients" in fit.inference.withheld["experts"]
    parts, _ = regression_sites(5, 150)
    (fit,) = study(parts, REGRESSIONS, TWO_REGRESSIONS, SharedCentre(rounds=4)).value
    assert "experts" not in fit.inference.withheld
    degrees = fit.inference.degrees_of_freedom().experts
    np.testing.assert_array_equal(np.isfinite(degrees[:, 0, 0]), fit.sharing.between > 0)


def test_the_optimism_of_a_fit_with_few_rows_is_bounded() -> None:
    own = mixture_of(MEANS)
    P, q = own.parameter_count, own.experts.q
    assert module.optimism(own, 1e9) == pytest.approx(P)
    assert module.optimism(own, 6 * P / q) == pytest.approx(1.5 * P)
    for n in (10.0, 2 * P / q, 2.1 * P / q):
        assert module.optimism(own, n) == 2.5 * P


def test_the_likelihood_is_that_of_the_mixtures_returned() -> None:
    parts, _ = gaussian_sites(5)
    (fit,) = plain(5).value
    for name, rows in parts.items():
        expected = fit.fits[name].mixture.log_density(rows).sum()
        assert fit.fits[name].log_likelihood == pytest.approx(expected, rel=1e-9)
    assert fit.log_likelihood == pytest.approx(sum(own.log_likelihood for own in fit.fits.values()), rel=1e-12)


@pytest.mark.slow
def test_a_site_whose_rows_do_not_determine_a_coefficient_gets_it_from_the_others() -> None:
    parts, _ = regression_sites(6, 150, h=0.05)
    one = parts["site 2"]
    X = one.X.copy()
    X[:, 3] = 0.0  # the column is constant at this site
    parts["site 2"] = replace(one, X=X, Y=one.Y)
    (fit,) = study(parts, REGRESSIONS, TWO_REGRESSIONS, SharedCentre(rounds=12)).value
    site = fit.sites[2]
    assert any("do not determine" in remark for remark in site.remarks)
    slopes = np.array([own.mixture.experts.B[:, 0, 4] for own in fit.fits.values()])
    if not site.own:
        np.testing.assert_allclose(slopes[2], np.median(slopes, axis=0), atol=0.1)


@SLOW
@pytest.mark.parametrize("M", [6, pytest.param(8, marks=LONG)])
def test_two_camps_of_regressions_are_not_trusted(M: int) -> None:
    parts, _ = regression_sites(M, 200, apart=2.0)
    (fit,) = study(parts, REGRESSIONS, TWO_REGRESSIONS).value
    assert not fit.trusted
    assert "two camps" in fit.doubts[-1]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("rounds", [0, -1, 1.5, True, "3"])
def test_rounds_must_be_a_whole_number(rounds: Any) -> None:
    with pytest.raises(InvalidInputError, match="rounds="):
        SharedCentre(rounds=rounds)


@pytest.mark.parametrize("participation", [0, -0.1, 1.01, np.nan])
def test_participation_must_be_a_share(participation: float) -> None:
    with pytest.raises(InvalidInputError, match="participation="):
        SharedCentre(participation=participation)


def test_several_orders_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="SharedCentre fits one number of experts at a time"):
        next(SharedCentre().dialogue(Task([Specification(K=2), Specification(K=3)], 2, 1)))


def test_why_a_site_has_no_intervals_is_said() -> None:
    assert "shrinkage towards the centre" in OF_A_SITE
