"""Names of the operations of all wings. Pure.

They are reserved whether or not the wing is switched on: clients, settings and other wings call
operations by these names, and what a name gets, such as what a user said, is nobody else's.
"""

from collections.abc import Mapping

_JOBS = "cancel_job get_job list_jobs"
_OPERATIONS: Mapping[str, str] = {
    "memory": (
        "add context export files forget get graph_add_observations graph_create_entities"
        " graph_create_relations graph_delete_entities graph_delete_observations"
        " graph_delete_relations graph_open_nodes graph_read_graph graph_search_nodes history"
        f" import list observe promote purge search stats update {_JOBS}"
    ),
    "events": (
        "ack asyncapi cancel claim delete_webhook deliveries erase extend fail get invoke list"
        " put_webhook redeliver redrive release result rotate_webhook stats test_webhook topic"
        f" webhook webhooks {_JOBS}"
    ),
    "agent": (
        "ask cancel_run create_conversation decide delete_conversation get_conversation get_run"
        " get_transcript health list_conversations list_runs list_tools send"
    ),
    "knowledge": (
        "add add_file chunkers collections communities delete delete_chunker delete_collection"
        " delete_names documents entity extract get_collection ingest merge names path put_chunker"
        f" put_collection query read retry split {_JOBS}"
    ),
    "librarian": (
        "add_source chunks collections delete_source files get_run get_source grep index list_runs"
        " map query questions read records references refresh refresh_due research search sources"
        f" status sweep symbols {_JOBS}"
    ),
    "code": f"list_runs run run_writing {_JOBS}",
    "a2a": (
        "add_webhook cancel_task delete_webhook get_card get_task list_agents list_tasks"
        " list_webhooks send_message"
    ),
    "subregistry": "",
    "notifications": "",
}
WING_TOOLS = frozenset(
    f"{wing}_{operation}" for wing, text in _OPERATIONS.items() for operation in text.split()
)
WINGS = tuple(_OPERATIONS)
