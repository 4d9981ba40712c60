from latentgamma.requirements.certificate import RequirementsCertificate as RequirementsCertificate
from latentgamma.requirements.layer import Change as Change
from latentgamma.requirements.layer import Changes as Changes
from latentgamma.requirements.layer import RequirementsLayer as RequirementsLayer
from latentgamma.requirements.layer import RequirementsPlan as RequirementsPlan
from latentgamma.requirements.requirements import Report as Report
from latentgamma.requirements.requirements import Requirements as Requirements
from latentgamma.requirements.requirements import Violations as Violations
