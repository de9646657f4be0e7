"""The admin of Beat: who leads and the history of terms, schedules and their due times, policies."""

from .leadership import LeadershipAdmin
from .policies import SchedulePolicyAdmin
from .schedules import SchedulesAdmin

__all__ = ["LeadershipAdmin", "SchedulePolicyAdmin", "SchedulesAdmin"]
