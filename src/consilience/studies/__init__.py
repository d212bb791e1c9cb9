"""Studies: the model that a study file describes, a site's own fit, and the combination of the files of sites."""

from consilience.studies.combination import combined, simulated
from consilience.studies.local import examined_for, site_file
from consilience.studies.models import estimators_of, task_of
from consilience.studies.site_fit import SiteFit, fit_at_site
from consilience.studies.site_run import guarded_at_site

__all__ = [
    "SiteFit",
    "combined",
    "estimators_of",
    "examined_for",
    "fit_at_site",
    "guarded_at_site",
    "simulated",
    "site_file",
    "task_of",
]
