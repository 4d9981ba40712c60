from latentgamma.datalog.grounding import GroundingWarning as GroundingWarning
from latentgamma.datalog.grounding import ground as ground
from latentgamma.datalog.grounding import inputs as inputs
from latentgamma.datalog.grounding import outputs as outputs
