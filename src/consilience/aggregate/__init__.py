"""One model from many: what it costs to let one expert stand for another, and few experts that stand for many."""

from consilience.aggregate.align import Alignment, consistent_labels, geometric_median
from consilience.aggregate.combination import Combination
from consilience.aggregate.combine import combine, combined_orders
from consilience.aggregate.components import GaussianComponents, SupportComponents, SupportPart
from consilience.aggregate.cost import moment_costs, support_costs
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
from consilience.aggregate.site_model import SiteModel
from consilience.aggregate.support import CovariateSummary, covariate_summary
from consilience.aggregate.transport import exact_cost, exact_transport, relaxed_transport

__all__ = [
    "Alignment",
    "Combination",
    "CovariateSummary",
    "GaussianComponents",
    "Heterogeneity",
    "ParameterErrors",
    "Reduction",
    "SiteEvidence",
    "SiteModel",
    "SupportComponents",
    "SupportPart",
    "adjusted_rand_index",
    "cluster_labels",
    "combine",
    "combined_orders",
    "consistent_labels",
    "covariate_summary",
    "deficit_ratio",
    "exact_cost",
    "exact_transport",
    "geometric_median",
    "heterogeneity",
    "mean_log_likelihood",
    "moment_costs",
    "parameter_errors",
    "reduced",
    "relative_prediction_error",
    "relaxed_transport",
    "spread_start",
    "support_costs",
]
