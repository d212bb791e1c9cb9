"""One model from many: what it costs to let one expert stand for another, and few experts that stand for many."""

from consilience.aggregate.align import Alignment, consistent_labels
from consilience.aggregate.centre import (
    Shrinkage,
    capped,
    coordinate_median,
    drawn_towards,
    geometric_median,
    huber_centre,
    shrunk,
    trimmed_mean,
    usable,
)
from consilience.aggregate.combination import Combination
from consilience.aggregate.combine import combine, combined_orders
from consilience.aggregate.components import GaussianComponents, SupportComponents, SupportPart
from consilience.aggregate.cost import moment_costs, support_costs
from consilience.aggregate.drawing import division
from consilience.aggregate.estimate import Estimate, in_common_labels
from consilience.aggregate.evidence import SiteEvidence
from consilience.aggregate.heterogeneity import Heterogeneity, heterogeneity
from consilience.aggregate.metrics import (
    ParameterErrors,
    adjusted_rand_index,
    cluster_labels,
    deficit_ratio,
    mean_log_likelihood,
    parameter_errors,
    relative_prediction_error,
)
from consilience.aggregate.reduce import Reduction, reduced, spread_start
from consilience.aggregate.sharing import Sharing, shared
from consilience.aggregate.site_model import SiteModel
from consilience.aggregate.support import CovariateSummary, covariate_summary
from consilience.aggregate.transport import exact_cost, exact_transport, relaxed_transport

__all__ = [
    "Alignment",
    "Combination",
    "CovariateSummary",
    "Estimate",
    "GaussianComponents",
    "Heterogeneity",
    "ParameterErrors",
    "Reduction",
    "Sharing",
    "Shrinkage",
    "SiteEvidence",
    "SiteModel",
    "SupportComponents",
    "SupportPart",
    "adjusted_rand_index",
    "capped",
    "cluster_labels",
    "combine",
    "combined_orders",
    "consistent_labels",
    "coordinate_median",
    "covariate_summary",
    "deficit_ratio",
    "division",
    "drawn_towards",
    "exact_cost",
    "exact_transport",
    "geometric_median",
    "heterogeneity",
    "huber_centre",
    "in_common_labels",
    "mean_log_likelihood",
    "moment_costs",
    "parameter_errors",
    "reduced",
    "relative_prediction_error",
    "relaxed_transport",
    "shared",
    "shrunk",
    "spread_start",
    "support_costs",
    "trimmed_mean",
    "usable",
]
