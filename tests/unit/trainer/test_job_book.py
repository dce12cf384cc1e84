from __future__ import annotations

from safactory.contracts.jobs import TrainingSpec
from safactory.trainer.job_book import JobBook


def test_a_job_goes_on_from_the_steps_that_a_checkpoint_knew() -> None:
    book = JobBook({"half": 3, "done": 5})
    for job_id in ("half", "done", "new"):
        book.submit(job_id, TrainingSpec(steps=5))
    assert [(job.job_id, job.steps_done) for job in book.active()] == [("half", 3), ("new", 0)]
    assert book.is_over("done")
    assert book.steps_done() == {"half": 3, "done": 5, "new": 0}


def test_hearing_of_a_job_again_changes_nothing() -> None:
    book = JobBook({})
    book.submit("job", TrainingSpec(steps=5))
    book.active()[0].steps_done = 2
    book.submit("job", TrainingSpec(steps=5))
    assert book.active()[0].steps_done == 2


def test_a_cancelled_job_is_over_until_it_is_resumed() -> None:
    book = JobBook({})
    book.submit("job", TrainingSpec(steps=5))
    book.cancel("job")
    assert book.is_over("job") and not book.active()
    book.resume("job")
    assert not book.is_over("job") and len(book.active()) == 1


def test_a_job_that_is_unknown_is_not_over() -> None:
    book = JobBook({})
    book.cancel("evaluation")
    assert not book.is_over("evaluation")
