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
    def steps(self) -> list[TimedStep]: ...  # by rank, thread block, number
    @property
    def messages(self) -> list[Arrow]: ...
    @property
    def duration(self) -> int: ...  # the end of the last step
