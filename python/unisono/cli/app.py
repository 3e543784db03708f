"""The application: its commands, and how failures end it.

Exit status: 0 when all went well; 1 when something is wrong (a plan, a result, a rank, the
machine); 2 when the command line is. An error is one sentence, never a traceback.
"""

import signal
import sys
import threading
import traceback
from typing import Annotated

import typer

from unisono import _unisono as native
from unisono.cli.deferred import HELP, Commands, Place, group_of, help_alone
from unisono.cli.output import complain, print_raw, replace_what_cannot_be_shown, show_source, warn
from unisono.environment import check_environment
from unisono.errors import Error, MisuseError

# Everything from the command's name on belongs to the command.
_PASSES_ON = {"allow_interspersed_args": False, "ignore_unknown_options": False}
_COMMANDS = {
    "info": Place("info", "info", "Show what this installation, this machine and its GPUs have."),
    "run": Place(
        "run",
        "run",
        "Run a program on several ranks; when one fails, end all and say which.",
        _PASSES_ON,
    ),
    "bench": Place("bench", "bench", "Time collectives and check every result."),
    "netbed": Place("netbed", "app", "Network namespaces as nodes, joined by shaped links."),
    "plan": Place("plan_commands", "app", "List, show, verify, compile, find, run and draw plans."),
    "explain": Place("explain", "explain", "Say which plan a call would take, and why."),
    "place": Place(
        "place", "place", "Say which parallel groups of a model stay in a node, a rack, a zone."
    ),
    "simulate": Place("simulate", "simulate", "Simulate collectives or workloads on a cluster."),
    "plan-training": Place(
        "plan_training",
        "plan_training",
        "Say which layouts of parallelism make a model's training step shortest.",
    ),
    "doctor": Place(
        "doctor", "doctor", "Say which call of a job is stuck, and which ranks are to blame."
    ),
    "ras": Place("ras", "ras", "Show where the ranks of running jobs are, and who waits for whom."),
    "watch": Place(
        "watch_page", "watch", "Show where the ranks of running jobs are, as a page that is live."
    ),
    "profile": Place(
        "profile",
        "profile",
        "Say where the time of calls went, which ranks are slow, and what connections carried.",
    ),
    "metrics": Place(
        "metrics",
        "metrics",
        "Serve metrics of all ranks of this user on this host, at /metrics, for Prometheus.",
    ),
    "tune": Place(
        "tune",
        "tune",
        "Write the plans that the simulator chooses for a cluster into a selection file.",
    ),
    "chaos": Place(
        "chaos",
        "chaos",
        "Run whole jobs in a simulated world where a seed decides what goes wrong.",
    ),
    "calibrate": Place("calibrate", "calibrate", "Fit a cluster's numbers to measurements."),
}

app = Commands(
    name="unisono",
    cls=group_of(_COMMANDS),
    help="Collective communication where every algorithm is a plan.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"unisono {native.__version__}\n")
        raise typer.Exit


@app.callback()
def unisono(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", is_eager=True, callback=_show_version, help="Show the version."
        ),
    ] = False,
) -> None:
    """Collective communication where every algorithm is a plan."""


# They have ranks of their own to end, and wait in Python, which answers at once.
_WITH_RANKS = ("run", "bench", "netbed", "calibrate")
# They serve or look until Ctrl-C, in Python.
_UNTIL_INTERRUPTED = ("metrics", "ras", "watch")


def _answer_interrupts() -> None:
    """Has Ctrl-C end this process soon, also while native code runs and Python cannot answer."""
    if sys.argv[1:2] and sys.argv[1] in (*_WITH_RANKS, *_UNTIL_INTERRUPTED):
        return
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(native.end_when_interrupted(), warn_on_full_buffer=False)


def _warn_of_unknown_variables() -> None:
    """Rank 0 of a job does so for its ranks."""
    if not sys.argv[1:2] or sys.argv[1] not in _WITH_RANKS:
        for text in native.unknown_variables():
            warn(text)


def main() -> None:
    """Runs the command line and exits."""
    replace_what_cannot_be_shown()
    _answer_interrupts()
    try:
        check_environment()
        _warn_of_unknown_variables()
        command = typer.main.get_command(app)
        if (text := help_alone(command, "unisono", sys.argv[1:])) is not None:
            print_raw(text)
            sys.exit(0)
        command(prog_name="unisono")
    except MisuseError as error:
        complain(str(error))
        for note in getattr(error, "__notes__", ()):
            show_source(note)
        sys.exit(2)
    except Error as error:
        complain(str(error))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has had enough: `unisono plan list | head`.
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        sys.exit(1)
    except MemoryError:
        complain("there is not enough memory for this")
        sys.exit(1)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"bug in unisono: {type(error).__name__} at {last.filename}:{last.lineno}: {error}; "
            "please report it"
        )
        sys.exit(1)
