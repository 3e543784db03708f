"""`unisono plan`: its commands, each of which is imported when it runs."""

from unisono.cli.deferred import HELP, Commands, Place, group_of

COMMANDS = {
    "list": Place("plan", "list_plans", "List the built-in plans."),
    "show": Place("plan", "show", "Show a plan as text or JSON, or in a third-party format."),
    "draw": Place(
        "plan",
        "draw",
        "Draw a plan: space and time, the way of a chunk, or what ranks send to each other.",
    ),
    "verify": Place(
        "verify",
        "verify",
        "Verify plans: every result, no race, no deadlock; in place and out of place.",
    ),
    "compile": Place(
        "programs",
        "compile_program",
        "Compile a program of the language to a verified plan; or say on which line it is wrong.",
    ),
    "cost": Place("cost", "cost", "Simulate a plan on a cluster: its time, and the links it uses."),
    "run": Place(
        "programs", "run", "Run a plan, all ranks in one process, and compare with NumPy."
    ),
    "diff": Place("programs", "diff", "Show how two plans differ. Exit status 1 if they do."),
    "synthesize": Place(
        "synthesize",
        "synthesize",
        "Find a plan for the links of a machine: greedily, or exactly where it is small.",
    ),
}

app = Commands(
    cls=group_of(COMMANDS),
    help="List, show, verify, compile, find, run and draw plans.",
    no_args_is_help=True,
    add_completion=False,
    context_settings=HELP,
)


@app.callback()
def plan() -> None:
    """List, show, verify, compile, find, run and draw plans."""
