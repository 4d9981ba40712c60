from latentgamma._progress import ProgressBar as ProgressBar
from latentgamma.learning.class_rules import ClassRules as ClassRules
from latentgamma.learning.class_rules import RuleStatistics as RuleStatistics
from latentgamma.learning.extract import Alignment as Alignment
from latentgamma.learning.extract import alignment as alignment
from latentgamma.learning.options import HistoryEntry as HistoryEntry
from latentgamma.learning.result import Evidence as Evidence
from latentgamma.learning.result import FitResult as FitResult
