"""Turns of idle nodes at an announcement: how many claim at once, who comes next, and how long the last one waits."""

from collections import Counter

import pytest

from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.core.turns import MAX_WAIT_S, WAVE_S, group_name, wave_delay_s, wave_number

NODES = [NodeId(f"host-{number}") for number in range(12)]
KEYS = [f"key-{number}" for number in range(1200)]


def waves(key: str, nodes: list[NodeId], jobs: int = 1) -> Counter[int]:
    return Counter(wave_number(key, node, nodes, jobs=jobs) for node in nodes)


@pytest.mark.parametrize("key", KEYS[:20])
def test_one_node_claims_a_job_at_once_and_each_wave_has_twice_as_many_as_the_one_before(key: str) -> None:
    assert waves(key, NODES) == {0: 1, 1: 2, 2: 4, 3: 5}


def test_as_many_nodes_as_jobs_claim_at_once() -> None:
    assert waves("key", NODES, jobs=3) == {0: 3, 1: 6, 2: 3}
    assert waves("key", NODES, jobs=12) == {0: 12}
    assert waves("key", NODES, jobs=1000) == {0: 12}


def test_a_node_alone_or_without_knowledge_of_others_claims_at_once() -> None:
    assert wave_number("key", NODES[0], [NODES[0]]) == 0
    assert wave_number("key", NODES[0], []) == 0


def test_whether_a_node_is_among_its_peers_does_not_matter() -> None:
    for node in NODES:
        others = [peer for peer in NODES if peer != node]
        assert wave_number("key", node, others) == wave_number("key", node, NODES)


def test_each_node_is_first_about_as_often_as_the_others() -> None:
    first = Counter(next(node for node in NODES if wave_number(key, node, NODES) == 0) for key in KEYS)

    assert first.keys() == set(NODES)
    assert max(first.values()) < 2 * len(KEYS) / len(NODES)


def test_all_nodes_claim_within_100_ms_however_many_they_are() -> None:
    assert wave_delay_s(0) == 0
    assert wave_delay_s(1) == WAVE_S
    many = [NodeId(str(number)) for number in range(1000)]
    assert max(wave_delay_s(wave_number("key", node, many)) for node in many) <= MAX_WAIT_S < 0.1
    assert max(wave_delay_s(wave_number("key", node, NODES) + 1) for node in NODES) < 0.1


def test_a_group_is_the_same_tasks_and_queues() -> None:
    send, resize = Name.parse("mail.send"), Name.parse("photo.resize")

    assert group_name({send, resize}, None) == group_name({resize, send}, None)
    assert group_name({send}, ("a", "b")) == group_name({send}, ("b", "a"))
    different = [
        group_name({send}, None),
        group_name({send, resize}, None),
        group_name({send}, ()),
        group_name({send}, ("a",)),
        group_name({send}, ("*",)),
        group_name(set(), None),
        group_name({send, Name.parse("a")}, None),
    ]
    assert len(set(different)) == len(different)
