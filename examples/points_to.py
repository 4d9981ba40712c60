"""A points-to analysis: which objects can a variable refer to, and by which statements?"""

import latentgamma as lg

ANALYSIS = """
points(V,O) :- new(V,O).
points(V,O) :- copy(V,W), points(W,O).
points(V,O) :- load(V,W,F), points(W,P), heap(P,F,O).
heap(P,F,O) :- store(V,F,W), points(V,P), points(W,O).
alias(V,W) :- points(V,O), points(W,O), V < W.
unique(V) :- points(V,O), not shared(V).
shared(V) :- points(V,O), points(V,Q), O != Q.
#show points/2. #show alias/2. #show unique/1.
"""
# The statements of a small program; each one is a fact that may be there or not.
STATEMENTS = {
    "new": [("a", "o1"), ("b", "o2"), ("c", "o3")],
    "copy": [("d", "a"), ("e", "d"), ("e", "b")],
    "store": [("a", "next", "b"), ("d", "next", "c")],
    "load": [("f", "e", "next"), ("g", "f", "next")],
}

program = lg.datalog.ground(
    ANALYSIS, open=["new/2", "copy/2", "store/3", "load/3"], facts=STATEMENTS
)
statements = list(lg.datalog.inputs(program))
closed = lg.closure(program, statements)
for atom in lg.datalog.outputs(program):
    if atom in closed:
        print(atom)

print()
print(lg.derivation(program, statements, "points(f,o3)"))
print()
print(lg.why_not(program, statements, "unique(e)"))

# The analysis of the program without each statement in turn, all at once.
rest = [[other for other in statements if other != statement] for statement in statements]
counts = lg.closures(program, rest).sum(axis=1)
for statement, count in zip(statements, counts, strict=True):
    print(f"{len(closed) - count - 1:3} facts depend on {statement}")
