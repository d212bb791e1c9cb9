"""One model from many: what it costs to let one expert stand for another, and how far mixtures are from each other."""

from consilience.aggregate.cost import moment_costs, support_costs
from consilience.aggregate.transport import exact_cost, exact_transport, relaxed_transport

__all__ = ["exact_cost", "exact_transport", "moment_costs", "relaxed_transport", "support_costs"]
