"""What of Pulsar is shown to work, and by which witness: one row for each thing, the tests that prove it in its cells.

A cell that could hold a proof and holds none is a hole, and shown as one. Of proxies, migration and replication the
embedded broker is the only witness: the real one here is a single process.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["ROWS", "Row", "cell", "written"]

# By the letter of a column.
WITNESSES = {
    "D": "the embedded broker",
    "G": "golden bytes",
    "R": "a real broker",
    "P": "the official client as producer",
    "C": "the official client as consumer of what we produced",
}


@dataclass(frozen=True)
class Row:
    """``proofs`` has the tests by column, as ``module::test``; ``open`` the columns that could have some, too."""

    part: str
    what: str
    proofs: dict[str, str]
    open: str = ""


def cell(row: Row, column: str) -> list[str]:
    """The tests in a cell, as pytest names them."""
    return [
        f"tests/{module}.py::{name}"
        for module, _, name in (each.partition("::") for each in row.proofs.get(column, "").split())
    ]


def written(rows: list[Row], mark: Callable[[list[str]], str]) -> Iterator[str]:
    """The table in lines, and the holes below it; ``mark`` says what came of the tests of a cell."""
    yield "  ".join(f"{letter} {name}" for letter, name in WITNESSES.items())
    holes = []
    part = ""
    for row in rows:
        cells = []
        for column in WITNESSES:
            if tests := cell(row, column):
                cells.append(mark(tests))
            elif column in row.open:
                cells.append("–")
                holes.append(f"{row.what}: {WITNESSES[column]}")
            else:
                cells.append("·")
        yield f"{' '.join(cells)}  {row.part + ': ' if row.part != part else '  '}{row.what}"
        part = row.part
    yield f"holes: {len(holes)}" + "".join(f"\n  – {hole}" for hole in holes)


ROWS = [
    Row(
        "names, addresses",
        "full and short names, partition suffixes, legacy names refused",
        {
            "D": "test_devbroker_dispatch::test_full_names_are_needed_on_the_wire",
            "G": "test_pulsar_topic::test_short_and_full_names test_pulsar_topic::test_bad_names_say_what_is_wrong"
            " test_pulsar_topic::test_the_last_suffix_is_the_partition",
            "R": "real/test_matrix::test_every_column_of_every_row",
        },
    ),
    Row(
        "names, addresses",
        "several hosts, IPv6",
        {
            "D": "test_source_pulsar_addresses::test_several_hosts_and_the_first_one_dead"
            " test_source_pulsar_addresses::test_ipv6",
            "G": "test_pulsar_topic::test_service_urls",
            "R": "real/test_listening::test_a_host_that_is_not_there",
        },
    ),
    Row(
        "names, addresses",
        "advertised listeners",
        {
            "D": "test_source_pulsar_addresses::test_a_listener_is_chosen_by_its_name",
            "R": "real/test_listening::test_the_address_of_a_listener",
        },
    ),
    Row(
        "names, addresses",
        "proxies (embedded broker only)",
        {
            "D": "test_source_pulsar_addresses::test_brokers_behind_a_proxy"
            " test_source_pulsar_addresses::test_redirects_behind_a_proxy",
            "G": "test_pulsar_connection::test_connect_through_a_proxy_and_without_credentials",
        },
    ),
    Row(
        "names, addresses",
        "redirects up to 20 (embedded broker only)",
        {
            "D": "test_source_pulsar_addresses::test_lookups_follow_redirects_but_not_for_ever"
            " test_devbroker_rules::test_redirects"
        },
    ),
    Row(
        "topics",
        "partitions that are added, read from earliest",
        {
            "D": "test_source_topics::test_partitions_are_added"
            " test_client_consumer::test_new_partitions_are_read_from_their_beginning",
            "R": "real/test_client::test_partitions_that_are_added",
        },
    ),
    Row(
        "topics",
        "patterns by watcher and by polling, topics come and go",
        {
            "D": "test_source_topics::test_topics_of_a_pattern_come_and_go_and_come_again"
            " test_source_pulsar_topics::test_a_broker_that_tells_is_not_asked",
            "G": "test_pulsar_namespace::test_the_commands_about_topic_lists"
            " test_pulsar_namespace::test_the_hash_of_the_specification",
            "R": "real/test_topics::test_topics_of_a_pattern_come_and_go"
            " real/test_topics::test_topics_of_a_pattern_by_asking",
        },
    ),
    Row(
        "topics",
        "system topics are left out",
        {
            "D": "test_source_topics::test_topics_of_the_broker_itself_are_left_out",
            "G": "test_pulsar_namespace::test_topics_of_the_broker_itself_are_never_meant",
            "R": "real/test_listening::test_the_broker_has_topics_of_its_own",
        },
    ),
    Row(
        "auth",
        "token, read again for connections and challenges",
        {
            "D": "test_source_pulsar_faults::test_a_token_is_read_again_for_connections_and_challenges",
            "G": "test_pulsar_connection::test_connect_is_the_golden_frame",
            "R": "real/test_credentials::test_both_clients_are_let_in",
            "P": "real/test_credentials::test_both_clients_are_let_in",
            "C": "real/test_producing::test_tls_and_a_token",
        },
    ),
    Row(
        "auth",
        "user and password",
        {
            "D": "test_auth::test_a_user_and_a_password",
            "R": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "mutual TLS, files read again on reconnect",
        {
            "D": "test_auth::test_a_renewed_certificate_is_used_at_the_next_connection",
            "R": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "OAuth2 client credentials: discovery, key file, early renewal",
        {
            "D": "test_auth::test_a_token_is_renewed_before_it_ends test_auth::test_discovery_that_fails",
            "R": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "challenges while tokens of seconds expire",
        {
            "D": "test_auth::test_a_token_of_seconds_is_followed_by_others",
            "G": "test_pulsar_connection::test_a_challenge_before_and_after_connected",
            "R": "real/test_credentials::test_tokens_of_seconds_are_followed_by_others_on_the_same_connection",
        },
    ),
    Row(
        "message kinds",
        "chunked: interleaved, twice, lost, expired; all parts acknowledged",
        {
            "D": "test_source_pulsar_kinds::test_interleaved_parts_become_rows_and_are_acknowledged"
            " test_source_pulsar_kinds::test_parts_that_never_come_are_put_aside_when_their_time_is_over",
            "G": "test_pulsar_completion_chunked::test_interleaved_messages_and_what_stands_between_them"
            " test_pulsar_completion_chunked::test_parts_that_come_twice_are_covered_and_not_used",
            "R": "real/test_kinds::test_chunked_messages",
            "P": "real/test_kinds::test_chunked_messages",
            "C": "real/test_producing::test_chunks test_producing::test_the_official_client_puts_chunks_together",
        },
    ),
    Row(
        "message kinds",
        "encrypted: AES-256-GCM, RSA-OAEP",
        {
            "D": "test_source_pulsar_kinds::test_encrypted_entries_become_rows",
            "G": "test_pulsar_encryption::test_the_bytes_of_the_specification",
            "R": "real/test_kinds::test_encrypted_messages",
            "P": "real/test_kinds::test_encrypted_messages",
            "C": "real/test_producing::test_the_official_client_decrypts",
        },
    ),
    Row(
        "message kinds",
        "encrypted: fail, discard, consume",
        {
            "D": "test_source_pulsar_kinds::test_what_cannot_be_opened_stops_its_log"
            " test_source_pulsar_kinds::test_what_cannot_be_opened_is_dropped_or_kept_as_it_is",
            "G": "test_pulsar_completion_encrypted::test_fail_stops_before_the_entry"
            " test_pulsar_completion_encrypted::test_consume_keeps_the_ciphertext_with_all_it_takes_to_open_it",
            "R": "real/test_kinds::test_encrypted_messages real/test_listening::test_what_no_key_opens",
        },
    ),
    Row(
        "message kinds",
        "broker entry metadata",
        {
            "D": "test_devbroker_dispatch::test_broker_entry_metadata_is_for_those_who_want_it",
            "G": "test_pulsar_scan::test_golden_batch_with_broker_entry_metadata_and_ack_set"
            " test_pulsar_payload::test_the_worked_batch",
            "R": "real/test_brokers::test_entries_are_numbered_by_the_broker"
            " real/test_matrix::test_every_column_of_every_row",
        },
    ),
    Row(
        "message kinds",
        "compacted_out, compacted_batch_indexes",
        {
            "D": "test_source_pulsar_kinds::test_entries_that_compaction_has_thinned_out",
            "G": "test_pulsar_completion::test_what_compaction_has_left_keeps_its_index"
            " test_pulsar_permits::test_compacted_out_elements_cost_but_do_not_come",
            "R": "real/test_kinds::test_a_compacted_topic_is_read_whole",
        },
    ),
    Row(
        "message kinds",
        "ack_set",
        {
            "D": "test_client_consumer::test_single_records test_devbroker_dispatch::test_elements_can_be_acked",
            "G": "test_pulsar_permits::test_ack_set_bits_are_what_costs_and_what_comes",
            "R": "real/test_client::test_single_records_of_a_batch",
            "P": "real/test_client::test_single_records_of_a_batch",
        },
    ),
    Row(
        "message kinds",
        "markers (replication: embedded broker only)",
        {
            "D": "test_source_pulsar_permits::test_what_is_no_row_costs_what_it_costs",
            "G": "test_pulsar_permits::test_a_marker_costs_and_is_covered_but_is_no_row",
        },
    ),
    Row(
        "message kinds",
        "delayed, tombstones",
        {
            "D": "test_devbroker_pulsar::test_every_field_comes_back",
            "G": "test_pulsar_producer::test_what_is_to_be_delivered_later_stands_alone",
            "R": "real/test_kinds::test_delayed_messages_and_tombstones",
            "P": "real/test_kinds::test_delayed_messages_and_tombstones",
            "C": "real/test_producing::test_delayed_records_and_tombstones",
        },
    ),
    Row(
        "message kinds",
        "base64 keys, ordering keys",
        {
            "D": "test_devbroker_pulsar::test_every_field_comes_back",
            "G": "test_pulsar_batch::test_rows_are_what_the_oracle_says",
            "R": "real/test_matrix::test_every_column_of_every_row",
            "P": "real/test_matrix::test_every_column_of_every_row",
            "C": "test_producing::test_the_official_client_reads_every_field",
        },
    ),
    Row(
        "flow",
        "permits, each row of the table",
        {
            "D": "test_source_pulsar_permits::test_what_is_no_row_costs_what_it_costs"
            " test_source_pulsar_permits::test_entries_that_are_sent_twice"
            " test_source_pulsar_permits::test_a_new_connection_begins_with_a_whole_window",
            "G": "test_pulsar_permits::test_the_golden_batch_costs_two test_pulsar_permits::test_each_chunk_costs_one",
            "R": "real/test_faults::test_slow_sink_keeps_its_connection",
        },
    ),
    Row(
        "flow",
        "the limit of unacknowledged messages: seen, committed early, told",
        {
            "D": "test_source_pulsar_roles::test_a_limit_of_unacknowledged_messages_is_told_by_its_name",
            "R": "real/test_matrix::test_over_tls_with_a_token_and_a_limit_on_unacknowledged_messages",
        },
    ),
    Row(
        "acks",
        "grouping, receipts, duplicates",
        {
            "D": "test_client_consumer::test_acks_go_out_in_groups_and_before_leaving"
            " test_client_consumer::test_receipts_outlive_a_connection",
            "G": "test_pulsar_ack::test_runs test_pulsar_ack::test_cumulative",
            "R": "real/test_client::test_seeks",
        },
    ),
    Row(
        "acks",
        "batch indexes",
        {
            "D": "test_client_consumer::test_single_records",
            "G": "test_pulsar_client_parts::test_acks_of_elements_as_protobuf_reads_them",
            "R": "real/test_client::test_single_records_of_a_batch",
        },
    ),
    Row(
        "acks",
        "negative acks with backoff, ack timeout, redelivery, consumer_epoch",
        {
            "D": "test_client_consumer::test_backoff_grows_with_redeliveries"
            " test_client_consumer::test_what_is_not_acknowledged_in_time_comes_again"
            " test_client_consumer::test_everything_again_on_demand",
            "G": "test_pulsar_permits::test_an_older_epoch_costs_but_does_not_come",
            "R": "real/test_client::test_nacks_and_dead_letters real/test_client::test_a_restart_of_the_broker",
        },
    ),
    Row(
        "dead letters",
        "retry and dead-letter topics, standard properties, published before the ack",
        {
            "D": "test_client_deadletter::test_nothing_is_acknowledged_before_it_is_stored"
            " test_client_deadletter::test_another_try_by_the_retry_topic",
            "G": "test_pulsar_client_parts::test_properties_keep_where_a_record_came_from_first",
            "R": "real/test_client::test_nacks_and_dead_letters",
            "C": "real/test_client::test_nacks_and_dead_letters",
        },
    ),
    Row(
        "positions",
        "seek by id, time, to both ends",
        {
            "D": "test_client_consumer::test_seeks test_devbroker_dispatch::test_seeking",
            "G": "test_pulsar_connection_requests::test_seek_to_a_place_or_a_time",
            "R": "real/test_client::test_seeks",
        },
    ),
    Row(
        "positions",
        "readers from an id, a time, seconds ago, inclusive and not; last id, has-more",
        {
            "D": "test_client_reader::test_from_a_message_on test_client_reader::test_times_and_ends",
            "G": "test_pulsar_client_parts::test_message_ids_in_bytes_and_text",
            "R": "real/test_client::test_readers",
        },
    ),
    Row(
        "life",
        "closed by the broker, with an address and without",
        {
            "D": "test_source_pulsar_faults::test_consumers_that_the_broker_closes"
            " test_source_pulsar_faults::test_a_topic_that_moves_to_a_named_broker",
            "G": "test_pulsar_connection_notices::test_notices_become_events",
            "R": "real/test_faults::test_topic_unloaded_under_load_with_an_open_roll",
        },
    ),
    Row(
        "life",
        "migration (embedded broker only)",
        {
            "D": "test_source_pulsar_addresses::test_a_topic_that_migrates_is_read_on_in_its_new_cluster",
            "G": "test_pulsar_connection_notices::test_notices_become_events",
        },
    ),
    Row(
        "life",
        "the end of a topic",
        {
            "D": "test_source_pulsar_faults::test_a_terminated_topic_is_read_to_its_end",
            "R": "real/test_topics::test_a_terminated_topic_is_read_to_its_end",
        },
    ),
    Row(
        "life",
        "error codes",
        {
            "D": "test_source_pulsar::test_refused_for_good"
            " test_source_pulsar_roles::test_a_busy_subscription_is_waited_for",
            "G": "test_pulsar_namespace::test_every_error_has_its_remedy"
            " test_pulsar_connection_requests::test_each_way_to_say_no",
            "R": "real/test_refusals::test_missing_topic real/test_refusals::test_role_without_permission",
        },
    ),
    Row(
        "life",
        "TooManyRequests",
        {
            "D": "test_source_pulsar_topics::test_too_many_requests_are_asked_again",
            "R": "real/test_listening::test_too_many_lookups",
        },
    ),
    Row(
        "life",
        "keep-alive both ways",
        {
            "D": "test_source_pulsar_faults::test_a_silent_broker_is_left"
            " test_devbroker_rules::test_a_silent_client_is_pinged_and_dropped",
            "G": "test_pulsar_connection::test_silence_is_answered_by_a_ping_and_then_by_closing",
            "R": "real/test_faults::test_peer_that_falls_silent_is_left_and_found_again",
        },
    ),
    Row(
        "life",
        "protocol versions 12 to 21, flags on and off",
        {
            "D": "test_source_pulsar_old::test_everything_once_from_a_broker_of_any_age"
            " test_source_pulsar_old::test_positions_on_a_broker_of_any_age",
            "G": "test_pulsar_connection::test_the_lower_version_counts_and_too_low_is_refused",
        },
    ),
    Row(
        "schema",
        "GET_SCHEMA by version, kept; the version in the row",
        {
            "D": "test_pulsar_schema::test_a_version_is_asked_for_once",
            "G": "test_pulsar_schema::test_an_answer_becomes_a_schema",
            "R": "real/test_schemas::test_each_version_is_asked_for",
            "P": "real/test_schemas::test_each_version_is_asked_for",
        },
    ),
    Row(
        "producer",
        "batches by count, bytes, delay and key; keys; every codec",
        {
            "D": "test_producing::test_the_official_client_reads_every_field",
            "G": "test_pulsar_producer::test_a_batch_is_closed_by_its_count"
            " test_pulsar_producer::test_a_batch_is_closed_by_its_bytes"
            " test_pulsar_producer::test_a_batch_is_closed_by_its_age"
            " test_pulsar_producer::test_one_batch_for_each_key",
            "R": "real/test_producing::test_every_field_with_every_codec",
            "C": "real/test_producing::test_every_field_with_every_codec",
        },
    ),
    Row(
        "producer",
        "receipts, sent again in order, sequence ids",
        {
            "D": "test_producing::test_whatever_is_lost_everything_is_stored_once_and_in_order"
            " test_producing::test_numbers_go_on_and_what_is_stored_is_not_stored_again",
            "G": "test_pulsar_producer_faults::test_everything_without_a_receipt_is_sent_again_in_order",
            "R": "real/test_producing::test_lost_connections_and_an_unload_lose_and_double_nothing",
            "C": "real/test_producing::test_lost_connections_and_an_unload_lose_and_double_nothing",
        },
    ),
    Row(
        "producer",
        "access modes",
        {
            "D": "test_producing::test_exclusive_access test_producing::test_waiting_for_exclusive_access"
            " test_producing::test_fencing_takes_the_topic_away",
            "R": "real/test_producing::test_access_modes",
        },
    ),
    Row(
        "producer",
        "routing by Java's hash and Murmur3",
        {
            "D": "test_producing::test_keys_choose_the_partition_as_in_java",
            "G": "test_pulsar_routing::test_javas_hash test_pulsar_routing::test_murmur3",
            "R": "real/test_producing::test_keys_and_turns_over_partitions",
            "C": "real/test_producing::test_keys_and_turns_over_partitions",
        },
    ),
    Row(
        "producer",
        "schema on create",
        {
            "D": "test_producing::test_a_schema_is_registered_and_named_by_each_entry",
            "R": "real/test_producing::test_a_schema_is_registered",
            "C": "real/test_producing::test_a_schema_is_registered",
        },
    ),
    Row(
        "producer",
        "the command: lines, JSON lines, load",
        {
            "D": "test_produce::test_a_restart_is_survived_in_order test_produce::test_the_load_is_the_same_each_time",
            "R": "real/test_producing::test_the_command",
        },
    ),
    Row(
        "stats",
        "consumer stats of the broker in /status",
        {
            "D": "test_source_stats::test_the_backlog_is_what_has_not_landed",
            "R": "real/test_lag::test_the_backlog_of_an_open_roll",
        },
    ),
]
