"""Which layouts of parallelism a training job may take, and how long a step of each takes."""

from unisono.simulate.plan_training.network import Network
from unisono.simulate.plan_training.search import Job, Plan, Search, plan_training, question_of
from unisono.simulate.plan_training.step import Question, Step, estimate_step, schedule_of

__all__ = [
    "Job",
    "Network",
    "Plan",
    "Question",
    "Search",
    "Step",
    "estimate_step",
    "plan_training",
    "question_of",
    "schedule_of",
]
