"""The book is a fold over events: whatever is told twice, or told again from the start, gives the same book."""

from __future__ import annotations

from typing import Any

import pytest

from safactory.contracts.endings import EndReason
from safactory.contracts.event import Event
from safactory.contracts.jobs import JobMode, JobSpec, TrainingSpec
from safactory.scheduler.job_book import Job, JobBook, Phase, missing_samples
from safactory.scheduler.plan import groups
from safactory.testkit import builders as b

SPEC = b.a_job_spec(environments=(b.an_environment_spec(samples=2, task_count=2),))
GROUPS = list(groups(SPEC))
SESSIONS = [f"s{number}" for number in range(4)]


def of(number: int, **more: Any) -> dict[str, Any]:
    return {"session_id": SESSIONS[number], "group_id": GROUPS[number // 2].group_id, **more}


def queued(number: int, attempt: int = 1) -> Event:
    return b.a_session_queued(**of(number, attempt=attempt, sample=number % 2, group_size=2, row=number // 2))


def life(number: int, attempt: int = 1, **ended: Any) -> list[Event]:
    """Return an attempt from its lease to its end."""
    me = of(number, attempt=attempt)
    return [
        b.a_session_leased(**me, fence=10 * attempt + number),
        b.a_session_finished(**me),
        b.a_session_sealed(**me),
        b.a_reward_scored(**me),
        b.a_session_ended(**me, **ended),
    ]


LOG: list[Event] = [
    b.a_job_submitted(spec=SPEC),
    *map(queued, range(4)),
    *life(0, score=10.0),
    *life(1, reason=EndReason.FAILED, score=0.0),
    *life(2)[:3], queued(2, attempt=2), *life(2, attempt=2, reason=EndReason.AGENT_ERROR, score=None),
    b.a_job_cancelled(),
    b.a_session_ended(**of(3), reason=EndReason.CANCELLED, score=None),
    b.a_job_ended(),
    b.a_job_resumed(),
    queued(2, attempt=3), queued(3, attempt=2),
    *life(2, attempt=3, score=10.0),
    *life(3, attempt=2)[:2],
    b.a_rollout_ready(group_id=GROUPS[0].group_id),
    b.a_rollout_dropped(group_id=GROUPS[0].group_id),
    b.a_weights_published(step=3),
]  # fmt: skip


def book_of(*events: Event) -> JobBook:
    book = JobBook()
    for event in events:
        book.apply(event)
    return book


def facts(book: JobBook) -> list[Any]:
    """Return all that a book says, but for moments."""
    return [[book.fence, *_job_facts(job), _session_facts(job), _group_facts(job)] for job in book.jobs.values()]


def _job_facts(job: Job) -> list[Any]:
    counts = [+job.phases, +job.endings, +job.verdicts, job.score_sum, job.scored, job.attempts_ended, job.retried]
    state = [job.cancelled, job.ended, job.resumption, job.admitting, job.steps_done, job.next_group]
    return [job.spec, list(job.queue), *counts, *state]


def _session_facts(job: Job) -> dict[str, Any]:
    return {
        key: (session.queued, session.phase, session.lease, session.outcome, session.ended, session.reward)
        for key, session in job.sessions.items()
    }


def _group_facts(job: Job) -> dict[str, Any]:
    return {key: (group.planned, group.sessions, group.verdict) for key, group in job.groups.items()}


def test_the_book_says_what_happened() -> None:
    job = book_of(*LOG).jobs[b.JOB]
    assert +job.endings == {EndReason.SUCCEEDED: 2, EndReason.FAILED: 1}
    assert +job.phases == {Phase.ENDED: 3, Phase.FINISHED: 1}
    assert (job.open, job.planned, job.scored, job.score_sum) == (1, 4, 3, 20.0)
    assert (job.steps_done, +job.verdicts, job.useful_groups) == (3, {"dropped": 1}, 1)
    assert (job.cancelled, job.ended, job.resumption, list(job.queue)) == ("", None, "r1", [])


def test_every_event_told_twice_changes_nothing() -> None:
    assert facts(book_of(*(event for event in LOG for _ in range(2)))) == facts(book_of(*LOG))


@pytest.mark.parametrize("length", range(1, len(LOG) + 1))
def test_a_log_told_again_from_the_start_gives_the_same_book(length: int) -> None:
    log = [event for event in LOG[:length] if event.type not in ("job.cancelled", "job.ended", "job.resumed")]
    assert facts(book_of(*log, *log)) == facts(book_of(*log))


def test_what_a_late_record_says_of_an_earlier_resumption_is_over() -> None:
    log = [event for event in LOG if event.type != "rollout.ready"]
    again = book_of(*log, b.a_job_cancelled(), b.a_job_ended())
    assert facts(again) == facts(book_of(*log))
    assert book_of(*log, b.a_job_cancelled(resumption="r1", reason="now")).jobs[b.JOB].cancelled == "now"


@pytest.mark.parametrize("event", [event for event in LOG if event.type != "job.submitted"], ids=lambda e: e.type)
def test_an_event_of_an_unknown_job_changes_nothing(event: Event) -> None:
    assert book_of(event).jobs == {}


def test_an_event_of_an_older_attempt_changes_nothing() -> None:
    log = [LOG[0], queued(0), queued(0, attempt=2)]
    before = facts(book_of(*log))
    for event in life(0, attempt=1):
        assert facts(book_of(*log, event)) == before
    assert facts(book_of(*log, queued(0))) == before


def test_a_session_waits_once_however_often_it_was_queued() -> None:
    log = [*LOG[:3], b.a_session_ended(**of(0), reason=EndReason.CANCELLED, score=None), queued(0, attempt=2)]
    assert list(book_of(*log).jobs[b.JOB].queue) == ["s1", "s0"]


def test_a_leased_session_waits_no_more_also_after_a_restart() -> None:
    assert list(book_of(*LOG[:5], life(1)[0]).jobs[b.JOB].queue) == ["s0", "s2", "s3"]


def test_a_phase_never_goes_back() -> None:
    book = book_of(*LOG[:5], *reversed(life(0)))
    assert book.jobs[b.JOB].sessions["s0"].phase is Phase.ENDED
    assert +book.jobs[b.JOB].phases == {Phase.ENDED: 1, Phase.QUEUED: 3}


def test_the_plan_stands_behind_the_last_whole_group_and_a_half_queued_one_is_completed() -> None:
    book = book_of(*LOG[:2])
    job = book.jobs[b.JOB]
    assert job.next_group == GROUPS[0]
    assert missing_samples(job.groups[GROUPS[0].group_id], GROUPS[0], job) == [1]
    assert missing_samples(None, GROUPS[1], job) == [0, 1]
    for number, following in ((1, GROUPS[1]), (2, GROUPS[1]), (3, None)):
        book.apply(queued(number))
        assert job.next_group == following


def test_fences_grow_over_restarts() -> None:
    assert book_of(*LOG).fence == max(event.fence for event in LOG if hasattr(event, "fence"))


def a_training_spec() -> JobSpec:
    return SPEC.model_copy(update={"mode": JobMode.TRAIN, "training": TrainingSpec(steps=2)})


def test_in_training_what_was_admitted_is_what_is_planned() -> None:
    job = book_of(b.a_job_submitted(spec=a_training_spec()), queued(0), queued(1)).jobs[b.JOB]
    assert (job.planned, job.useful_groups) == (2, 1)
    assert job.next_group is not None and (job.next_group.row, job.next_group.epoch) == (1, 0)


@pytest.mark.parametrize(
    ("verdicts", "useful"), [([], 1), (["ready"], 1), (["dropped"], 0), (["ready", "dropped"], 0), (["dropped"] * 2, 0)]
)
def test_a_dropped_group_frees_its_place_once(verdicts: list[str], useful: int) -> None:
    builders = {"ready": b.a_rollout_ready, "dropped": b.a_rollout_dropped}
    log = [LOG[0], queued(0), *(builders[verdict](group_id=GROUPS[0].group_id) for verdict in verdicts)]
    assert book_of(*log).jobs[b.JOB].useful_groups == useful


def test_weights_move_a_job_only_forward() -> None:
    log = [LOG[0], *(b.a_weights_published(step=step) for step in (2, 5, 3)), b.a_weights_published(run_id="x", step=9)]
    assert book_of(*log).jobs[b.JOB].steps_done == 5
