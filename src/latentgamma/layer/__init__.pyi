from latentgamma.engine.probability import LikelyProof as LikelyProof
from latentgamma.layer.plan import Plan as Plan
from latentgamma.layer.shortcuts import Shortcuts as Shortcuts
from latentgamma.layer.shortcuts import concept_mapping as concept_mapping
