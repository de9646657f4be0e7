"""Why a message became a dead letter: the closed, documented list of reason codes."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """The reason code of a dead letter. Codes are stored and searched: never rename one."""

    PERMANENT = "permanent"
    RETRIES_EXHAUSTED = "retries_exhausted"
    MAX_AGE = "max_age"
    UNCLASSIFIED = "unclassified"
    ERROR = "error"
    REJECTED = "rejected"
    TIME_LIMIT = "time_limit"
    WORKER_LOST = "worker_lost"
    RETRY_UNPUBLISHED = "retry_unpublished"
    RESULT_NOT_SERIALISABLE = "result_not_serialisable"
    RESULT_NOT_STORED = "result_not_stored"
    CALLBACK_UNPUBLISHED = "callback_unpublished"
    INTERNAL_ERROR = "internal_error"
    POISON = "poison"
    UNREGISTERED = "unregistered"
    UNDECODABLE = "undecodable"
    CONTENT_REFUSED = "content_refused"
    MALFORMED = "malformed"
    NOT_A_TASK = "not_a_task"
    EXPIRED = "expired"
    OVERSIZED = "oversized"
    GARBAGE = "garbage"
    DELIVERY_LIMIT = "delivery_limit"
    BROKER_REJECTED = "broker_rejected"
    BROKER_DROPPED = "broker_dropped"

    @property
    def explanation(self) -> str:
        """One sentence for the operator: what happened, and whether the body ran to its end."""
        return _EXPLANATIONS[self]


_EXPLANATIONS: dict[Reason, str] = {
    Reason.PERMANENT: "Another try cannot succeed: the task says so, or the rule named at the attempt.",
    Reason.RETRIES_EXHAUSTED: "The task used up its retries and failed at the last attempt.",
    Reason.MAX_AGE: "The next try would have come after the task's max_age, counted from its first publish.",
    Reason.UNCLASSIFIED: "No rule knows the error, and a few tries did not help: write a rule for it.",
    Reason.ERROR: "The task raised an error that may pass, and is not retried on its own.",
    Reason.REJECTED: "The task raised Reject without requeue.",
    Reason.TIME_LIMIT: "The task ran into its time limit and was stopped.",
    Reason.WORKER_LOST: "The process that ran the task died and the task opted out of being run again.",
    Reason.RETRY_UNPUBLISHED: "The task asked for a retry, and no new message was sent.",
    Reason.RESULT_NOT_SERIALISABLE: "The body ran to its end; what it returned cannot be serialised.",
    Reason.RESULT_NOT_STORED: "The body ran to its end or was about to start; the result backend failed.",
    Reason.CALLBACK_UNPUBLISHED: "The body ran to its end; its callback or next step was not published.",
    Reason.INTERNAL_ERROR: "Celery failed outside the body of the task, before or after it.",
    Reason.POISON: "Each start of the task ended with the death of its process, and it has had its last one.",
    Reason.UNREGISTERED: "The worker knew no task of this name; replay it after a deploy that brings it.",
    Reason.UNDECODABLE: "The body of the message cannot be decoded: export it, repair it and send it.",
    Reason.CONTENT_REFUSED: "The worker does not accept messages of this content type.",
    Reason.MALFORMED: "The message names a task and is not one: the attempt says what is wrong with it.",
    Reason.NOT_A_TASK: "What was in the queue is no message of Celery's.",
    Reason.EXPIRED: "The message was not started before its `expires`; the body did not run.",
    Reason.OVERSIZED: "The message is larger than the worker takes.",
    Reason.GARBAGE: "Somebody pushed bytes into the queue that are no message at all.",
    Reason.DELIVERY_LIMIT: "The broker gave the message up after its delivery limit.",
    Reason.BROKER_REJECTED: "A plain worker rejected the message, and the broker dead-lettered it.",
    Reason.BROKER_DROPPED: "The broker dropped the message from a queue that was full.",
}
