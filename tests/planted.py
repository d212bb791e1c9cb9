"""Plant known defects one at a time in a copy of the tree: the tests of every change must catch each of them.

``python tests/planted.py [NUMBER ...]`` copies the files of the repository into a temporary folder, runs the tests of
the chosen defects there as they are, then with each defect, and writes a line for each; it ends with 1 if one was not
caught.
A new kind of promise deserves a line in :data:`DEFECTS`; whoever moves the code of a defect moves its line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "src/consilience"
LANE = ("-m", "not long and not published")
"""What every change runs, as in .ci/run."""


@dataclass(frozen=True)
class Defect:
    """An edit of one place, and the tests that must fail with it."""

    name: str
    file: str  # below the package
    old: str  # occurs once in the file
    new: str
    tests: str  # below tests, separated by spaces

    @property
    def selected(self) -> list[str]:
        return [f"tests/{test}" for test in self.tests.split()]


DEFECTS = (
    # ------------------------------------------------------------------ mathematics
    Defect(
        "k-means ignores weights",
        "numerics/kmeans.py",
        "np.arange(k)) * weight[:, None]",
        "np.arange(k)) * 1.0",
        "numerics/test_kmeans.py",
    ),
    Defect(
        "a bounded covariance without its factor",
        "numerics/linalg.py",
        "root = L @ vectors",
        "root = vectors",
        "numerics/test_linalg.py",
    ),
    Defect(
        "counts above zero with the Poisson mean",
        "model/families/hurdle_poisson.py",
        "return np.asarray(mu / -np.expm1(-mu))",
        "return np.asarray(mu)",
        "model/families/test_hurdle_poisson.py",
    ),
    Defect(
        "calibrated intervals that forget the new row",
        "model/tails.py",
        "self.above >= level * (self.rows + 1) - 1e-9",
        "self.above >= 0.97 * level * self.rows",
        "estimators/test_calibrated_intervals.py",
    ),
    Defect(
        "a lasso whose penalty ignores the scale of an expert",
        "methods/lasso.py",
        "np.where(support.experts, threshold / unit[:, None], np.inf)",
        "np.where(support.experts, threshold, np.inf)",
        "agreement/test_glmnet.py",
    ),
    Defect(
        "sign of the Poisson score",
        "model/families/poisson.py",
        "Scores(at.residual[:, None]",
        "Scores(-at.residual[:, None]",
        "model/test_information.py",
    ),
    Defect(
        "cross term of the Gaussian information",
        "model/families/gaussian.py",
        "= cross, cross.transpose",
        "= 0 * cross, 0 * cross.transpose",
        "model/test_information.py",
    ),
    Defect(
        "a constant beside digamma",
        "model/families/gamma.py",
        "digamma(self.nu)) - excess",
        "digamma(self.nu) + 0.1) - excess",
        "model/test_information.py",
    ),
    Defect(
        "binomial variance without 1 - p",
        "model/families/binomial.py",
        "m * share * (1 - share), y",
        "m * share, y",
        "model/test_information.py",
    ),
    Defect(
        "scatter under the old labels",
        "model/families/covariance.py",
        "self.scatter[permutation]",
        "self.scatter",
        "model/families/test_least_squares.py",
    ),
    Defect(
        "a term of the missing information",
        "model/expectation.py",
        "np.subtract(scores, U, out=factors[len(U) :])",
        "factors[len(U) :] = scores",
        "model/test_missing.py",
    ),
    Defect(
        "a ridge on the intercept",
        "model/statistics.py",
        "ridge * slope_mask(p, intercept)",
        "ridge * np.ones(p)",
        "fit/test_climb.py",
    ),
    Defect(
        "sign of contrasts",
        "model/multinomial.py",
        "coef[:-1] - coef[-1]",
        "coef[-1] - coef[:-1]",
        "model/test_gates.py",
    ),
    Defect(
        "Newton steps without the gradient of the ridge",
        "model/information.py",
        " - R @ free_parameters(mixture)",
        "",
        "fit/test_climb.py",
    ),
    Defect(
        "BIC counts rows for groups",
        "fit/criteria.py",
        "len(np.unique(rows.groups.codes[weight > 0]))",
        "weight.sum()",
        "fit/test_criteria.py",
    ),
    Defect(
        "half a sandwich",
        "fit/inference.py",
        "inverse @ meat.products @ inverse",
        "inverse @ meat.products",
        "fit/test_inference.py",
    ),
    Defect(
        "a barycentre ignores the mass",
        "model/families/gaussian.py",
        "mass[:, None, None] * parts.matrices",
        "parts.matrices",
        "aggregate/combine/test_reduce.py",
    ),
    Defect(
        "shrinkage inverted",
        "aggregate/robust/shrinkage.py",
        "np.linalg.solve(precision + prior, prior)",
        "np.linalg.solve(precision + prior, precision)",
        "aggregate/robust/test_centre.py",
    ),
    Defect(
        "the centre has the shapes of the first site",
        "aggregate/robust/sharing.py",
        "np.array([geometric_median(own[:, k]) for k in range(own.shape[1])])",
        "own[0]",
        "aggregate/robust/test_sharing.py",
    ),
    # ------------------------------------------------------------------ messages and runs
    Defect(
        "a design is not checked for finite numbers",
        "model/received.py",
        "finite = is_moderate(design.centre) and np.all(np.isfinite(design.scale))",
        "finite = True",
        "messages/test_codec.py",
    ),
    Defect(
        "two fields swapped on the wire",
        "messages/records.py",
        '"centre": VECTOR,\n        "scale": VECTOR,',
        '"scale": VECTOR,\n        "centre": VECTOR,',
        "messages/test_codec.py",
    ),
    Defect(
        "moments of clients are added",
        "messages/records.py",
        "check_clients),\n        adds=False,",
        "check_clients),",
        "messages/test_codec.py",
    ),
    Defect(
        "a site is lost in a sum",
        "runs/run.py",
        "            self.total.put(span, value)",
        "            span[0] == 1 or self.total.put(span, value)",
        "runs/test_run.py",
    ),
    Defect(
        "the digest of a record is not compared",
        "runs/journal.py",
        "data[end - DIGEST : end] != self._digest(data[at : end - DIGEST])",
        "len(data) < 0",
        "runs/test_journal.py",
    ),
    Defect(
        "refinement accepts a fall of the likelihood",
        "fit/climb.py",
        "not new.value >= at.value - ROUNDING * answer.scale",
        "not np.isfinite(new.value)",
        "methods/one_shot/test_refinement.py",
    ),
    Defect(
        "starts are ranked without the penalty",
        "methods/federated_em.py",
        "at.log_likelihood - m.ridge(penalty) for at, m",
        "at.log_likelihood for at, m",
        "methods/test_federated_em.py",
    ),
    Defect(
        "a mirrored expert with the sign of the first",
        "published/gradient_em.py",
        "np.array([first, -first])",
        "np.array([first, first])",
        "test_published.py",
    ),
    Defect(
        "the weight column of a file is ignored",
        "data/file_columns.py",
        "weight = None if columns.weight is None else buffer[d + q]",
        "weight = None",
        "data/test_shards.py",
    ),
    Defect(
        "sums of a sample are not scaled",
        "site/answer.py",
        "total.scaled(1 / question.share)",
        "total",
        "messages/test_sample.py",
    ),
    Defect(
        "places of sites count those that are asked",
        "runs/run.py",
        "tuple(self._roster[site] for site in asked)",
        "tuple(range(len(asked)))",
        "messages/test_per_site.py",
    ),
    Defect(
        "another order of adding on Dask",
        "engines/blocks.py",
        "tree_sum(values, lo, hi, add)",
        "sum(list(values.values())[1:], next(iter(values.values())))",
        "contracts/test_engines.py::test_bits_are_those_of_the_reference",
    ),
    # ------------------------------------------------------------------ federations, estimators, data
    Defect(
        "the weight column is a covariate",
        "federation/data_source.py",
        "{*responses, weight, groups,",
        "{*responses, groups,",
        "federation/test_federation.py",
    ),
    Defect(
        "the study of a journal without the method",
        "federation/federation.py",
        "repr((method, replace(",
        "repr((replace(",
        "federation/test_shared.py",
    ),
    Defect(
        "rows of the tidy table in another order",
        "fitted/protocols.py",
        "for k in range(K)\n        for response in outputs\n",
        "for response in outputs\n        for k in range(K)\n",
        "estimators/test_frames.py",
    ),
    Defect(
        "the gate of a formula reads the terms of the experts",
        "columns/derived.py",
        "if frozenset(term) in own for name",
        "if own for name",
        "estimators/test_formula.py",
    ),
    Defect(
        "a formula names what is no column",
        "columns/formula.py",
        "if value not in self.columns:",
        "if False:",
        "columns/test_formula.py",
    ),
    Defect(
        "an unknown level takes the reference for the average",
        "estimators/validation.py",
        'estimator.coordinates_ if chosen == "average" else ()',
        "()",
        "estimators/test_categories.py",
    ),
    Defect(
        "dates are read as numbers",
        "columns/column_kinds.py",
        'nw.Date: "dates"',
        'nw.Date: "number"',
        "test_mistakes.py",
    ),
    Defect(
        "the files of a Delta table are taken by a pattern",
        "data/stores.py",
        "if (folder / DELTA_LOG).is_dir()",
        "if False",
        "test_mistakes.py",
    ),
    Defect(
        "polars gives pandas",
        "columns/frames.py",
        'import_module(backend or "pandas")',
        'import_module("pandas")',
        "estimators/test_frames.py",
    ),
    Defect(
        "the sha256 of a data set is not verified",
        "../../benchmarks/lib/datasets.py",
        "digest != file.sha256",
        "not digest",
        "benchmarks_lib/test_datasets.py",
    ),
    # ------------------------------------------------------------------ seams: registries, policies, engines, layers
    Defect(
        "a family that files lack",
        "files/documents.py",
        'TaggedUnion("family", FAMILIES, ',
        'TaggedUnion("family", {name: kind for name, kind in FAMILIES.items() if name != "binomial"}, ',
        "test_every_family.py",
    ),
    Defect(
        "a profile for sites allows a contract",
        "kit/policy/policy.py",
        '"noise", "limits"], "max_epsilon": 3.0',
        '"noise", "limits", "coordinator"], "max_epsilon": 3.0',
        "kit/test_ways.py",
    ),
    Defect(
        "a missing tie: a shared covariance has the score of the first expert",
        "model/families/gaussian.py",
        "np.tile(eye, (self.K, 1)) if",
        "np.eye(self.K * self.shapes, self.shapes) if",
        "model/test_information.py",
    ),
    Defect(
        "a dropped sum in the sandwich: the last block of rows for all",
        "model/expectation.py",
        "meat += (S * mass) @ S.T",
        "meat = (S * mass) @ S.T",
        "model/test_expectation.py",
    ),
    Defect(
        "what a run opened is not closed",
        "federation/federation.py",
        "            over.close()",
        "            pass",
        "federation/test_federation.py",
    ),
    Defect(
        "a strided array is not made contiguous",
        "model/rows.py",
        "np.ascontiguousarray(array)",
        "array",
        "contracts/test_engines.py federation/test_federation.py",
    ),
    Defect(
        "a public name is defined twice",
        "fit/criteria.py",
        "def entropy(mixture",
        "def expect(mixture: Mixture) -> Mixture:\n    return mixture\n\n\ndef entropy(mixture",
        "test_names.py",
    ),
    Defect(
        "a name of the reference without an example",
        "methods/federated_em.py",
        "    Examples\n    --------\n    >>> from consilience import Fed",
        "    >>> from consilience import Fed",
        "test_docstrings.py",
    ),
    Defect(
        "an import upwards, hidden in a string",
        "fit/criteria.py",
        "    return -2 * ll + 2 * P\n",
        '    __import__("importlib").import_module("consilience.estimators")\n    return -2 * ll + 2 * P\n',
        "test_names.py",
    ),
    Defect(
        "files of the present version are not read any more",
        "files/documents.py",
        "found > version",
        "found >= version",
        "files/test_saved_model.py",
    ),
    Defect(
        "clusters are not independent rows in the degrees of freedom",
        "fit/inference.py",
        "np.minimum(degrees, clusters - 1) if clusters else degrees",
        "degrees",
        "federation/test_clusters.py",
    ),
    Defect(
        "a site whose model was set aside is used without being judged",
        "methods/one_shot/refinement.py",
        "if site not in doubted or site in (members or ())",
        "if site not in doubted",
        "methods/test_case_mix.py",
    ),
    Defect(
        "the coefficients of noisier sites are taken as exact",
        "methods/site_reports.py",
        "1 + np.linalg.eigvals(J @ covariances).real",
        "1 + 0 * np.linalg.eigvals(J @ covariances).real",
        "methods/test_case_mix.py",
    ),
    # ------------------------------------------------------------------ privacy
    Defect(
        "the centre of a contribution outside the clip",
        "model/contributions.py",
        "        return b * self.shrinkage(b, Q, clip)",
        "        return numbers * self.shrinkage(numbers, Q, clip) - self.centre(Q, clip)[:, None]",
        "model/test_contributions.py",
    ),
    Defect(
        "the length of a contribution not checked in integers",
        "model/contributions.py",
        "np.where(squares <= sensitivity(len(u)) ** 2, k, 0)",
        "k",
        "model/test_contributions.py",
    ),
    Defect(
        "compiled lengths of contributions with a term less",
        "model/kernels/compiled_clipping.py",
        "        if s < r:",
        "        if s < r - 1:",
        "model/kernels/test_compiled_clipping.py",
    ),
    Defect(
        "the centre of a group outside the clip",
        "model/group_contributions.py",
        "            u = omega[0] * (z[:, 0] - centre)",
        "            u = 3 * shrinkage_of(z, clip)[0] * z[:, 0] - centre",
        "model/test_group_contributions.py",
    ),
    Defect(
        "a centre of a group from the drawn sets alone",
        "model/group_contributions.py",
        "centre = np.add.reduce(omega * z, axis=1) / np.add.reduce(omega, axis=0)",
        "centre = np.add.reduce((omega * z)[:, 1:], axis=1) / np.add.reduce(omega[1:], axis=0)",
        "model/test_group_contributions.py",
    ),
    Defect(
        "equal groups with equal draws",
        "model/group_contributions.py",
        "    seen[same] += 1",
        "    seen[same] += 0",
        "model/test_group_contributions.py",
    ),
    Defect(
        "groups that are counted anew in each piece of a file",
        "site/answer.py",
        "question.factor, question.clip, seen)",
        "question.factor, question.clip, Seen())",
        "site/test_private_answers.py",
    ),
    Defect(
        "a group that counts as its rows",
        "model/group_contributions.py",
        "COUNTED * len(k)]",
        "COUNTED * rows.n]",
        "model/test_group_contributions.py site/test_private_answers.py",
    ),
    Defect(
        "noise from a seed",
        "site/answer.py",
        "discrete_gaussian(variance, len(total))",
        'discrete_gaussian(variance, len(total), __import__("random").Random(0).randrange)',
        "site/test_private_answers.py",
    ),
    Defect(
        "a budget charged after the answer",
        "site/account.py",
        "            self._charged[place] = asked\n            self._given[place] = draw(self.rho)",
        "            self._given[place] = draw(self.rho)\n            self._charged[place] = asked",
        "site/test_private_answers.py",
    ),
    Defect(
        "a number of rows without noise",
        "site/answer.py",
        "tuple(map(add, total, noise))",
        "(*map(add, total[:-1], noise), total[-1])",
        "site/test_private_answers.py",
    ),
    Defect(
        "noise of half the budget's deviation",
        "numerics/budget.py",
        "// (2 * rho.numerator)",
        "// (8 * rho.numerator)",
        "numerics/test_budget.py",
    ),
    Defect(
        "the number of rows without its share of the sensitivity",
        "model/contributions.py",
        "isqrt(sensitivity(P) ** 2 + COUNTED**2) + 1",
        "sensitivity(P)",
        "site/test_private_answers.py",
    ),
    Defect(
        "releases compared in pairs only",
        "kit/differencing.py",
        "(1 + 1e-9) / min_rows",
        "2.0",
        "disclosure/test_differencing.py",
    ),
    Defect(
        "rows that a study drops are not counted in the releases together",
        "kit/differencing.py",
        "columns = [used.kept, *(used.whole_in(each) for each in sets)]",
        "columns = [used.kept, *(used.whole_in(each) & used.kept for each in sets)]",
        "disclosure/test_differencing.py",
    ),
    Defect(
        "a release approved for another fit",
        "kit/release.py",
        "last.entry.hash != shown.entry.hash",
        "last.entry.kind != shown.entry.kind",
        "disclosure/test_software.py",
    ),
    Defect(
        "an envelope that the signature does not cover",
        "kit/roster.py",
        'return content if "covers" not in rest else hash_of',
        "return content if rest else hash_of",
        "disclosure/test_software.py",
    ),
    Defect(
        "a charge in the ledger after the noise was drawn",
        "site/account.py",
        "                self.record(place, question)\n",
        "                draw(self.rho), self.record(place, question)\n",
        "kit/test_noise_by_files.py",
    ),
    Defect(
        "a budget of each study by itself",
        "kit/spending.py",
        'for entry in entries if entry.kind == "charge"), Fraction(0))',
        'for entry in entries if entry.kind == "charge" and entry.details.get("study") == what.get("study")), '
        "Fraction(0))",
        "kit/test_spending.py",
    ),
    Defect(
        "a folder that was restored from an older copy goes on",
        "kit/mail_run.py",
        "number > len(entries) or entries[number - 1].hash != hashed",
        "number <= len(entries) and entries[number - 1].hash != hashed",
        "kit/test_spending.py",
    ),
    Defect(
        "a cell that does not fit stops the answer with noise",
        "kit/private_rows.py",
        "    found[:, unfit] = np.nan\n",
        "    found = found[:, ~unfit]; dropped = dropped[~unfit]\n",
        "kit/test_noise_by_files.py",
    ),
    Defect(
        "a file with all its digits",
        "kit/policy/refit.py",
        "return Release(round_fit(fit), verdict",
        "return Release(fit, verdict",
        "disclosure/test_lattice.py",
    ),
    Defect(
        "a fingerprint of private rows that is their sum",
        "site/site.py",
        "self._fingerprints[0] if self.account is None else hidden(self._fingerprints[0], self.key)",
        "self._fingerprints[0]",
        "site/test_private_answers.py",
    ),
    Defect(
        "a cell of a workbook that decides how others are read with noise",
        "data/tables.py",
        "read_workbook(path, table_format.sheet, as_text=as_text)",
        "read_workbook(path, table_format.sheet)",
        "kit/test_noise_by_files.py",
    ),
    Defect(
        "a part of a run that two programs charge",
        "kit/spending.py",
        "if None not in part and part in",
        "if part == () and part in",
        "kit/test_spending.py",
    ),
    Defect(
        "squared residuals centred by the mean over rows",
        "model/squares.py",
        "LARGEST_SQUARE) - 1\n",
        "LARGEST_SQUARE) - 1\n            excess = excess - np.nanmean(np.where(chunk.valid, excess, 0.0))\n",
        "model/test_squares.py",
    ),
    Defect(
        "squared residuals that are not clipped in integers",
        "model/squares.py",
        "parts.append(rounded(u, clip, chunk.valid).T)",
        "parts.append(np.rint(np.clip(np.nan_to_num(u / clip), -4, 4) * 2**20).astype(np.int64).T)",
        "model/test_squares.py",
    ),
    Defect(
        "log densities centred by the mean over rows",
        "model/likelihoods.py",
        "rounded(np.stack([each - mean for each in log_densities])",
        "rounded(np.stack([each - mean - np.nanmean(each) for each in log_densities])",
        "model/test_likelihoods.py",
    ),
    Defect(
        "a comparison that takes the worse mixture",
        "methods/private_start.py",
        "np.argmax(sums.values[:-1])",
        "np.argmin(sums.values[:-1])",
        "methods/test_private_start.py",
    ),
    Defect(
        "the same masks for each question",
        "site/masks.py",
        "{sha256(question).hexdigest()}|{roster}",
        "{roster}",
        "site/test_masks.py",
    ),
    Defect(
        "the same masks among other sites",
        "site/masks.py",
        "for name in sorted(sites)])",
        "for name in sorted(self.keys)])",
        "site/test_masks.py",
    ),
    Defect(
        "noise that needs the shares of all sites",
        "numerics/budget.py",
        "max(sites - colluding, 1)",
        "sites",
        "site/test_masks.py",
    ),
    Defect(
        "masks with a key that the site has not signed",
        "kit/mask_keys.py",
        "    if len(signature) != SIGNATURE_BYTES or not verify_signature(public_key, encode_key(signature), "
        "_signed(name, key)):",
        "    if len(signature) != SIGNATURE_BYTES:",
        "kit/test_masked_by_files.py",
    ),
    Defect(
        "sums asked again with the parts that were spent",
        "methods/private_sums.py",
        "place=sum(self.spent) + i",
        "place=sum(self.spent[-1:]) + i",
        "methods/test_private_sums.py",
    ),
    Defect(
        "the flow of a file is exact",
        "kit/cohort.py",
        "return width * (down",
        "return int(np.sum(rows)) or width * (down",
        "disclosure/test_flow.py kit/test_cohort.py",
    ),
    Defect(
        "rows outside of the cohort are used with noise",
        "kit/private_rows.py",
        "kept = ~(dropped | outside)",
        "kept = ~dropped",
        "kit/test_cohort.py",
    ),
    Defect(
        "noise that standard errors of files do not count",
        "fit/noisy_totals.py",
        "np.repeat([each.noise for each in totals], P)",
        "np.repeat([1e-9 for each in totals], P)",
        "fit/test_noisy_totals.py",
    ),
    Defect(
        "a second file with noise is drawn instead of the stored one",
        "kit/site_noise.py",
        "if (before := _kept(folder, study)) is not None:",
        "if (before := None) is not None:",
        "kit/test_noisy_file.py",
    ),
    Defect(
        "persons have the noise of a row",
        "site/account.py",
        "return self.rows_each * total_sensitivity(P)",
        "return total_sensitivity(P)",
        "site/test_persons.py",
    ),
    Defect(
        "one row more of a person counts than the noise is for",
        "model/rows.py",
        "kept[self.order] = place < most",
        "kept[self.order] = place <= most",
        "site/test_persons.py",
    ),
    Defect(
        "the report names the other expert than the summary has under a number",
        "report/kinds.py",
        "names.get(int(found[1]) - 1, found[0])",
        "names.get(int(found[1]), found[0])",
        "report/test_numbers.py",
    ),
    Defect(
        "evidence of another model makes a report",
        "kit/stored_evidence.py",
        "if found.model != bytes_hash(read_capped(path, MOST_BYTES)):",
        "if not found.model:",
        "kit/test_stored_evidence.py",
    ),
    Defect(
        "small groups counted on the local page",
        "kit/study_notes.py",
        "rows=None if 0 < n < fewest else int(n)",
        "rows=int(n)",
        "cli/test_site_page.py",
    ),
    Defect(
        "texts of others unescaped on a page",
        "report/page.py",
        'return escape(said).replace(" %", "\\u00a0%")',
        'return said.replace(" %", "\\u00a0%")',
        "cli/test_site_page.py",
    ),
    Defect(
        "a letter on columns has exact counts",
        "kit/table_letter.py",
        "noisy = [n + noise for n, noise in",
        "noisy = [n + 0 * noise for n, noise in",
        "cli/test_letters.py",
    ),
    Defect(
        "a letter on columns is not charged",
        "kit/table_letter.py",
        "    charge(folder, rules, RHO, {**what,",
        "    dict({**what,",
        "kit/test_table_letter.py",
    ),
    Defect(
        "all rows of a person count in a letter",
        "kit/table_letter.py",
        "PersonUnit(column=persons) if persons else None",
        "None",
        "kit/test_table_letter.py",
    ),
    Defect(
        "the noise of pairs is for one pair",
        "kit/table_letter.py",
        "_variance(pairs, part) if pairs else 0",
        "_variance(1, part) if pairs else 0",
        "kit/test_table_letter.py",
    ),
    Defect(
        "a notice that nobody signed retracts a release",
        "kit/notices.py",
        "        notice.check_signed(policy.corrections.coordinator)\n",
        "        str(notice)\n",
        "disclosure/test_corrections.py",
    ),
    Defect(
        "a site that withdrew releases",
        "kit/release.py",
        'if entry.kind == "withdrawal" and entry.details["study"] == study:',
        'if entry.kind == "withdrawal" and entry.details["study"] != study:',
        "cli/test_corrections.py",
    ),
    Defect(
        "the file of a site that withdrew is combined",
        "cli/notice_commands.py",
        "if file.site not in gone]",
        "if file.site]",
        "cli/test_corrections.py",
    ),
    Defect(
        "rows of a sub-group are compared with those of the same study alone",
        "kit/release.py",
        "decide(study, used, earlier_of(folder, replaces), min_rows",
        "decide(study, used, [each for each in earlier_of(folder, replaces) if each.study == study], min_rows",
        "cli/test_waves.py",
    ),
    Defect(
        "a table of another wave answers a run",
        "kit/mail_run.py",
        "    if wave and wave != run.wave:\n",
        "    if wave and not run.wave:\n",
        "cli/test_run_commands.py",
    ),
    Defect(
        "the crowd of a withdrawal is not left out",
        "kit/site_fit.py",
        "        out |= used.whole_in(crowd)\n",
        "        out |= False\n",
        "disclosure/test_corrections.py",
    ),
    Defect(
        "a crowd that was left out comes back",
        "kit/release.py",
        "return [read_tags(folder, each) for each in named]",
        "return []",
        "disclosure/test_corrections.py",
    ),
    Defect(
        "a method does not state one of its questions",
        "methods/one_shot/one_shot.py",
        '                QuestionKind(LogLikelihood, "second, for the models of at most twenty sites", 1),\n',
        "",
        "methods/test_question_kinds.py",
    ),
    Defect(
        "the annex leaves out a kind of question",
        "cli/annex.py",
        "    rows = tuple((KINDS[each.question.__name__], str(each)) for each in kinds_asked(study))\n",
        "    rows = tuple((KINDS[each.question.__name__], str(each)) for each in kinds_asked(study)[1:])\n",
        "cli/test_annex.py",
    ),
    Defect(
        "the annex has the measured attack of another study",
        "kit/release.py",
        'if entry.kind == "fit" and study in (None, entry.details.get("study"))]',
        'if entry.kind == "fit"]',
        "cli/test_annex.py",
    ),
    Defect(
        "a question of the coordinator is answered whoever has changed it",
        "kit/mail_run.py",
        'if not verify_signature(run.signer, letter.envelope.get("signature"), letter.signed_hash):',
        "if not letter.hash:",
        "kit/test_signed_runs.py",
    ),
    Defect(
        "a run whose keys were stripped is answered",
        "kit/mail_run.py",
        "    if not run.signer:\n        if rules.allow_unsigned and not rules.signed_by:\n            return\n",
        "    if not run.signer:\n        if not rules.signed_by:\n            return\n",
        "kit/test_signed_runs.py",
    ),
    Defect(
        "a site that names its coordinator answers another one",
        "kit/mail_run.py",
        "if rules.signed_by and run.signer != rules.signed_by:",
        "if False:",
        "kit/test_signed_runs.py",
    ),
    Defect(
        "the signature of a question does not cover until when it is open",
        "kit/letters.py",
        "        return signed_hash(self.hash, self.envelope)\n",
        "        return self.hash\n",
        "kit/test_signed_runs.py",
    ),
    Defect(
        "whoever fitted may approve",
        "kit/approvals.py",
        "    if account == prepared_by:\n",
        "    if False:\n",
        "kit/test_approvals.py",
    ),
    Defect(
        "a release does not count the approvals",
        "kit/release.py",
        "    accounts = approvals.check_approved(folder, rules, fit_subject(folder, last))\n",
        "    accounts = list[str]()\n",
        "kit/test_approvals.py",
    ),
    Defect(
        "an answer in a round leaves without its approvals",
        "kit/mail_run.py",
        "accounts = approvals.check_approved(folder, rules, approved or draft.subject)",
        "accounts = list[str]()",
        "kit/test_approvals.py",
    ),
    Defect(
        "the answer of another file is shown",
        "cli/answer_view.py",
        'found = [entry for entry in found if entry.details.get("file") == named]',
        'found = [entry for entry in found if "file" in entry.details and named]',
        "cli/test_show_answer.py",
    ),
    Defect(
        "the preview has the size of the content alone",
        "cli/preview.py",
        'size = f"of about {len(file.to_text()):,} bytes" if sent is None else file_words(sent)',
        'size = f"of {len(file.to_text()):,} bytes"',
        "cli/test_one_hash.py",
    ),
    Defect(
        "a file is sealed anew when it is released",
        "kit/release.py",
        "if at is None else at.time,",
        'if at is None else f"{at.time[:17]}99Z" if last.number == len(folder.entries) else at.time,',
        "cli/test_one_hash.py",
    ),
    Defect(
        "the report counts the messages and not the files",
        "cli/reporting.py",
        "    if sizes and subject.evidence is not None:\n",
        "    if False:\n",
        "cli/test_one_hash.py",
    ),
    Defect(
        "the annex does not list a part of the file",
        "cli/preview.py",
        '    "model.exposure": "the mean exposure of the rows",\n',
        "",
        "cli/test_one_hash.py",
    ),
    Defect(
        "an account is what the environment says",
        "kit/approvals.py",
        "return pwd.getpwuid(os.geteuid()).pw_name",
        'return os.environ.get("LOGNAME", "nobody")',
        "kit/test_approvals.py",
    ),
    Defect(
        "a sealed answer opens at another place",
        "kit/sealed_answers.py",
        "return canonical_bytes(self.head)",
        'return canonical_bytes({"run": self.run})',
        "kit/test_sealed_answers.py",
    ),
    Defect(
        "an answer that somebody else wrote counts as the site's own",
        "kit/mail_run.py",
        "== wanted and each.to_text().encode() == file",
        "== wanted",
        "kit/test_sealed_answers.py",
    ),
    # ------------------------------------------------------------------ couriers
    Defect(
        "half of a server's answer is a letter",
        "couriers/letter_stores.py",
        "elif stated is not None and size < stated:",
        "elif False:",
        "couriers/test_letter_stores.py",
    ),
    Defect(
        "a store of letters lists any name",
        "couriers/letter_stores.py",
        " if PLAIN.fullmatch(name)}",
        "}",
        "couriers/test_letter_stores.py",
    ),
    Defect(
        "a letter that was deleted in the store is not sent again",
        "couriers/post.py",
        "if name not in listed or",
        "if name in listed and",
        "couriers/test_post.py",
    ),
    Defect(
        "a redirect counts as an answer",
        "couriers/letter_stores.py",
        "< HTTPStatus.MULTIPLE_CHOICES:",
        "< HTTPStatus.BAD_REQUEST:",
        "couriers/test_letter_stores.py",
    ),
    Defect(
        "an answer in the store replaces one that was taken",
        "couriers/post.py",
        "        if not goal.exists():\n",
        "        if True:\n",
        "couriers/test_post.py",
    ),
    Defect(
        "an answer in the folder of another site is taken",
        "couriers/post.py",
        "    if match[2] != site:\n",
        "    if False:\n",
        "couriers/test_post.py",
    ),
    Defect(
        "a question to one site goes to all",
        "couriers/post.py",
        'own[match[2] or ""] = max(own.get(match[2] or "",',
        'own[""] = max(own.get("",',
        "couriers/test_post.py",
    ),
    Defect(
        "an answer that does not open counts as one for those who watch",
        "kit/mail_watch.py",
        "        if reason := _fault(sent, run, identity):\n",
        '        if reason := "":\n',
        "cli/test_post_commands.py",
    ),
    Defect(
        "an earlier certificate of a site stays good",
        "kit/enrolment.py",
        '"SUCCESS|CN={name}|{serial}" {name};',
        '"~^SUCCESS.CN={name}[|]" {name};',
        "couriers/test_intruders.py",
    ),
    Defect(
        "a site writes into the folder of another",
        "kit/enrolment.py",
        "<all>[a-z0-9-]+)\\\\|\\\\k<all>\\\\|\\\\k<all>$",
        "<all>[a-z0-9-]+)",
        "couriers/test_intruders.py",
    ),
    Defect(
        "a mandate that was changed after it was signed counts",
        "kit/mandate.py",
        'if not approved_in(folder.entries, {"mandate": mandate.identity}):',
        'if not [each for each in folder.entries if each.kind == "approval"]:',
        "kit/test_serving.py",
    ),
    Defect(
        "a mandate answers kinds of questions that it does not list",
        "kit/mandate.py",
        "kinds_in(decode_question(letter.question)) - set(mandate.questions)",
        "kinds_in(decode_question(letter.question)) - kinds_in(decode_question(letter.question))",
        "kit/test_serving.py",
    ),
    Defect(
        "the rounds of a mandate begin anew with each run",
        "kit/mandate.py",
        "if answered_in(folder, mandate.study) >= mandate.rounds:",
        "if letter.number > mandate.rounds:",
        "kit/test_serving.py",
    ),
    Defect(
        "a restarted program answers anew instead of sending what was stored",
        "kit/serving.py",
        "        sent = None if file is None else file.decode()\n",
        "        sent = None\n",
        "kit/test_serving.py",
    ),
    Defect(
        "a folder restored from just before its last answer goes on",
        "kit/mail_run.py",
        "        if letter.answered is not None:\n",
        "        if False:\n",
        "kit/test_spending.py",
    ),
    Defect(
        "a region names nobody whom it serves",
        "kit/relay.py",
        "parent=serves, wave",
        "parent=None, wave",
        "kit/test_relay.py",
    ),
    Defect(
        "a region serves whoever signs a run",
        "kit/relay.py",
        "        check_signed(RunRules(signed_by=self.coordinator, allow_unsigned=False), run, letter)\n",
        "",
        "kit/test_relay.py",
    ),
    Defect(
        "days of an effect are those of another step than its per cent",
        "report/kind_effects.py",
        "after[step.place] += step.size",
        "after[step.place] += 1.0",
        "report/test_numbers.py::test_effects_in_days_are_those_of_the_model",
    ),
    Defect(
        "a file that left is written again with the signature of a key that was lost",
        "kit/release.py",
        "if key is None or verify_signature(key,",
        "if key is not None or verify_signature(key,",
        "cli/test_site_commands.py::test_after_a_lost_key_the_content_that_left_is_signed_with_the_new_one",
    ),
    Defect(
        "a region adds the answers of sites whose rows have changed",
        "kit/relay.py",
        'return bool(parse_json(read_text(path, "fingerprints"), path.name) == now)',
        "return True",
        "kit/test_relay.py",
    ),
    Defect(
        "odds of a centred gate as if against the overall mean",
        "fitted/tidy.py",
        "odds = K / (K - 1) if reference is None else 1.0",
        "odds = 1.0",
        "fitted/test_tidy.py",
    ),
    Defect(
        "a site that waits reads its ledger at each look",
        "kit/serving.py",
        "        if self._sent[0] == letter.hash and time.monotonic()",
        "        if self.folder.entries and self._sent[0] == letter.hash and time.monotonic()",
        "kit/test_serving.py",
    ),
    Defect(
        "an answer that was overwritten in the store is not delivered again",
        "kit/serving.py",
        "time.monotonic() - self._sent[1] < AGAIN:",
        "time.monotonic() - self._sent[1] < 1e9:",
        "kit/test_serving.py",
    ),
    Defect(
        "an average that ignores that the gate is estimated",
        "fit/mean_inference.py",
        '_sums("gn,kn,kmn,pn->gmkp", w, pi, each - mean, read)',
        '_sums("gn,kn,kmn,pn->gmkp", w, pi, 0 * each, read)',
        "fit/test_mean_inference.py",
    ),
    Defect(
        "an average shown although a part of it is withheld",
        "fit/mean_inference.py",
        "LARGEST_ROUNDING * variance) & ~silent",
        "LARGEST_ROUNDING * variance)",
        "fit/test_mean_inference.py",
    ),
    Defect(
        "the status of a site whose program was killed is no alarm",
        "cli/live_commands.py",
        "(silent > stale or not is_served(folder))",
        "(silent > stale)",
        "cli/test_live_commands.py",
    ),
    Defect(
        "a name in the HTML of a summary as it is",
        "fitted/typeset.py",
        "{escape(text)}</{tag}>",
        "{text}</{tag}>",
        "fitted/test_typeset.py",
    ),
    Defect(
        "a test that counts mirrored coefficients of a gate twice",
        "estimators/covariate_tests.py",
        'index.gate[:-1][:, places["gate"]]',
        'index.gate[:][:, places["gate"]]',
        "estimators/test_covariate_tests.py",
    ),
    Defect(
        "names of columns in the picture of a notebook as they are",
        "report/notebook.py",
        'fill="currentColor">{escape(said)}</text>',
        'fill="currentColor">{said}</text>',
        "report/test_notebook.py",
    ),
    Defect(
        "a bar in a notebook that cannot show it",
        "display.py",
        '(console.is_jupyter and find_spec("ipywidgets") is not None)',
        "console.is_jupyter",
        "test_display.py",
    ),
    Defect(
        "scikit-learn's box in place of a fitted model",
        "estimators/estimator.py",
        'return bundle | {"text/html": self._repr_html_()} if "text/html" in bundle else bundle',
        "return bundle",
        "report/test_notebook.py",
    ),
    # ------------------------------------------------------------------ formulas in studies
    Defect(
        "products of a formula without the rules of their columns",
        "columns/derived.py",
        "return read(factor, self._column(factor.label))",
        "return read(factor, Column(factor.label, self._column(factor.label).levels))",
        "kit/test_study_formula.py",
    ),
    Defect(
        "a precision rounded with columns that experts do not read",
        "kit/policy/rounding.py",
        "read = np.diagonal(known) > 0",
        "read = np.diagonal(known) >= 0",
        "kit/test_study_formula.py",
    ),
    Defect(
        "typical rows with products at their means",
        "report/typical.py",
        "values = computed[column.name][:, None] if column.name in computed else read(column)",
        "values = read(column)",
        "kit/test_study_formula.py",
    ),
    Defect(
        "a study whose response has no name",
        "kit/study_model.py",
        "set_response(found, (study.response_term,))",
        "set_response(found, ())",
        "cli/test_demo.py::test_a_study_names_the_response_with_its_transform",
    ),
    Defect(
        "a docstring that promises more than a test holds",
        "site/answer.py",
        "and no traceback leaves the site",
        "and nothing leaves the site",
        "test_claims.py",
    ),
    Defect(
        "open markers of doubtful fits below their curve",
        "plot/estimates.py",
        'mfc="white",\n                zorder=3)',
        'mfc="white",\n                zorder=2)',
        "plot/test_estimates.py",
    ),
    Defect(
        "others at their overall means in a picture of correlated covariates",
        "plot/along.py",
        "    if not partial:\n        centred",
        "    if False:\n        centred",
        "plot/test_drawing.py",
    ),
    Defect(
        "rates of bins without the sizes of rows",
        "plot/curves.py",
        "np.bincount(codes, own * sizes)",
        "np.bincount(codes, own)",
        "plot/test_curves.py",
    ),
    Defect(
        "a key in an address of Azure",
        "data/stores.py",
        'if owner if open_scheme is not _azure else ":" in owner:',
        "if owner and open_scheme is not _azure:",
        "data/test_google_azure.py",
    ),
    Defect(
        "an M-step that forgets what experts share",
        "model/families/base.py",
        "direction = T @ solve_symmetric(T.T @ H @ T, (T.T @ uphill)[:, None])[0][:, 0]",
        "direction = solve_symmetric(H, uphill[:, None])[0][:, 0]",
        "fit/test_shared.py::test_no_step_lowers_the_likelihood_and_a_start_is_made_equal",
    ),
    Defect(
        "shared coefficients at shapes that are bounded later",
        "model/families/base.py",
        "shapes_at(moments, penalty)).bounded(penalty, moments.plain[: self.K])",
        "shapes_at(moments, penalty))",
        "fit/test_shared.py::test_a_bound_of_the_variances_does_not_stop_the_climb",
    ),
    Defect(
        "a shared coefficient that is counted for each expert",
        "model/information.py",
        "(mixture.K - 1) * mixture.experts.channels * len(penalty.shared)",
        "0 * len(penalty.shared)",
        "estimators/test_shared.py::test_a_category_is_shared_in_all_its_levels",
    ),
    Defect(
        "a test of a shared coefficient with the degrees of all experts",
        "estimators/covariate_tests.py",
        "*of_experts[0][:, [j for j",
        "*of_experts[:, :, [j for j",
        "estimators/test_shared.py::test_wald_counts_a_shared_coefficient_once",
    ),
    Defect(
        "a command that asks for the terms of a formula",
        "cli/reporting.py",
        "names = [column.name for column in source_columns(model)]",
        "names = list(model.columns_.names)",
        "kit/test_study_formula.py::test_the_command_predict_reads_the_columns_of_the_formula",
    ),
)


def copy_tree(place: Path) -> None:
    """Copy the files of the repository that git knows, or would take, as they are in the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)


