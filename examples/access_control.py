"""An access policy with roles and exceptions: answers, proofs, repairs, and the policy as a layer."""

from pathlib import Path

import latentgamma as lg

here = Path(__file__).parent
policy = lg.datalog.ground(here / "access.lp", facts={"member": here / "access_members.csv"})
print(policy)
print("may be given:", ", ".join(lg.datalog.inputs(policy)))

for facts in ([], ["cleared(bea,payroll)"], ["suspended(carl)"]):
    allowed = [atom for atom in lg.datalog.outputs(policy) if atom in lg.closure(policy, facts)]
    print(f"{len(allowed)} permissions with {', '.join(facts) or 'no facts'}")

print()
print(lg.derivation(policy, [], "can(ann,report,read)"))
print()
print(lg.derivations(policy, ["suspended(dan)"]))  # the reason for every permission
print()
print(lg.why_not(policy, [], "can(bea,payroll,read)"))
print()
print(lg.why_not(policy, ["suspended(dan)"], "can(dan,report,read)"))

# Every combination of suspensions and clearances at once.
inputs = list(lg.datalog.inputs(policy))
combinations = [
    [name for i, name in enumerate(inputs) if number >> i & 1] for number in range(2 ** len(inputs))
]
closed = lg.closures(policy, combinations)
payroll = closed[:, policy.index["can(bea,payroll,read)"]]
print(f"\nbea reads the payroll in {payroll.sum()} of {len(combinations)} cases")

model = lg.oracle(policy)
print(lg.certify(model, policy).require())
assert model.closure(["suspended(dan)"]) == lg.closure(policy, ["suspended(dan)"]).atoms
