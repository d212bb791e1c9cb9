"""Aggregation of models from many sites: transport costs, mixture reduction, robust centres."""

from consilience.aggregate.combine.combiner import Combination, combine_models, combine_orders
from consilience.aggregate.combine.components import MomentComponents, SupportComponents, SupportPart, support_costs
from consilience.aggregate.combine.evidence import SiteEvidence
from consilience.aggregate.combine.heterogeneity import Heterogeneity, SiteCoefficients, heterogeneity
from consilience.aggregate.combine.reduce import Reduction, reduce_components, spread_start
from consilience.aggregate.combine.site_model import CovariateSummary, SiteModel, covariate_summary
from consilience.aggregate.disagreement import Camps, camps
from consilience.aggregate.robust.centre import (
    cap_weights,
    coordinate_median,
    draw_towards,
    geometric_median,
    huber_centre,
    trimmed_mean,
    usable_sites,
)
from consilience.aggregate.robust.estimate import Alignment, Estimate, consistent_labels, in_common_labels
from consilience.aggregate.robust.sharing import Sharing, share_estimates
from consilience.aggregate.robust.shrinkage import Shrinkage, division, shrink

__all__ = [
    "Alignment",
    "Camps",
    "Combination",
    "CovariateSummary",
    "Estimate",
    "Heterogeneity",
    "MomentComponents",
    "Reduction",
    "Sharing",
    "Shrinkage",
    "SiteCoefficients",
    "SiteEvidence",
    "SiteModel",
    "SupportComponents",
    "SupportPart",
    "camps",
    "cap_weights",
    "combine_models",
    "combine_orders",
    "consistent_labels",
    "coordinate_median",
    "covariate_summary",
    "division",
    "draw_towards",
    "geometric_median",
    "heterogeneity",
    "huber_centre",
    "in_common_labels",
    "reduce_components",
    "share_estimates",
    "shrink",
    "spread_start",
    "support_costs",
    "trimmed_mean",
    "usable_sites",
]
