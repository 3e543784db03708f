"""The application: its commands, and how failures end it.

Exit status: 0 when all went well; 1 when something is wrong (a plan, a result, a rank, the
machine); 2 when the command line is. An error is one sentence, never a traceback.
"""

import signal
import sys
import threading
import traceback

import typer

from unisono import _unisono as native
from unisono.cli import bench, calibrate, explain, info, netbed, plan, run, simulate
from unisono.cli.output import complain
from unisono.errors import Error, MisuseError

app = typer.Typer(
    name="unisono",
    help="Collective communication where every algorithm is a plan.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("info")(info.info)
app.command("run", context_settings=run.CONTEXT, no_args_is_help=True)(run.run)
app.command("bench")(bench.bench)
app.add_typer(netbed.app, name="netbed")
app.add_typer(plan.app, name="plan")
app.command("explain")(explain.explain)
app.command("simulate")(simulate.simulate)
app.command("calibrate", no_args_is_help=True)(calibrate.calibrate)


# They have ranks of their own to end, and wait in Python, which answers at once.
_WITH_RANKS = ("run", "bench", "netbed", "calibrate")


def _answer_interrupts() -> None:
    """Has Ctrl-C end this process soon, also while native code runs and Python cannot answer."""
    if sys.argv[1:2] and sys.argv[1] in _WITH_RANKS:
        return
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(native.end_when_interrupted(), warn_on_full_buffer=False)


def main() -> None:
    """Runs the command line and exits."""
    _answer_interrupts()
    try:
        app()
    except MisuseError as error:
        complain(str(error))
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
