"""Methods that fit one model per site, shrunk towards a robust centre."""

from consilience.methods.per_site.shared_centre import SharedCentre
from consilience.methods.per_site.shared_fit import SharedFit, SiteShare

__all__ = ["SharedCentre", "SharedFit", "SiteShare"]
