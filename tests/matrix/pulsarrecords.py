"""The rows of Pulsar on what is read: names, topics, logins, kinds of messages."""

from tests.matrix.table import Row

__all__ = ["ROWS"]

ROWS = [
    Row(
        "names, addresses",
        "short and full names, a partition by its name",
        {
            "D": "daemon/systems/pulsar/source/test_source::test_a_plain_topic_and_one_partition_by_name",
            "G": "fastwire/pulsar/test_topic::test_short_and_full_names"
            " fastwire/pulsar/test_topic::test_the_last_suffix_is_the_partition",
            "R": "real/test_matrix::test_every_column_of_every_row real/test_listening::test_a_host_that_is_not_there",
        },
    ),
    Row(
        "names, addresses",
        "names that are refused: with a cluster in them, and others",
        {"G": "fastwire/pulsar/test_topic::test_bad_names_say_what_is_wrong"},
    ),
    Row(
        "names, addresses",
        "several hosts, the first one dead",
        {
            "D": "daemon/systems/pulsar/source/test_addresses::test_several_hosts_and_the_first_one_dead",
            "G": "fastwire/pulsar/test_topic::test_service_urls",
            "R": "real/test_listening::test_a_host_that_is_not_there",
        },
    ),
    Row(
        "names, addresses",
        "IPv6",
        {
            "D": "daemon/systems/pulsar/source/test_addresses::test_ipv6",
            "G": "fastwire/pulsar/test_topic::test_service_urls",
        },
        open="R",
    ),
    Row(
        "names, addresses",
        "advertised listeners",
        {
            "D": "daemon/systems/pulsar/source/test_addresses::test_a_listener_is_chosen_by_its_name",
            "R": "real/test_listening::test_the_address_of_a_listener",
        },
    ),
    Row(
        "names, addresses",
        "proxies",
        {
            "D": "daemon/systems/pulsar/source/test_addresses::test_brokers_behind_a_proxy"
            " daemon/systems/pulsar/source/test_addresses::test_redirects_behind_a_proxy",
            "G": "fastwire/pulsar/test_connection::test_connect_through_a_proxy_and_without_credentials",
        },
        open="R",
    ),
    Row(
        "names, addresses",
        "redirects up to 20",
        {"D": "daemon/systems/pulsar/source/test_addresses::test_lookups_follow_redirects_but_not_for_ever"},
        open="R",
    ),
    Row(
        "topics",
        "partitions that are added, read from earliest",
        {
            "D": "daemon/systems/test_topics::test_partitions_are_added"
            " daemon/systems/test_topics::test_a_partition_added_while_we_were_away_is_read_from_its_beginning"
            " daemon/systems/pulsar/client/test_consumer::test_new_partitions_are_read_from_their_beginning",
            "R": "real/test_topics::test_topics_of_a_pattern_come_and_go"
            " real/test_client::test_partitions_that_are_added",
        },
    ),
    Row(
        "topics",
        "patterns by watcher and by polling, topics come and go",
        {
            "D": "daemon/systems/test_topics::test_topics_of_a_pattern_come_and_go_and_come_again"
            " daemon/systems/pulsar/source/test_topics::test_a_broker_that_tells_is_not_asked",
            "G": "fastwire/pulsar/test_namespace::test_the_commands_about_topic_lists"
            " fastwire/pulsar/test_namespace::test_the_hash_of_the_specification",
            "R": "real/test_topics::test_topics_of_a_pattern_come_and_go"
            " real/test_topics::test_topics_of_a_pattern_by_asking",
        },
    ),
    Row(
        "topics",
        "patterns in the client by watcher",
        {
            "D": "daemon/systems/pulsar/client/test_topics::test_a_watched_pattern_is_not_polled",
            "R": "real/test_settings::test_a_pattern_is_watched",
        },
    ),
    Row(
        "topics",
        "patterns in the client by polling",
        {"D": "daemon/systems/pulsar/client/test_topics::test_without_a_watcher_a_pattern_is_polled"},
        open="R",
    ),
    Row(
        "topics",
        "system topics are left out",
        {
            "D": "daemon/systems/test_topics::test_topics_of_the_broker_itself_are_left_out",
            "G": "fastwire/pulsar/test_namespace::test_topics_of_the_broker_itself_are_never_meant",
            "R": "real/test_listening::test_the_broker_has_topics_of_its_own",
        },
    ),
    Row(
        "auth",
        "token over TLS",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_tls_and_a_token",
            "G": "fastwire/pulsar/test_connection::test_connect_is_the_golden_frame",
            "R": "real/test_credentials::test_both_clients_are_let_in"
            " real/test_refusals::test_wrong_token_is_refused_and_not_shown",
            "P": "real/test_credentials::test_both_clients_are_let_in",
            "C": "real/test_producing::test_tls_and_a_token",
        },
    ),
    Row(
        "auth",
        "a token's file is read again for connections and challenges",
        {"D": "daemon/systems/pulsar/source/test_faults::test_a_token_is_read_again_for_connections_and_challenges"},
        open="R",
    ),
    Row(
        "auth",
        "user and password",
        {
            "D": "daemon/net/auth/test_auth::test_a_user_and_a_password",
            "R": "real/test_credentials::test_both_clients_are_let_in"
            " real/test_credentials::test_others_are_refused_and_told_why",
            "P": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "mutual TLS",
        {
            "D": "daemon/net/auth/test_auth::test_a_renewed_certificate_is_used_at_the_next_connection",
            "R": "real/test_credentials::test_both_clients_are_let_in"
            " real/test_credentials::test_others_are_refused_and_told_why",
            "P": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "a certificate's files are read again on reconnect",
        {"D": "daemon/net/auth/test_auth::test_a_renewed_certificate_is_used_at_the_next_connection"},
        open="R",
    ),
    Row(
        "auth",
        "OAuth2 client credentials: discovery, key file",
        {
            "D": "daemon/net/auth/test_auth::test_tokens_that_end_are_renewed_on_a_living_connection"
            " daemon/net/auth/test_auth::test_discovery_that_fails"
            " daemon/net/auth/test_auth::test_keys_that_are_none",
            "R": "real/test_credentials::test_both_clients_are_let_in"
            " real/test_credentials::test_others_are_refused_and_told_why",
            "P": "real/test_credentials::test_both_clients_are_let_in",
        },
    ),
    Row(
        "auth",
        "OAuth2: renewed early, the old token used while that fails",
        {
            "D": "daemon/net/auth/test_auth::test_a_token_is_renewed_before_it_ends"
            " daemon/net/auth/test_auth::test_a_failed_early_renewal_leaves_the_old_token_in_use",
        },
        open="R",
    ),
    Row(
        "auth",
        "challenges while tokens of seconds expire",
        {
            "D": "daemon/net/auth/test_auth::test_tokens_that_end_are_renewed_on_a_living_connection"
            " daemon/net/auth/test_auth::test_a_token_of_seconds_is_followed_by_others",
            "G": "fastwire/pulsar/test_connection::test_a_challenge_before_and_after_connected",
            "R": "real/test_credentials::test_tokens_of_seconds_are_followed_by_others_on_the_same_connection"
            " real/test_credentials::test_a_token_that_nobody_renews_ends_the_connection",
        },
    ),
    Row(
        "message kinds",
        "chunked: put together, all parts acknowledged",
        {
            "D": "daemon/systems/pulsar/source/test_kinds::test_interleaved_parts_become_rows_and_are_acknowledged",
            "G": "fastwire/pulsar/test_completion_chunked"
            "::test_a_chunked_message_is_one_row_with_the_place_of_its_last_part",
            "R": "real/test_kinds::test_chunked_messages",
            "P": "real/test_kinds::test_chunked_messages",
            "C": "real/test_producing::test_chunks"
            " daemon/systems/pulsar/test_producer::test_the_official_client_puts_chunks_together",
        },
    ),
    Row(
        "message kinds",
        "chunked: interleaved with others",
        {
            "D": "daemon/systems/pulsar/source/test_kinds::test_interleaved_parts_become_rows_and_are_acknowledged"
            " daemon/systems/pulsar/source/test_kinds::test_lives_that_end_between_parts_lose_and_double_nothing",
            "G": "fastwire/pulsar/test_completion_chunked::test_interleaved_messages_and_what_stands_between_them",
        },
        open="R",
    ),
    Row(
        "message kinds",
        "chunked: parts that come twice",
        {"G": "fastwire/pulsar/test_completion_chunked::test_parts_that_come_twice_are_covered_and_not_used"},
        open="DR",
    ),
    Row(
        "message kinds",
        "chunked: parts that are lost or do not come in time",
        {
            "D": "daemon/systems/pulsar/source/test_kinds"
            "::test_parts_that_never_come_are_put_aside_when_their_time_is_over",
            "G": "fastwire/pulsar/test_completion_chunked::test_missing_parts_read_in_order",
        },
        open="R",
    ),
    Row(
        "message kinds",
        "encrypted: AES-256-GCM, RSA-OAEP",
        {
            "D": "daemon/systems/pulsar/source/test_kinds::test_encrypted_entries_become_rows",
            "G": "fastwire/pulsar/test_encryption::test_the_bytes_of_the_specification",
            "R": "real/test_kinds::test_encrypted_messages",
            "P": "real/test_kinds::test_encrypted_messages",
            "C": "real/test_producing::test_the_official_client_decrypts",
        },
    ),
    Row(
        "message kinds",
        "encrypted: fail, discard, consume",
        {
            "D": "daemon/systems/pulsar/source/test_kinds::test_what_cannot_be_opened_stops_its_log"
            " daemon/systems/pulsar/source/test_kinds::test_what_cannot_be_opened_is_dropped_or_kept_as_it_is",
            "G": "fastwire/pulsar/test_completion_encrypted::test_fail_stops_before_the_entry"
            " fastwire/pulsar/test_completion_encrypted::test_discard_lands_the_position_alone"
            " fastwire/pulsar/test_completion_encrypted"
            "::test_consume_keeps_the_ciphertext_with_all_it_takes_to_open_it",
            "R": "real/test_kinds::test_encrypted_messages real/test_listening::test_what_no_key_opens",
            "P": "real/test_kinds::test_encrypted_messages real/test_listening::test_what_no_key_opens",
        },
    ),
    Row(
        "message kinds",
        "chunked in the client: acknowledged and rejected as one",
        {
            "D": "daemon/systems/pulsar/client/test_chunked::test_a_rejected_message_comes_again_whole"
            " daemon/systems/pulsar/client/test_chunked"
            "::test_acknowledging_one_message_leaves_others_that_lie_across_it",
            "R": "real/test_settings::test_encrypted_and_chunked_messages_in_the_client",
        },
        open="P",
    ),
    Row(
        "message kinds",
        "chunked in the client: sought and asked for again as one",
        {
            "D": "daemon/systems/pulsar/client/test_chunked::test_asking_for_everything_again_begins_messages_anew"
            " daemon/systems/pulsar/client/test_chunked::test_seeking_a_message_of_several_parts",
        },
        open="RP",
    ),
    Row(
        "message kinds",
        "encrypted in the client: opened",
        {
            "D": "daemon/systems/pulsar/client/test_encrypted::test_what_a_key_opens_comes_out",
            "R": "real/test_settings::test_encrypted_and_chunked_messages_in_the_client",
        },
        open="P",
    ),
    Row(
        "message kinds",
        "encrypted in the client: fail, discard, consume",
        {
            "D": "daemon/systems/pulsar/client/test_encrypted"
            "::test_what_no_key_opens_ends_the_loop_and_is_not_acknowledged"
            " daemon/systems/pulsar/client/test_encrypted::test_discard_acknowledges_and_drops"
            " daemon/systems/pulsar/client/test_encrypted::test_consume_keeps_the_ciphertext",
        },
        open="RP",
    ),
    Row(
        "message kinds",
        "encrypted and opened by the commands produce and tail",
        {"D": "daemon/cli/test_encryption::test_written_for_a_key_and_read_with_it"},
        open="R",
    ),
    Row(
        "message kinds",
        "broker entry metadata before an entry",
        {
            "D": "daemon/systems/pulsar/source/test_old_brokers::test_everything_once_from_a_broker_of_any_age",
            "G": "fastwire/pulsar/test_scan::test_golden_batch_with_broker_entry_metadata_and_ack_set"
            " fastwire/pulsar/test_payload::test_the_worked_batch",
            "R": "real/test_matrix::test_every_column_of_every_row"
            " real/test_brokers::test_entries_are_numbered_by_the_broker",
        },
    ),
    Row(
        "message kinds",
        "compacted_out",
        {
            "D": "daemon/systems/pulsar/source/test_permits::test_what_is_no_row_costs_what_it_costs",
            "G": "fastwire/pulsar/test_permits::test_compacted_out_elements_cost_but_do_not_come",
            "R": "real/test_settings::test_entries_that_compaction_has_thinned_out",
            "P": "real/test_settings::test_entries_that_compaction_has_thinned_out",
        },
    ),
    Row(
        "message kinds",
        "compacted_batch_indexes",
        {
            "D": "daemon/systems/pulsar/source/test_kinds::test_entries_that_compaction_has_thinned_out",
            "G": "fastwire/pulsar/test_completion::test_what_compaction_has_left_keeps_its_index",
        },
        open="R",
    ),
    Row(
        "message kinds",
        "ack_set",
        {
            "D": "daemon/systems/pulsar/source/test_permits"
            "::test_elements_that_were_acknowledged_before_were_never_debited"
            " daemon/systems/pulsar/client/test_consumer::test_what_is_nacked_comes_again_without_what_was_acked",
            "G": "fastwire/pulsar/test_permits::test_ack_set_bits_are_what_costs_and_what_comes",
            "R": "real/test_client::test_single_records_of_a_batch",
            "P": "real/test_client::test_single_records_of_a_batch",
        },
    ),
    Row(
        "message kinds",
        "markers of replication",
        {
            "D": "daemon/systems/pulsar/source/test_permits::test_what_is_no_row_costs_what_it_costs",
            "G": "fastwire/pulsar/test_permits::test_a_marker_costs_and_is_covered_but_is_no_row",
        },
        open="R",
    ),
    Row(
        "message kinds",
        "delayed",
        {
            "G": "fastwire/pulsar/test_producer::test_what_is_to_be_delivered_later_stands_alone",
            "R": "real/test_kinds::test_delayed_messages_and_tombstones",
            "P": "real/test_kinds::test_delayed_messages_and_tombstones",
            "C": "real/test_producing::test_delayed_records_and_tombstones",
        },
        open="D",
    ),
    Row(
        "message kinds",
        "tombstones",
        {
            "D": "daemon/systems/pulsar/client/test_deadletters"
            "::test_what_came_too_often_is_published_and_then_acknowledged",
            "G": "fastwire/pulsar/test_batch::test_rows_are_what_the_oracle_says",
            "R": "real/test_kinds::test_delayed_messages_and_tombstones"
            " real/test_matrix::test_every_column_of_every_row",
            "P": "real/test_kinds::test_delayed_messages_and_tombstones",
            "C": "real/test_producing::test_delayed_records_and_tombstones",
        },
    ),
    Row(
        "message kinds",
        "base64 keys, ordering keys",
        {
            "G": "fastwire/pulsar/test_batch::test_rows_are_what_the_oracle_says",
            "R": "real/test_matrix::test_every_column_of_every_row",
            "C": "real/test_producing::test_every_field_with_every_codec"
            " daemon/systems/pulsar/test_producer::test_the_official_client_reads_every_field",
        },
        open="D",
    ),
    Row(
        "message kinds",
        "every other column: headers, times, producers, sequence ids",
        {
            "G": "fastwire/pulsar/test_batch::test_rows_are_what_the_oracle_says",
            "R": "real/test_matrix::test_every_column_of_every_row",
            "P": "real/test_matrix::test_every_column_of_every_row",
        },
        open="D",
    ),
    Row(
        "message kinds",
        "damaged entries: a dead letter each, no sound record lost",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_damaged_entries_are_put_aside_and_confirmed"
            " daemon/systems/pulsar/source/test_faults::test_on_corrupt_stop",
            "G": "fastwire/pulsar/test_batch::test_a_damaged_batch_leaves_nothing_behind"
            " fastwire/pulsar/test_completion::test_mutated_entries_never_break_the_accounts",
        },
        open="R",
    ),
]
