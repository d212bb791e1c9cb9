"""One mixture from the models of many sites: transport cost, reduction, gates, and the evidence for them."""
