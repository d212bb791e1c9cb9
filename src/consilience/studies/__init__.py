"""Studies: the model that a study file describes, a site's own fit, and the combination of the files of sites."""

from consilience.studies.combination import combined, simulated
from consilience.studies.local import examined_for, site_file
from consilience.studies.models import estimators_of, task_of

__all__ = ["combined", "estimators_of", "examined_for", "simulated", "site_file", "task_of"]
