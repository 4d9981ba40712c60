"""The commands `certify` and `run` for a program with negation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import latentgamma as lg
from latentgamma._certificate.strata import ClosedStrata, closed_strata
from latentgamma._cli.checks import UsageError
from latentgamma._cli.console import Screen, progress, working
from latentgamma._cli.formatting import RunValues, show_certificate, show_run
from latentgamma._cli.main import import_torch

if TYPE_CHECKING:
    from latentgamma import Program

#: A run computes the first t steps anew for each t; more than this would take too long.
_MOST_STEPS = 2000


def certify_with_negation(args: argparse.Namespace, program: Program) -> int:
    """Print the certificate; return 0 if it holds up to the horizon, else 1."""
    _refuse(args, "model", "plot")
    try:
        with working("choosing constants"):
            form = _closed_form(args, program, args.horizon)
    except lg.CertificateError as error:
        if not args.json:
            raise
        Screen().json({"holds": False, "message": str(error), "horizon": args.horizon})
        return 1
    with working("certifying"):
        certificate = lg.certify(form, program, depth=args.depth)
    success = certificate.holds and certificate.t_max >= (args.horizon or 0)
    message = certificate.message
    if certificate.holds and not success:
        message += f"; the horizon asked for is step {args.horizon:,}"
    screen = Screen()
    if args.json:
        screen.json(
            {
                **certificate.to_dict(),
                "message": message,
                "strata": len(program.strata),
                "horizon": args.horizon,
                "reaches_horizon": success,
                "constants": [part.constants.to_dict() for part in form.parts],
            }
        )
    else:
        show_certificate(screen, certificate, None, success=success, message=message)
    return 0 if success else 1


def run_with_negation(args: argparse.Namespace, program: Program, facts: list[str]) -> int:
    """Print the values after each number of steps in each stratum; return 0."""
    _refuse(args, "model", "gradient", "plot")
    if args.steps > _MOST_STEPS:
        raise UsageError(f"--steps: a program with negation runs at most {_MOST_STEPS:,} steps")
    import_torch()
    import torch

    with working("building the model"):
        constants = None if args.constants in {None, "certified"} else _constants(args, program)
        model = lg.oracle(
            program,
            constants,
            form=args.form or "auto",
            gate=args.gate or "sigmoid",
            dtype=getattr(torch, args.dtype or "float32"),
        )
    states = []
    with torch.no_grad(), progress(f"running {args.steps:,} steps", args.steps) as advance:
        for steps in range(args.steps + 1):
            states.append(model(model.state(facts), steps))
            advance(1)
    trajectory = lg.Trajectory(torch.stack(states))
    values = RunValues(
        program,
        trajectory.states.double().numpy(),
        trajectory.crossing.numpy(),
        lg.closure(program, facts),
        {},
    )
    screen = Screen()
    if args.json:
        screen.json(values.to_dict())
    else:
        show_run(screen, values)
    return 0


def _closed_form(args: argparse.Namespace, program: Program, horizon: int | None) -> ClosedStrata:
    return closed_strata(
        program,
        _constants(args, program),
        horizon or 10**6,
        dtype=args.dtype or "float32",
        bump=args.gate == "bump",
    )


def _constants(args: argparse.Namespace, program: Program) -> lg.Constants | None:
    if args.constants == "paper":
        return lg.Constants.paper()
    if args.constants == "scaled":
        return lg.Constants.scaled(program)
    return None


def _refuse(args: argparse.Namespace, *names: str) -> None:
    for name in names:
        if getattr(args, name, None) is not None:
            raise UsageError(f"--{name} takes a definite program, but this one has negation")
