"""The rows of Pulsar on who reads and writes: flow, subscriptions, acknowledgements, positions, producers, commands."""

from tests.matrix.table import Row

__all__ = ["ROWS"]

ROWS = [
    Row(
        "flow",
        "permits, each row of the table",
        {
            "D": "daemon/systems/pulsar/source/test_permits::test_what_is_no_row_costs_what_it_costs"
            " daemon/systems/pulsar/source/test_permits::test_what_has_landed_and_comes_again"
            " daemon/systems/pulsar/source/test_permits::test_what_lies_before_the_start"
            " daemon/systems/pulsar/source/test_permits"
            "::test_elements_that_were_acknowledged_before_were_never_debited"
            " daemon/systems/pulsar/source/test_permits::test_entries_that_are_sent_twice"
            " daemon/systems/pulsar/source/test_permits::test_a_new_connection_begins_with_a_whole_window"
            " daemon/systems/pulsar/source/test_permits::test_a_seek_on_the_way_costs_nothing",
            "G": "fastwire/pulsar/test_permits::test_the_golden_batch_costs_two"
            " fastwire/pulsar/test_permits::test_each_chunk_costs_one"
            " fastwire/pulsar/test_permits::test_a_batch_costs_its_messages"
            " fastwire/pulsar/test_permits::test_entries_that_come_again_cost_again"
            " fastwire/pulsar/test_permits::test_a_checksum_failure_costs_what_the_command_says",
        },
        open="R",
    ),
    Row(
        "flow",
        "permits of batches as the broker counts them",
        {"R": "real/test_settings::test_permits_are_counted_as_the_broker_does"},
    ),
    Row(
        "flow",
        "a slow sink keeps its connection",
        {
            "D": "daemon/systems/pulsar/source/test_room::test_while_nothing_is_read_the_connection_lives",
            "G": "fastwire/pulsar/test_connection::test_while_reading_is_paused_we_ping_and_judge_nobody",
            "R": "real/test_faults::test_slow_sink_keeps_its_connection",
        },
    ),
    Row(
        "flow",
        "the limit of unacknowledged messages: seen, told, committed early",
        {
            "D": "daemon/systems/pulsar/source/test_roles::test_a_limit_of_unacknowledged_messages_is_told_by_its_name"
            " daemon/pipeline/test_pipeline::test_a_stalled_broker_is_committed_for",
            "R": "real/test_matrix::test_a_limit_on_unacknowledged_messages_commits_early",
        },
    ),
    Row(
        "flow",
        "permits that damage has cost come back",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_permits_lost_to_damage_come_back_in_place"
            " daemon/systems/pulsar/client/test_chunked::test_permits_that_damage_has_cost_come_back",
        },
        open="R",
    ),
    Row(
        "flow",
        "a wrong count of permits is made right by the broker's, in the client",
        {"R": "real/test_settings::test_permits_are_counted_as_the_broker_does"},
    ),
    Row(
        "subscribing",
        "consumer name and properties, subscription properties, replicated state, initial schema",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_what_the_client_says"
            " daemon/systems/pulsar/client/test_options::test_what_a_pipeline_says"
            " daemon/systems/pulsar/client/test_topics::test_every_consumer_has_a_name",
            "R": "real/test_settings::test_the_broker_shows_what_the_client_says"
            " real/test_settings::test_the_broker_shows_what_a_pipeline_says"
            " real/test_settings::test_the_name_of_each_consumer",
        },
    ),
    Row(
        "subscribing",
        "priority level",
        {
            "D": "daemon/systems/pulsar/client/test_options"
            "::test_consumers_of_a_lower_priority_get_what_the_others_do_not_take",
            "R": "real/test_settings::test_consumers_of_a_lower_priority_wait",
        },
    ),
    Row(
        "subscribing",
        "read_compacted",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_what_the_client_says"
            " daemon/systems/pulsar/client/test_options::test_what_a_pipeline_says",
            "R": "real/test_settings::test_only_the_newest_record_of_each_key"
            " real/test_kinds::test_a_compacted_topic_is_read_whole",
        },
    ),
    Row(
        "subscribing",
        "Key_Shared: sticky ranges",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_keys_go_where_their_hash_belongs",
            "R": "real/test_settings::test_keys_go_where_their_hash_belongs",
        },
    ),
    Row(
        "subscribing",
        "Key_Shared: any order is asked for, and shown by the broker",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_keys_go_where_their_hash_belongs",
            "R": "real/test_settings::test_keys_go_where_their_hash_belongs",
        },
    ),
    Row(
        "subscribing",
        "unsubscribe",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_unsubscribing_deletes_the_subscription",
            "R": "real/test_settings::test_unsubscribing_deletes_the_subscription",
        },
    ),
    Row(
        "subscribing",
        "refused: combinations that mean nothing, non-persistent topics",
        {
            "D": "daemon/systems/pulsar/client/test_options::test_combinations_that_mean_nothing"
            " daemon/systems/pulsar/client/test_topics::test_non_persistent_topics_are_refused"
            " daemon/systems/pulsar/source/test_source::test_refused_for_good",
        },
    ),
    Row(
        "subscribing",
        "peers share a subscription, and take over from each other",
        {
            "D": "daemon/systems/pulsar/source/test_roles::test_failover_hands_over_with_the_coverage_of_the_other"
            " daemon/systems/pulsar/source/test_roles::test_peers_share_and_nothing_comes_twice"
            " crash/test_others::test_two_daemons_with_one_subscription",
        },
        open="R",
    ),
    Row(
        "acks",
        "grouping",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_acks_go_out_in_groups_and_before_leaving",
            "G": "fastwire/pulsar/test_consumer::test_acks_are_grouped_by_time_and_by_number"
            " fastwire/pulsar/test_ack::test_runs"
            " fastwire/pulsar/test_ack::test_cumulative",
        },
        open="R",
    ),
    Row(
        "acks",
        "receipts",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_receipts_outlive_a_connection",
            "G": "fastwire/pulsar/test_connection_requests::test_acks_have_receipts_where_brokers_give_them",
            "R": "real/test_client::test_single_records_of_a_batch",
        },
    ),
    Row(
        "acks",
        "what has landed and comes again is cut and acknowledged again",
        {
            "D": "daemon/systems/pulsar/source/test_firstposition"
            "::test_landed_records_that_come_again_are_cut_and_acknowledged"
            " crash/test_kill::test_what_has_landed_is_acknowledged_by_the_next_run",
            "G": "fastwire/pulsar/test_consumer::test_landed_entries_delivered_again_are_acknowledged_again",
            "R": "crash/test_kill::test_what_has_landed_is_acknowledged_to_a_real_broker",
        },
    ),
    Row(
        "acks",
        "batch indexes",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_single_records",
            "G": "fastwire/pulsar/test_client_parts::test_acks_of_elements_as_protobuf_reads_them",
            "R": "real/test_client::test_single_records_of_a_batch",
        },
    ),
    Row(
        "acks",
        "negative acks",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_what_is_nacked_comes_again_without_what_was_acked",
            "R": "real/test_client::test_nacks_and_dead_letters",
        },
    ),
    Row(
        "acks",
        "backoff of negative acks grows with redeliveries",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_backoff_grows_with_redeliveries",
            "G": "fastwire/pulsar/test_client_parts::test_backoff_multiplies_up_to_its_end",
        },
        open="R",
    ),
    Row(
        "acks",
        "ack timeout",
        {"D": "daemon/systems/pulsar/client/test_consumer::test_what_is_not_acknowledged_in_time_comes_again"},
        open="R",
    ),
    Row(
        "acks",
        "everything again on demand",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_everything_again_on_demand",
            "R": "real/test_client::test_a_restart_of_the_broker",
        },
    ),
    Row(
        "acks",
        "consumer_epoch: what was on the way before does not come",
        {"G": "fastwire/pulsar/test_permits::test_an_older_epoch_costs_but_does_not_come"},
        open="DR",
    ),
    Row(
        "dead letters",
        "the dead-letter topic: standard properties, published before the ack",
        {
            "D": "daemon/systems/pulsar/client/test_deadletters"
            "::test_what_came_too_often_is_published_and_then_acknowledged"
            " daemon/systems/pulsar/client/test_deadletters::test_nothing_is_acknowledged_before_it_is_stored",
            "G": "fastwire/pulsar/test_client_parts::test_properties_keep_where_a_record_came_from_first",
            "R": "real/test_client::test_nacks_and_dead_letters",
            "P": "real/test_client::test_nacks_and_dead_letters",
            "C": "real/test_client::test_nacks_and_dead_letters",
        },
    ),
    Row(
        "dead letters",
        "the retry topic",
        {
            "D": "daemon/systems/pulsar/client/test_deadletters::test_another_try_by_the_retry_topic",
            "G": "fastwire/pulsar/test_client_parts::test_properties_keep_where_a_record_came_from_first",
        },
        open="RC",
    ),
    Row(
        "dead letters",
        "chunked messages as a whole, encrypted ones under their own data key",
        {
            "D": "daemon/systems/pulsar/client/test_chunked::test_a_message_that_came_too_often_is_one_dead_letter"
            " daemon/systems/pulsar/client/test_encrypted::test_dead_letters_are_encrypted_for_the_same_readers",
            "R": "real/test_settings::test_a_large_encrypted_message_becomes_one_dead_letter",
            "C": "real/test_settings::test_a_large_encrypted_message_becomes_one_dead_letter",
        },
    ),
    Row(
        "positions",
        "a pipeline's start: earliest, latest",
        {
            "D": "daemon/systems/test_conformance::test_start_latest"
            " crash/test_others::test_start_at_latest_killed_before_the_first_commit",
            "R": "crash/test_others::test_start_at_latest_on_a_real_broker"
            " real/test_matrix::test_every_column_of_every_row",
        },
    ),
    Row(
        "positions",
        "a pipeline's start: a time, a position",
        {
            "D": "daemon/systems/pulsar/source/test_firstposition::test_start_at_a_time"
            " daemon/systems/test_conformance::test_start_at_a_position",
        },
        open="R",
    ),
    Row(
        "positions",
        "a log that has lost what had landed stops, and skipped entries are a declared gap",
        {
            "D": "daemon/systems/pulsar/source/test_firstposition"
            "::test_less_than_has_landed_stops_the_log_and_names_incarnation"
            " daemon/systems/pulsar/source/test_firstposition::test_what_the_broker_has_skipped_is_a_declared_gap",
        },
        open="R",
    ),
    Row(
        "positions",
        "seek by id, time, to both ends",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_seeks",
            "G": "fastwire/pulsar/test_connection_requests::test_seek_to_a_place_or_a_time",
            "R": "real/test_client::test_seeks",
        },
    ),
    Row(
        "positions",
        "readers from an id, a time, seconds ago, inclusive and not; last id, has-more",
        {
            "D": "daemon/systems/pulsar/client/test_reader::test_from_a_message_on"
            " daemon/systems/pulsar/client/test_reader::test_times_and_ends"
            " daemon/systems/pulsar/client/test_consumer::test_ids_of_records",
            "R": "real/test_client::test_readers",
        },
    ),
    Row(
        "positions",
        "message ids as bytes and text, as official clients write them",
        {
            "D": "daemon/systems/pulsar/client/test_consumer::test_ids_of_records",
            "G": "fastwire/pulsar/test_client_parts::test_message_ids_in_bytes_and_text"
            " fastwire/pulsar/test_client_parts::test_the_ends_as_official_clients_write_them",
            "R": "real/test_client::test_seeks",
        },
    ),
    Row(
        "life",
        "closed by the broker, with an address and without",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_consumers_that_the_broker_closes"
            " daemon/systems/pulsar/source/test_faults::test_a_topic_that_moves_to_a_named_broker",
            "G": "fastwire/pulsar/test_connection_notices::test_notices_become_events",
            "R": "real/test_faults::test_topic_unloaded_under_load_with_an_open_roll",
        },
    ),
    Row(
        "life",
        "connections that are cut, a broker that restarts",
        {
            "D": "daemon/systems/test_conformance::test_connections_that_are_cut_anywhere"
            " daemon/systems/test_conformance::test_a_broker_that_restarts",
            "R": "real/test_faults::test_connection_cut_in_the_middle_of_a_frame"
            " real/test_faults::test_broker_restarted_under_load_with_an_open_roll",
        },
    ),
    Row(
        "life",
        "killed at every step and at random",
        {
            "D": "crash/test_kill::test_killed_at_every_step crash/test_kill::test_killed_at_random",
            "R": "crash/test_kill::test_killed_on_a_real_broker",
        },
    ),
    Row(
        "life",
        "migration",
        {
            "D": "daemon/systems/pulsar/source/test_addresses"
            "::test_a_topic_that_migrates_is_read_on_in_its_new_cluster",
            "G": "fastwire/pulsar/test_connection_notices::test_notices_become_events",
        },
        open="R",
    ),
    Row(
        "life",
        "the end of a topic",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_a_terminated_topic_is_read_to_its_end"
            " daemon/systems/pulsar/client/test_consumer::test_the_end_of_a_topic_ends_the_loop",
            "G": "fastwire/pulsar/test_connection_notices::test_notices_become_events",
            "R": "real/test_topics::test_a_terminated_topic_is_read_to_its_end",
        },
    ),
    Row(
        "life",
        "error codes",
        {
            "D": "daemon/systems/pulsar/source/test_source::test_refused_for_good"
            " daemon/systems/pulsar/source/test_roles::test_a_busy_subscription_is_waited_for",
            "G": "fastwire/pulsar/test_namespace::test_every_error_has_its_remedy"
            " fastwire/pulsar/test_connection_requests::test_each_way_to_say_no",
            "R": "real/test_refusals::test_missing_topic"
            " real/test_refusals::test_role_without_permission"
            " real/test_refusals::test_exclusive_subscription_that_somebody_has_is_waited_for",
        },
    ),
    Row(
        "life",
        "TooManyRequests",
        {
            "D": "daemon/systems/pulsar/source/test_topics::test_too_many_requests_are_asked_again",
            "R": "real/test_listening::test_too_many_lookups",
        },
    ),
    Row(
        "life",
        "keep-alive: a silent broker is left",
        {
            "D": "daemon/systems/pulsar/source/test_faults::test_a_silent_broker_is_left",
            "G": "fastwire/pulsar/test_connection::test_silence_is_answered_by_a_ping_and_then_by_closing",
            "R": "real/test_faults::test_peer_that_falls_silent_is_left_and_found_again",
        },
    ),
    Row(
        "life",
        "keep-alive: pings are answered, the broker does not leave us",
        {
            "D": "daemon/systems/pulsar/source/test_room::test_while_nothing_is_read_the_connection_lives",
            "G": "fastwire/pulsar/test_connection_notices::test_a_ping_is_answered_at_once",
            "R": "real/test_faults::test_slow_sink_keeps_its_connection",
        },
    ),
    Row(
        "life",
        "protocol versions 12 to 21, flags on and off",
        {
            "D": "daemon/systems/pulsar/source/test_old_brokers::test_everything_once_from_a_broker_of_any_age"
            " daemon/systems/pulsar/source/test_old_brokers::test_positions_on_a_broker_of_any_age",
            "G": "fastwire/pulsar/test_connection::test_the_lower_version_counts_and_too_low_is_refused",
        },
        open="R",
    ),
    Row(
        "schema",
        "GET_SCHEMA by version, kept",
        {
            "D": "daemon/systems/pulsar/test_schemas::test_a_version_is_asked_for_once",
            "G": "daemon/systems/pulsar/test_schemas::test_an_answer_becomes_a_schema",
            "R": "real/test_schemas::test_each_version_is_asked_for",
            "P": "real/test_schemas::test_each_version_is_asked_for",
        },
    ),
    Row(
        "schema",
        "the version in the row",
        {
            "D": "daemon/cli/test_tail::test_tail_shows_each_schema_before_its_records",
            "G": "fastwire/pulsar/test_batch::test_rows_are_what_the_oracle_says",
            "R": "real/test_matrix::test_every_column_of_every_row",
            "P": "real/test_matrix::test_every_column_of_every_row",
        },
    ),
    Row(
        "producer",
        "batches by count and key; keys; every codec",
        {
            "D": "daemon/systems/pulsar/test_producer::test_the_official_client_reads_every_field",
            "G": "fastwire/pulsar/test_producer::test_a_batch_is_closed_by_its_count"
            " fastwire/pulsar/test_producer::test_one_batch_for_each_key",
            "R": "real/test_producing::test_every_field_with_every_codec",
            "C": "real/test_producing::test_every_field_with_every_codec",
        },
    ),
    Row(
        "producer",
        "batches by bytes and delay",
        {
            "G": "fastwire/pulsar/test_producer::test_a_batch_is_closed_by_its_bytes"
            " fastwire/pulsar/test_producer::test_a_batch_is_closed_by_its_age",
        },
        open="DR",
    ),
    Row(
        "producer",
        "receipts, sent again in order, sequence ids",
        {
            "D": "daemon/systems/pulsar/test_producer::test_whatever_is_lost_everything_is_stored_once_and_in_order"
            " daemon/systems/pulsar/test_producer::test_numbers_go_on_and_what_is_stored_is_not_stored_again",
            "G": "fastwire/pulsar/test_producer_faults::test_everything_without_a_receipt_is_sent_again_in_order",
            "R": "real/test_producing::test_lost_connections_and_an_unload_lose_and_double_nothing",
            "C": "real/test_producing::test_lost_connections_and_an_unload_lose_and_double_nothing",
        },
    ),
    Row(
        "producer",
        "access modes",
        {
            "D": "daemon/systems/pulsar/test_producer::test_exclusive_access"
            " daemon/systems/pulsar/test_producer::test_waiting_for_exclusive_access"
            " daemon/systems/pulsar/test_producer::test_fencing_takes_the_topic_away",
            "R": "real/test_producing::test_access_modes",
        },
    ),
    Row(
        "producer",
        "routing by Java's hash, and in turns without a key",
        {
            "D": "daemon/systems/pulsar/test_producer::test_keys_choose_the_partition_as_in_java"
            " daemon/systems/pulsar/test_producer::test_without_a_key_the_partition_changes_with_the_batch",
            "G": "fastwire/pulsar/test_router::test_javas_hash",
            "R": "real/test_producing::test_keys_and_turns_over_partitions",
            "C": "real/test_producing::test_keys_and_turns_over_partitions",
        },
    ),
    Row(
        "producer",
        "routing by Murmur3",
        {
            "D": "daemon/systems/pulsar/test_producer::test_keys_choose_the_partition_as_in_java",
            "G": "fastwire/pulsar/test_router::test_murmur3",
        },
        open="RC",
    ),
    Row(
        "producer",
        "schema on create",
        {
            "D": "daemon/systems/pulsar/test_producer::test_a_schema_is_registered_and_named_by_each_entry",
            "R": "real/test_producing::test_a_schema_is_registered",
            "C": "real/test_producing::test_a_schema_is_registered",
        },
    ),
    Row(
        "producer",
        "the command: lines, JSON lines, load",
        {
            "R": "real/test_producing::test_the_command",
            "C": "real/test_producing::test_the_command",
        },
        open="D",
    ),
    Row(
        "stats",
        "consumer stats of the broker in /status",
        {
            "D": "daemon/systems/test_lag::test_the_backlog_is_what_has_not_landed",
            "R": "real/test_lag::test_the_backlog_of_an_open_roll",
        },
    ),
    Row(
        "tail",
        "shows records and leaves no trace",
        {
            "D": "daemon/cli/test_tail::test_tail_shows_records_and_leaves_no_trace"
            " daemon/cli/test_tail::test_tail_of_a_pattern",
        },
        open="R",
    ),
    Row(
        "Spark",
        "batches and streams, each record once",
        {
            "D": "daemon/spark/source/pulsar/test_rangereader::test_a_range_is_all_between_its_ends"
            " daemon/spark/source/pulsar/test_rangereader::test_a_cut_connection_goes_on_where_it_was"
            " daemon/spark/source/datasource/test_stream"
            "::test_a_driver_that_dies_in_a_later_batch_reads_the_same_again",
            "R": "real/test_spark_source::test_batches_and_streams_through_unloads",
            "P": "real/test_spark_source::test_batches_and_streams_through_unloads",
        },
    ),
    Row(
        "Spark",
        "frames and streams are written, each key to the partition of the Java client",
        {
            "D": "daemon/spark/sink/test_datawriter::test_rows_become_records_of_each_system"
            " daemon/spark/sink/test_datawriter::test_keys_go_to_the_partitions_of_java"
            " spark/test_sink::test_a_stream_is_written_and_goes_on_after_a_restart",
        },
        open="R",
    ),
]
