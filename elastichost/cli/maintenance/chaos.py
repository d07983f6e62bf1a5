"""`chaos`: runs a job while a seeded schedule kills and stops its processes, and checks every promise."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from elastichost.cli.options import JobArgument, Overrides
from elastichost.cli.output import AsJson, data_console, fact_lines, print_json, progress_console
from elastichost.cli.runs import program, short_path
from elastichost.errors import ConfigError
from elastichost.human_readable import count_words, did_you_mean

if TYPE_CHECKING:
    from elastichost.chaos.driver import ChaosOrder, ChaosReport
    from elastichost.chaos.verdicts import Verdict

__all__ = ["register"]

LEAST_FOR_S = 5.0
# The run must not end before the soak does, must survive many deaths, and must find a hang within seconds. A setting
# that the user gives overrides these.
OWN_SETTINGS = {
    "train.epochs": "1000000",
    "evaluate.every_samples": "0",
    "evaluate.early_stop.patience": "0",
    "resources.restarts": "1000000",
    "checkpoint.every_s": "10",
    "supervision.hang_timeout_s": "3",
}
# The run and its undisturbed twin must not touch the checkpoints of another run.
OWN_PLACES = {"checkpoint.directory": '""', "checkpoint.mirror": '""'}
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}


def register(app: typer.Typer) -> None:
    app.command("chaos")(chaos)


def chaos(
    job: JobArgument,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed of the fault schedule; the same seed gives the same schedule.")
    ] = 0,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Training time: 60s, 10m, 2h.")] = "60s",
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Mean time between faults.")] = "2s",
    kinds: Annotated[
        list[str],
        typer.Option("--fault", metavar="NAME", help="Inject only this fault; repeatable; `list` lists all faults."),
    ] = [],  # noqa: B006 typer copies it
    messages: Annotated[
        str,
        typer.Option("--messages", metavar="RATES", help="Also inject message faults, e.g. drop=0.01,delay=0.05."),
    ] = "",
    twins: Annotated[
        bool,
        typer.Option(
            "--twins/--no-twins",
            help="Also train a small sync version of the job twice, once under faults, and compare the bits.",
        ),
    ] = True,
    hosts: Annotated[
        Path | None,
        typer.Option("--hosts", metavar="FILE", help='Run on the hosts in this file, each with transport = "local".'),
    ] = None,
    overrides: Overrides = [],  # noqa: B006 typer copies it
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="The run directory; default: runs/<name>-chaos-<UTC>-<id>."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a job, kill its processes on purpose, and check every promise."""
    from elastichost.chaos.driver import run_chaos

    if "list" in kinds:
        if as_json:
            print_json({"faults": dict(_fault_list())})
        else:
            data_console().print(fact_lines(_fault_list()))
        return
    order = _order(job, seed, duration, every, kinds, messages, twins, hosts, overrides, run_dir)
    out = progress_console()
    out.print(
        f"chaos  seed {seed}, {order.duration_s:g} s, one fault per {order.every_s:g} s on average; run {order.run_dir}"
    )
    report = run_chaos(order, lambda at_s, text: out.print(f"[{at_s:6.1f}s]  {text}", soft_wrap=True))
    if as_json:
        out.print(_table(report), soft_wrap=True)
        print_json(_facts(report, order))
    else:
        data_console().print(_table(report), soft_wrap=True)
    if report.violations:
        out.print(f"repeat with: {_command()}", style="cyan", soft_wrap=True)
    raise typer.Exit(1 if report.violations else 0)


def _fault_list() -> Iterator[tuple[str, str]]:
    from elastichost.chaos.driver import ALL_FAULTS

    for fault in ALL_FAULTS:
        yield fault.name, fault.meaning


def _order(
    job: Path,
    seed: int,
    duration: str,
    every: str,
    kinds: list[str],
    messages: str,
    twins: bool,
    hosts: Path | None,
    overrides: list[str],
    run_dir: Path | None,
) -> ChaosOrder:
    """Parses and checks the options before the run starts. Raises ConfigError for an invalid one."""
    from elastichost.chaos.driver import ChaosOrder
    from elastichost.chaos.faults.message_faults import parse_rates
    from elastichost.config.job import load_job
    from elastichost.runs.directory import new_run_path

    names = [name for name, _ in _fault_list()]
    for kind in kinds:
        if kind not in names:
            raise ConfigError(f"unknown fault {kind!r}{did_you_mean(kind, names)}", hint=f"faults: {', '.join(names)}")
    duration_s = _seconds("--for", duration)
    if duration_s < LEAST_FOR_S:
        raise ConfigError(f"--for {duration} is too short", hint=f"use at least {LEAST_FOR_S:g}s")
    chosen = {setting.partition("=")[0].strip() for setting in overrides}
    settings = (*(f"{key}={value}" for key, value in OWN_SETTINGS.items() if key not in chosen), *overrides)
    settings = (*settings, *(f"{key}={value}" for key, value in OWN_PLACES.items()))
    spec = load_job(job, list(settings))
    if hosts is not None:
        _check_hosts(hosts, has_messages=bool(messages))
    path = run_dir or new_run_path(Path.cwd(), f"{spec.job.name}-chaos", secrets.token_hex(3))
    return ChaosOrder(
        job=job.resolve(),
        spec=spec,
        settings=settings,
        run_dir=path.resolve(),
        seed=seed,
        duration_s=duration_s,
        every_s=_seconds("--every", every),
        kinds=tuple(kinds),
        messages=parse_rates(messages) if messages else None,
        has_twins=twins,
        machines=hosts.resolve() if hosts is not None else None,
    )


