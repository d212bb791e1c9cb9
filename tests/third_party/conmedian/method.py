"""Medians of site fits: one exchange for the local fits, one pass for the likelihood of their median."""

from dataclasses import dataclass

import numpy as np

from consilience import Method
from consilience.fit import MethodStop
from consilience.messages import Summarise, Total
from consilience.methods import ask_total, local_fits


@dataclass(frozen=True)
class MedianOfSites(Method):
    """Coordinate-wise median of the fits of the sites, in common coordinates and labels."""

    def dialogue(self, task):
        own = yield from local_fits(task.fit_site(describe=False))
        summary = yield Total(Summarise(task.d, task.q))
        problem = task.problem(task.only("MedianOfSites"), summary)
        found = [mixture.in_coordinates_of(problem.blank) for mixture in own.mixtures.values()]
        median = found[0].with_vector(np.median([mixture.to_vector() for mixture in found], axis=0))
        stop = MethodStop("medians of the fits of the sites, without iterations")
        end = yield from ask_total(problem.evaluate(median, stop))
        return [problem.fit(end, without="medians of the fits of the sites have no standard errors")]
