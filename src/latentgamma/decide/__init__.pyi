from latentgamma.decide.decider import SCHEMA as SCHEMA
from latentgamma.decide.decider import Change as Change
from latentgamma.decide.decider import Decision as Decision
from latentgamma.decide.decider import Decisions as Decisions
from latentgamma.decide.decider import Violation as Violation
from latentgamma.decide.service import application as application
