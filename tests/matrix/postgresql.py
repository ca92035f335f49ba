"""The matrix of PostgreSQL as a sink: the server is a real one throughout, the brokers are embedded."""

from tests.matrix.table import Row

__all__ = ["ROWS"]

_SINKS = "daemon/sinks/postgresql"

ROWS = [
    Row(
        "exactly once",
        "the contract of sinks, with kills and several writers",
        {"R": "crash/test_database::test_killed_at_every_step crash/test_database::test_killed_at_random"},
    ),
    Row(
        "exactly once",
        "daemons, backends and the server are killed in turn",
        {"R": "crash/test_database::test_daemons_and_the_server_are_killed"},
    ),
    Row(
        "exactly once",
        "the outcome of a COMMIT is unknown, or it still runs",
        {
            "R": f"{_SINKS}/test_failures::test_a_connection_that_breaks"
            f" {_SINKS}/test_failures::test_the_answer_to_commit_is_lost"
            f" {_SINKS}/test_failures::test_a_commit_that_still_runs_is_waited_for"
        },
    ),
    Row(
        "exactly once",
        "a copy is restored, or a table dropped",
        {
            "R": f"{_SINKS}/test_failures::test_a_restored_copy_is_told_from_the_newest"
            f" {_SINKS}/test_appending::test_a_dropped_table_is_not_made_again"
        },
    ),
    Row(
        "exactly once",
        "a failover to a replica, with all commits and without the last",
        {"R": f"{_SINKS}/test_failures::test_a_failover_to_a_replica"},
    ),
    Row(
        "rows",
        "each type, tables that are there, columns that come",
        {
            "R": f"{_SINKS}/test_appending::test_each_type_has_its_column"
            f" {_SINKS}/test_appending::test_a_table_of_other_types_is_refused_at_the_start"
            f" {_SINKS}/test_appending::test_columns_come_with_newer_schemas_and_restarts"
        },
    ),
    Row(
        "rows",
        "records that the database refuses become dead letters",
        {"R": f"{_SINKS}/test_appending::test_what_the_database_refuses_is_found"},
    ),
    Row(
        "rows",
        "a row a key, with tombstones, and change events",
        {
            "R": f"{_SINKS}/test_upserting::test_any_history_ends_as_in_a_dictionary"
            f" {_SINKS}/test_upserting::test_tombstones_delete"
            f" {_SINKS}/test_upserting::test_change_events_mirror_a_table"
        },
    ),
    Row(
        "operation",
        "a server that hangs, is read-only, locked, or off for durability",
        {
            "R": f"{_SINKS}/test_failures::test_a_server_that_hangs_holds_nobody"
            f" {_SINKS}/test_failures::test_a_read_only_server_is_tried_again"
            f" {_SINKS}/test_failures::test_a_lock_of_others_has_a_limit"
            f" {_SINKS}/test_failures::test_commits_are_durable_where_that_is_off"
        },
    ),
    Row(
        "operation",
        "a server that says that its disk is full",
        {"R": f"{_SINKS}/test_failures::test_a_server_without_space_is_tried_again"},
    ),
    Row(
        "operation",
        "check --connect and verify",
        {
            "R": "daemon/cli/test_databases::test_rights_that_are_missing_are_named"
            " daemon/cli/test_databases::test_a_table_is_proved"
        },
    ),
]
