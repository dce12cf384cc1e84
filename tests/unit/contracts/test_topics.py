"""Topics and their dead letters."""

from __future__ import annotations

from safactory.contracts.topics import TOPIC_OF, TOPICS


def test_topics_have_their_dead_letters_beside_them() -> None:
    names = {topic.name for topic in TOPICS}
    assert len(names) == len(set(TOPIC_OF.values())) == 8
    for topic in TOPICS:
        assert (topic.dead_letters.name, topic.dead_letters.partitions) == (f"{topic.name}.dlq", 1)
        assert topic.dead_letters.name not in names
