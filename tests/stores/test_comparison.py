"""Two stores, one story: random steps, and after each the same answers and the same view of everything.

What the port leaves open is left open here: the order of equals, and the numbers that a store gives to terms, counters
and orders.
"""

import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mainspring.core.limits import Gate
from tests.stores import drawn, drawn_plans
from tests.stores.drawn import Spec, Step
from tests.stores.pair import Pair
from tests.stores.planned import Planned
from tests.tier import FULL


class Stores(RuleBasedStateMachine):
    """Tells a story.

    One rule for all steps: Hypothesis gives rules equal weights and leaves out some of them in each example, and then
    too many stories are about nodes that come and go and too few about jobs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.story = Planned(self.pair())

    def pair(self) -> Pair:
        """Whom the story is about."""
        return Pair()

    @initialize(
        some=st.lists(drawn.specs, min_size=4, max_size=10), gates=st.lists(drawn.gates, min_size=1, max_size=3)
    )
    def begin(self, some: list[Spec], gates: list[Gate]) -> None:
        self.story.begin(some, gates)

    @rule(step=drawn_plans.steps)
    def go_on(self, step: Step) -> None:
        getattr(self.story, step.name)(**step.values)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the story has failed already
                self.story.drain()
        finally:
            self.story.close()


# A failure is made as small as it can be before it is told, which may take some minutes.
TestStories = pytest.mark.slow(pytest.mark.timeout(900)(Stores.TestCase))
TestStories.settings = settings(max_examples=120 if FULL else 20, stateful_step_count=50, report_multiple_bugs=False)