def run_tests(place: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy on the copy, up to the first failure."""
    environment = {
        **os.environ,
        "CI": "true",  # the same examples every time
        "PYTHONPATH": str(place / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # a defect may come and go within the second that bytecode is dated by
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *LANE, *dict.fromkeys(tests)]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def plant(defect: Defect, place: Path) -> bool:
    """Whether the tests of a defect fail with it; the copy is as before afterwards."""
    path = place / PACKAGE / defect.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(defect.old, defect.new), encoding="utf-8")
    try:
        done = run_tests(place, defect.selected)
    finally:
        path.write_text(text, encoding="utf-8")
    if done.returncode not in (0, 1, 2):  # passed, failed, not even imported
        raise SystemExit(f"{defect.name}: pytest did not run\n{done.stdout}{done.stderr}")
    return done.returncode != 0


def main(numbers: list[str]) -> int:
    """Plant all defects, or those at these places of the table, counted from 1."""
    chosen = {place: each for place, each in enumerate(DEFECTS, 1) if not numbers or str(place) in numbers}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copy_tree(place)
        clean = run_tests(place, (test for defect in chosen.values() for test in defect.selected))
        if clean.returncode != 0:
            raise SystemExit(f"the tests fail without a defect\n{clean.stdout}{clean.stderr}")
        missed = 0
        for number, defect in chosen.items():
            caught = plant(defect, place)
            missed += not caught
            sys.stdout.write(f"{number:2d} {'caught    ' if caught else 'NOT CAUGHT'} {defect.name}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} caught\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