def _check_hosts(path: Path, *, has_messages: bool) -> None:
    """Raises ConfigError for a host on another machine: `chaos` can only signal processes of this machine."""
    from elastichost.config.hosts import load_hosts

    far = [host.shown for host in load_hosts(path).hosts if host.transport != "local"]
    if far:
        raise ConfigError(
            f"{path}: {', '.join(far)}: faults can only hit processes of this machine",
            hint='set transport = "local" for these hosts',
        )
    if has_messages:
        raise ConfigError("--messages and --hosts exclude each other", hint="leave out --messages or --hosts")


def _seconds(option: str, text: str) -> float:
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS_S else (text, "s")
    try:
        seconds = float(number) * UNITS_S[unit]
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e7:
        raise ConfigError(f"{option} {text!r} is not a duration above 0 s and below 1e7 s", hint="write 60s, 10m or 2h")
    return seconds


def _command() -> str:
    words = list(sys.argv[1:])
    if "--run-dir" in words:  # a repeated run needs a new directory
        at = words.index("--run-dir")
        del words[at : at + 2]
    words = [word for word in words if not word.startswith("--run-dir=")]
    return shlex.join([program(), *words])


# --- what is shown ----------------------------------------------------------------------------------------------------


def _table(report: ChaosReport) -> Text:
    text = Text()
    for number, verdict in enumerate(report.verdicts):
        text.append("\n" if number else "").append(_line(verdict))
        for violation in verdict.violations:
            text.append(f"\n     {violation}", style="red")
    if report.failure:
        text.append(f"\nthe run failed: {report.failure}", style="bold red")
    goodput = report.goodput
    if goodput.share is not None and report.struck:
        lost_s = goodput.lost_s_per_fault(sum(report.struck.values()))
        per_fault = f"; a fault costs {lost_s:.2f} s of training" if lost_s is not None else ""
        text.append(
            f"\n{sum(report.struck.values())} faults, {report.kills} kills; goodput {goodput.share:.1%}{per_fault}"
            f"; {count_words(report.trained)} samples trained"
        )
    return text


def _line(verdict: Verdict) -> Text:
    from elastichost.chaos.verdicts import PROMISES

    words, style = {True: ("held", "green"), False: ("BROKEN", "bold red"), None: ("-", "dim")}[verdict.holds]
    line = Text(f"{verdict.promise}  ").append(f"{words:<7}", style=style).append(PROMISES[verdict.promise])
    return line.append(f": {verdict.figures}", style="dim")


def _facts(report: ChaosReport, order: ChaosOrder) -> dict[str, Any]:
    from elastichost.chaos.invariants import percentile

    recovery: dict[str, float | None] = {}
    for kind in (
        "worker",
        "server",
        "reader",
        "pair",
        "supervisor",
        "fork server",
        "machine",
        "hang",
        "pause",
        "scale",
        "source",
    ):
        times_s = report.times_s(kind)
        for percent in (50, 99):
            name = f"{kind.replace(' ', '_')}_p{percent}"
            recovery[name] = round(percentile(times_s, percent), 4) if times_s else None
    faults = sum(report.struck.values())
    goodput = report.goodput
    return {
        "run_dir": short_path(order.run_dir),
        "seed": order.seed,
        "for_s": order.duration_s,
        "kills": report.kills,
        "faults": dict(sorted(report.struck.items())),
        "violations": list(report.violations),
        "invariants": {verdict.promise: verdict.holds for verdict in report.verdicts},
        "notes": {verdict.promise: verdict.figures for verdict in report.verdicts},
        "recovery_s": recovery,
        "goodput": goodput.share if faults else None,
        "goodput_at_one_fault_a_minute": goodput.at_one_fault_in(60.0, faults),
        "lost_s_per_fault": goodput.lost_s_per_fault(faults),
        "samples_per_s": {"undisturbed": goodput.calm_rate, "under_faults": goodput.faulty_rate},
        "samples_trained": report.trained,
        "messages": {f"{kind} {action}": count for (kind, action), count in sorted(report.messages.items())},
    }
