"""The doctor: reads dumps and says which call is stuck, and which ranks are to blame.

The readers of `unisono.records` turn each format into `Part`s of columns; `Job` joins them;
`diagnose` judges the job.
"""

from unisono.arguments import guard
from unisono.doctor.diagnose import diagnose
from unisono.doctor.diagnosis import Diagnosis
from unisono.doctor.files import read_files
from unisono.doctor.job import Job

__all__ = ["Diagnosis", "Job", "diagnose", "read_files"]

guard(globals())
