"""One model from many: what it costs to let one expert stand for another, and few experts that stand for many."""

from consilience.aggregate.components import GaussianComponents, SupportComponents
from consilience.aggregate.cost import moment_costs, support_costs
from consilience.aggregate.reduce import Reduction, reduced, spread_start
from consilience.aggregate.transport import exact_cost, exact_transport, relaxed_transport

__all__ = [
    "GaussianComponents",
    "Reduction",
    "SupportComponents",
    "exact_cost",
    "exact_transport",
    "moment_costs",
    "reduced",
    "relaxed_transport",
    "spread_start",
    "support_costs",
]
