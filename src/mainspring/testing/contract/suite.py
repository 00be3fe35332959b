"""The parts of the suite, put together."""

from mainspring.testing.contract.verbs.attempts import AttemptsContract
from mainspring.testing.contract.verbs.breakers import BreakersContract
from mainspring.testing.contract.verbs.claim import ClaimContract
from mainspring.testing.contract.verbs.cost import CostContract
from mainspring.testing.contract.verbs.due import DueContract
from mainspring.testing.contract.verbs.ends import EndsContract
from mainspring.testing.contract.verbs.enqueue import EnqueueContract
from mainspring.testing.contract.verbs.fencing import FencingContract
from mainspring.testing.contract.verbs.gates import GatesContract
from mainspring.testing.contract.verbs.inspect import InspectorContract
from mainspring.testing.contract.verbs.keeping import KeepingContract
from mainspring.testing.contract.verbs.lasting import LastingContract
from mainspring.testing.contract.verbs.locks import LocksContract
from mainspring.testing.contract.verbs.meeting import MeetingContract
from mainspring.testing.contract.verbs.move import MoveContract
from mainspring.testing.contract.verbs.nodes import NodesContract
from mainspring.testing.contract.verbs.note import NoteContract
from mainspring.testing.contract.verbs.order import OrderContract
from mainspring.testing.contract.verbs.orphans import OrphansContract
from mainspring.testing.contract.verbs.outbox_late import OutboxesOfManyWritersContract
from mainspring.testing.contract.verbs.outbox_letters import LettersContract
from mainspring.testing.contract.verbs.outbox_log import LogContract
from mainspring.testing.contract.verbs.outbox_publish import PublishContract
from mainspring.testing.contract.verbs.outbox_strides import StridesContract
from mainspring.testing.contract.verbs.outbox_transactions import OutboxesInTransactionsContract
from mainspring.testing.contract.verbs.overview_audit import AuditContract
from mainspring.testing.contract.verbs.overview_census import CensusContract, CensusCostContract
from mainspring.testing.contract.verbs.overview_limits import LimitsContract
from mainspring.testing.contract.verbs.overview_runs import LastRunsContract
from mainspring.testing.contract.verbs.overview_search import SearchContract, SearchCostContract
from mainspring.testing.contract.verbs.overview_tallies import ReportsContract, TalliesContract
from mainspring.testing.contract.verbs.places import PlacesContract
from mainspring.testing.contract.verbs.rates import RatesContract
from mainspring.testing.contract.verbs.runs import RunsContract
from mainspring.testing.contract.verbs.schedules import SchedulesContract
from mainspring.testing.contract.verbs.schema import SchemaContract
from mainspring.testing.contract.verbs.settle import SettleContract
from mainspring.testing.contract.verbs.sharing import SharingContract
from mainspring.testing.contract.verbs.transactions import TransactionsContract
from mainspring.testing.contract.verbs.unique import UniqueContract
from mainspring.testing.contract.verbs.upkeep import UpkeepContract
from mainspring.testing.contract.verbs.values import ValuesContract
from mainspring.testing.contract.verbs.wake import WakeContract


class StoreContract(
    EnqueueContract,
    UniqueContract,
    ClaimContract,
    DueContract,
    OrderContract,
    GatesContract,
    PlacesContract,
    RatesContract,
    BreakersContract,
    SettleContract,
    AttemptsContract,
    FencingContract,
    NoteContract,
    NodesContract,
    OrphansContract,
    LocksContract,
    KeepingContract,
    SchedulesContract,
    MoveContract,
    MeetingContract,
    EndsContract,
    RunsContract,
    InspectorContract,
    ValuesContract,
    SharingContract,
    WakeContract,
    SchemaContract,
):
    """All that a `mainspring.stores.port.Store` has to fulfil, but for what takes seconds to measure."""


class OutboxesContract(PublishContract, LogContract, StridesContract, LettersContract):
    """All that a store has to fulfil that plays the role `mainspring.stores.outbox.Outboxes`."""


class OverviewContract(
    SearchContract,
    CensusContract,
    TalliesContract,
    ReportsContract,
    AuditContract,
    LimitsContract,
    LastRunsContract,
):
    """All that a store has to fulfil that plays the role `mainspring.stores.overview.Overview`, but for what it costs."""


class OverviewCostContract(SearchCostContract, CensusCostContract):
    """What it costs there with tens of thousands of jobs around. Takes seconds."""


__all__ = [
    "CostContract",
    "LastingContract",
    "OutboxesContract",
    "OutboxesInTransactionsContract",
    "OutboxesOfManyWritersContract",
    "OverviewContract",
    "OverviewCostContract",
    "StoreContract",
    "TransactionsContract",
    "UpkeepContract",
]
