"""The state-visitation ratio d^pi / d^D: one file per estimator, one protocol (`estimators`), one call for arrays."""

from sbac.ratio.base import FitConfig as FitConfig
from sbac.ratio.base import RatioBatch as RatioBatch
from sbac.ratio.base import RatioConfig as RatioConfig
from sbac.ratio.base import State as State
from sbac.ratio.base import floored as floored
from sbac.ratio.estimators import DIAGNOSTICS as DIAGNOSTICS
from sbac.ratio.estimators import diagnostics as diagnostics
from sbac.ratio.estimators import init as init
from sbac.ratio.estimators import log_w as log_w
from sbac.ratio.estimators import method as method
from sbac.ratio.estimators import update as update
from sbac.ratio.estimators import weights as weights
from sbac.ratio.visitation import RatioWarning as RatioWarning
from sbac.ratio.visitation import VisitationRatio as VisitationRatio
from sbac.ratio.visitation import visitation_ratio as visitation_ratio
