"""Three policies: who gets a loan, a clinical guideline, and the tool calls of an agent."""

from pathlib import Path

import latentgamma as lg

here = Path(__file__).parent

# Loans: numbers, missing values, and a table of applications.
loans = lg.Decider(lg.load(here / "loan.lp"), ["approve", "review"])
for number, decision in enumerate(loans.many(here / "loan_requests.csv"), 1):
    print(f"application {number}: {decision.answers}, by {', '.join(decision.rules) or 'no rule'}")
    for violation in decision.violated:
        print(f"  {violation}")
rejected = loans({"age": 52, "income": 28500, "debt_ratio": 0.22, "employment": "permanent"})
print(rejected)
assert [change.name for change in rejected.missing["approve"]] == ["income"]

# A guideline in which some of several criteria must be met.
guideline = lg.Decider(lg.load(here / "guideline.lp"), ["urgent", "antibiotics"])
patient = {"temperature": 38.6, "heart_rate": 112, "systolic": 92, "infection": True}
print()
print(guideline(patient))
assert guideline(patient).answers == {"urgent": True, "antibiotics": True}

# Guardrails: what an agent wants to do, before it does it.
guard = lg.Decider(lg.load(here / "tool_calls.lp"), ["allow", "ask", "refuse"])
calls = [
    {"tool": "search", "night": True},
    {"tool": "send_email", "data": "customer"},
    {"tool": "send_email", "data": "customer", "consent": True, "first_use": True},
    {"tool": "shell"},
    {"tool": "pay", "amount": 900},
]
print()
for call in calls:
    decision = guard(call)
    verdict = next(name for name, answer in decision.answers.items() if answer)
    print(f"{call}: {verdict} ({', '.join(decision.rules)})")
print(guard(calls[1]).to_json(proof=True, indent=1))
