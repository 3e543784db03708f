"""Plans in logical time, as part of unisono._unisono: a stub only, there is no such module."""

class TimedStep:
    """When a step runs, in logical time: a step takes 1, a message takes 1."""

    @property
    def rank(self) -> int: ...
    @property
    def thread_block(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def operation(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class Arrow:
    """A message: indices into Schedule.steps, and when it leaves and arrives."""

    @property
    def sender(self) -> int: ...
    @property
    def receiver(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def arrived(self) -> int: ...

class Schedule:
    """Logical times of all steps of a plan, for drawings."""

    @property
    def steps(self) -> tuple[TimedStep, ...]: ...  # by rank, thread block, number
    @property
    def messages(self) -> tuple[Arrow, ...]: ...
    @property
    def duration(self) -> int: ...  # the end of the last step

class Failure:
    """One thing that is wrong with a plan."""

    @property
    def problem(self) -> str: ...  # "race"
    @property
    def rank(self) -> int: ...  # -1: none
    @property
    def thread_block(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def buffer(self) -> str: ...
    @property
    def chunk(self) -> int: ...
    @property
    def expected(self) -> str: ...
    @property
    def got(self) -> str: ...
    @property
    def story(self) -> list[str]: ...
    def describe(self) -> str: ...  # several lines, for a person

class Report:
    """The verifier's outcome."""

    @property
    def ok(self) -> bool: ...
    @property
    def failures(self) -> list[Failure]: ...
    @property
    def steps(self) -> int: ...  # executed
    @property
    def messages(self) -> int: ...
    @property
    def slots(self) -> int:
        """The fewest with which the plan is right, from 2 on; 0: no number helps."""

    @property
    def results_verified(self) -> bool:
        """False for a custom plan: what its results should be, only its program says."""

    @property
    def orders_differ(self) -> bool:
        """Ranks add one sum in different orders; only where that is allowed."""

    def _repr_html_(self) -> str: ...
