"""The matrix of Kafka: what is shown to work, and by which witness.

The cluster of three real nodes (``real/test_kafka_cluster``) runs in the soak alone, so its marks are open elsewhere.
"""

from tests.matrix.table import Row

__all__ = ["ROWS"]

ROWS = [
    Row(
        "versions",
        "the highest common version of each request, brokers 0.11 to 4.1",
        {
            "D": "daemon/systems/kafka/source/test_source::test_all_partitions_once_and_all_offsets_committed",
            "G": "fastwire/kafka/test_connection::test_the_highest_common_version"
            " fastwire/kafka/test_message::test_requests"
            " fastwire/kafka/test_message::test_responses",
            "R": "real/test_kafka::test_every_field real/test_kafka_old::test_old_message_sets",
        },
    ),
    Row(
        "versions",
        "a broker too old for our ApiVersions",
        {
            "D": "daemon/systems/kafka/source/test_source::test_all_partitions_once_and_all_offsets_committed",
            "G": "fastwire/kafka/test_connection::test_a_broker_too_old_for_the_question_is_asked_again"
            " fastwire/kafka/test_connection::test_a_broker_that_knows_no_version_of_the_question",
        },
        open="R",
    ),
    Row(
        "versions",
        "a broker without a version in common",
        {
            "D": "daemon/systems/kafka/test_hostile_brokers::test_a_broker_that_offers_nothing_is_refused",
            "G": "fastwire/kafka/test_connection::test_no_common_version",
        },
    ),
    Row(
        "login",
        "SASL PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512",
        {
            "D": "daemon/systems/kafka/source/test_logins::test_all_of_it_is_read",
            "G": "fastwire/kafka/test_sasl::test_scram_to_the_byte"
            " fastwire/kafka/test_sasl::test_plain_and_bearer_to_the_byte",
            "R": "real/test_kafka_credentials::test_passwords",
        },
    ),
    Row(
        "login",
        "at brokers before 1.0",
        {
            "D": "daemon/systems/kafka/source/test_logins::test_all_of_it_is_read"
            " daemon/systems/kafka/source/test_logins::test_brokers_before_1_0_refuse_without_a_word",
        },
        open="R",
    ),
    Row(
        "login",
        "OAUTHBEARER with a file's and an issuer's tokens",
        {
            "G": "fastwire/kafka/test_sasl::test_plain_and_bearer_to_the_byte",
            "R": "real/test_kafka_credentials::test_tokens"
            " real/test_kafka_credentials::test_tokens_of_an_issuer_are_renewed_on_the_same_connection",
        },
        open="D",
    ),
    Row(
        "login",
        "repeated on the living connection before it ends",
        {
            "D": "daemon/systems/kafka/source/test_logins::test_logins_are_repeated_on_the_same_connections",
            "G": "fastwire/kafka/test_connection::test_another_login_before_the_first_one_ends",
            "R": "real/test_kafka_credentials::test_logins_are_repeated_before_they_end"
            " real/test_kafka_credentials::test_tokens_of_an_issuer_are_renewed_on_the_same_connection",
        },
    ),
    Row(
        "login",
        "refusals in the broker's words, without the secret",
        {
            "D": "daemon/systems/kafka/source/test_logins"
            "::test_a_refused_login_is_told_in_the_brokers_words_and_tried_again"
            " daemon/systems/kafka/source/test_logins::test_a_mechanism_that_is_not_offered",
            "G": "fastwire/kafka/test_connection::test_a_refused_login_says_what_the_broker_says_and_no_secret",
            "R": "real/test_kafka_credentials::test_a_wrong_password"
            " real/test_kafka_credentials::test_a_mechanism_that_the_broker_does_not_offer",
        },
    ),
    Row(
        "login",
        "TLS, with and without a client certificate",
        {
            "D": "daemon/systems/kafka/source/test_logins::test_tls_with_and_without_a_certificate",
            "R": "real/test_kafka_credentials::test_tls_alone"
            " real/test_kafka_credentials::test_the_certificate_of_a_client"
            " real/test_kafka_credentials::test_nobody_without_a_certificate",
        },
    ),
    Row(
        "login",
        "a topic or group without permission",
        {
            "R": "real/test_kafka_credentials::test_a_user_without_permission",
        },
        open="D",
    ),
    Row(
        "records",
        "every field: nulls, empty texts, headers, large values",
        {
            "G": "fastwire/kafka/test_scan::test_stored_records"
            " fastwire/kafka/test_records::test_any_mixture_of_records",
            "R": "real/test_kafka::test_every_field",
            "P": "real/test_kafka::test_every_field real/test_kafka_java::test_tools_as_producers",
            "C": "real/test_kafka_producing::test_every_field",
        },
        open="D",
    ),
    Row(
        "records",
        "every codec",
        {
            "D": "daemon/systems/kafka/source/test_source::test_codecs",
            "G": "fastwire/kafka/test_scan::test_stored_records"
            " fastwire/kafka/test_records::test_lz4_frames_of_every_kind",
            "R": "real/test_kafka::test_every_field",
            "P": "real/test_kafka::test_every_field",
            "C": "real/test_kafka_producing::test_every_field",
        },
    ),
    Row(
        "records",
        "message sets of versions 0 and 1",
        {
            "G": "fastwire/kafka/test_scan::test_stored_records"
            " fastwire/kafka/test_damage::test_a_wrapper_of_offset_0_has_a_span",
            "R": "real/test_kafka_old::test_old_message_sets",
            "P": "real/test_kafka_old::test_old_message_sets",
        },
        open="D",
    ),
    Row(
        "records",
        "create time and log append time",
        {
            "G": "fastwire/kafka/test_payload::test_holes_and_append_time"
            " fastwire/kafka/test_scan::test_stored_records",
            "R": "real/test_kafka::test_every_field real/test_kafka::test_times_of_the_broker",
            "P": "real/test_kafka::test_every_field real/test_kafka::test_times_of_the_broker",
        },
        open="D",
    ),
    Row(
        "records",
        "aborted transactions, control batches",
        {
            "D": "daemon/systems/kafka/source/test_source::test_committed_transactions_only",
            "G": "fastwire/kafka/test_scan::test_aborted_transactions_are_not_delivered"
            " fastwire/kafka/test_scan::test_a_span_covers_what_was_aborted",
            "R": "real/test_kafka::test_aborted_transactions",
            "P": "real/test_kafka::test_aborted_transactions real/test_kafka_java::test_tools_as_producers",
        },
    ),
    Row(
        "records",
        "compacted logs: holes within batches",
        {
            "D": "crash/test_campaign::test_fifty_accidents",
            "G": "fastwire/kafka/test_scan::test_stored_records"
            " fastwire/kafka/test_payload::test_holes_and_append_time",
        },
        open="R",
    ),
    Row(
        "records",
        "compacted logs: holes between batches",
        {
            "G": "fastwire/kafka/test_scan::test_stored_records"
            " fastwire/kafka/test_scan::test_the_next_offset_comes_from_the_head_of_the_last_batch",
        },
        open="DR",
    ),
    Row(
        "records",
        "damaged batches: one dead letter, no sound record lost",
        {
            "D": "daemon/systems/kafka/source/test_losses::test_a_damaged_batch_costs_nothing_but_itself"
            " daemon/systems/kafka/source/test_losses::test_damage_at_the_end_of_the_log",
            "G": "fastwire/kafka/test_damage::test_any_byte_of_any_batch"
            " fastwire/kafka/test_scan::test_malformed_records",
        },
        open="R",
    ),
    Row(
        "records",
        "batches that would become more than the memory: dead letters",
        {
            "D": "crash/test_dead_letters::test_bombs_stay_within_the_budget",
            "G": "fastwire/kafka/test_limits::test_a_batch_becomes_an_eighth_of_the_budget_at_most",
        },
    ),
    Row(
        "fetching",
        "answers cut anywhere, in the middle of a batch",
        {
            "D": "daemon/systems/kafka/source/test_source::test_small_answers"
            " daemon/systems/test_conformance::test_connections_that_are_cut_anywhere",
            "G": "fastwire/kafka/test_scan::test_every_cut_gives_the_same"
            " fastwire/kafka/test_scan::test_batches_are_decoded_before_the_response_is_whole",
            "R": "real/test_faults::test_connection_cut_in_the_middle_of_a_frame",
        },
    ),
    Row(
        "fetching",
        "sessions of many partitions, and sessions that are lost",
        {
            "D": "daemon/systems/kafka/source/test_source::test_sessions_of_many_idle_partitions",
            "G": "fastwire/kafka/test_fetch::test_a_session_names_what_has_changed"
            " fastwire/kafka/test_fetch::test_a_session_that_is_gone_is_opened_anew",
        },
        open="R",
    ),
    Row(
        "fetching",
        "leaders that move, with hints and without",
        {
            "D": "daemon/systems/kafka/source/test_source::test_leaders_that_move"
            " daemon/systems/kafka/source/test_source::test_a_partition_without_a_leader_for_a_while",
            "G": "fastwire/kafka/test_scan::test_tags_say_where_logs_part_and_who_leads"
            " fastwire/kafka/test_metadata::test_a_hint_of_a_newer_leader",
            "R": "real/test_kafka_cluster::test_nothing_is_lost_or_doubled_but_what_the_cluster_loses",
        },
    ),
    Row(
        "fetching",
        "a partition without a leader waits alone, and is named",
        {
            "D": "daemon/systems/kafka/source/test_leaders::test_a_partition_without_a_leader_at_the_start_waits_alone"
            " daemon/systems/kafka/source/test_leaders::test_until_end_lands_the_others_and_names_the_one",
            "R": "real/test_kafka_cluster::test_nothing_is_lost_or_doubled_but_what_the_cluster_loses",
        },
    ),
    Row(
        "fetching",
        "from the replica in our rack, from the leader where that fails (KIP-392)",
        {
            "D": "daemon/systems/kafka/source/test_racks::test_records_come_from_our_rack"
            " daemon/systems/kafka/source/test_racks::test_a_replica_that_refuses_is_left_for_the_leader"
            " daemon/systems/kafka/source/test_racks::test_a_replica_that_cannot_be_reached_is_left_for_the_leader",
        },
        open="R",
    ),
    Row(
        "fetching",
        "quotas: throttled clients are silent, and it is told",
        {
            "D": "daemon/systems/kafka/source/test_throttle"
            "::test_a_throttle_shows_in_metrics_and_status_and_costs_no_connection",
            "G": "fastwire/kafka/test_connection::test_a_throttled_client_is_silent_as_long_as_it_is_told_to",
        },
        open="R",
    ),
    Row(
        "fetching",
        "a slow sink keeps its connection",
        {
            "G": "fastwire/kafka/test_connection::test_time_that_nothing_is_read_in_does_not_count",
            "R": "real/test_faults::test_slow_sink_keeps_its_connection",
        },
        open="D",
    ),
    Row(
        "positions",
        "start: earliest, latest",
        {
            "D": "daemon/systems/kafka/source/test_source::test_start",
            "R": "crash/test_others::test_start_at_latest_on_a_real_broker real/test_kafka::test_every_field",
        },
    ),
    Row(
        "positions",
        "start: times",
        {
            "D": "daemon/systems/kafka/source/test_source::test_start",
        },
        open="R",
    ),
    Row(
        "positions",
        "offsets of the group: committed after landing",
        {
            "D": "daemon/systems/kafka/source/test_source::test_all_partitions_once_and_all_offsets_committed"
            " crash/test_kill::test_what_has_landed_is_acknowledged_by_the_next_run",
            "R": "real/test_kafka::test_the_group_has_what_has_landed"
            " crash/test_kill::test_what_has_landed_is_acknowledged_to_a_real_broker",
        },
    ),
    Row(
        "positions",
        "offsets of the group: where a dataset begins that does not know the log",
        {
            "D": "daemon/systems/kafka/source/test_source::test_the_offset_of_the_group"
            " daemon/systems/kafka/source/test_leaders"
            "::test_an_offset_of_the_group_outside_of_the_log_leaves_it_to_start",
        },
        open="R",
    ),
    Row(
        "positions",
        "truncation and unclean elections: nothing lost lands, and reading goes on behind the break if it may",
        {
            "D": "daemon/systems/kafka/source/test_losses::test_what_is_lost_before_it_has_landed_never_lands"
            " daemon/systems/kafka/source/test_losses::test_reading_goes_on_behind_a_break"
            " daemon/systems/kafka/source/test_truncation::test_whatever_a_cluster_loses",
            "R": "real/test_kafka_cluster::test_nothing_is_lost_or_doubled_but_what_the_cluster_loses",
        },
    ),
    Row(
        "positions",
        "truncation of what had landed stops its log",
        {
            "D": "daemon/systems/kafka/source/test_losses::test_truncation_stops_the_log"
            " daemon/systems/kafka/source/test_losses::test_truncation_under_a_log_that_grew_again"
            " daemon/systems/kafka/source/test_losses::test_truncation_while_nobody_read",
        },
        open="R",
    ),
    Row(
        "positions",
        "retention is a declared gap",
        {
            "D": "daemon/systems/kafka/source/test_losses::test_retention_leaves_a_declared_gap",
        },
        open="R",
    ),
    Row(
        "topics",
        "partitions that are added, read from earliest",
        {
            "D": "daemon/systems/test_topics::test_partitions_are_added"
            " daemon/systems/test_topics::test_a_partition_added_while_we_were_away_is_read_from_its_beginning",
            "R": "real/test_topics::test_topics_of_a_pattern_come_and_go",
        },
    ),
    Row(
        "topics",
        "patterns: topics come, go and come again",
        {
            "D": "daemon/systems/test_topics::test_topics_of_a_pattern_come_and_go_and_come_again"
            " daemon/systems/test_topics::test_two_members_share_what_their_pattern_finds",
            "R": "real/test_topics::test_topics_of_a_pattern_come_and_go",
        },
    ),
    Row(
        "topics",
        "topics of the broker itself are left out",
        {
            "D": "daemon/systems/test_topics::test_topics_of_the_broker_itself_are_left_out",
        },
        open="R",
    ),
    Row(
        "topics",
        "a topic made again is another log",
        {
            "D": "daemon/systems/kafka/source/test_recreated::test_a_topic_that_is_made_again_is_a_new_log"
            " daemon/systems/test_topics::test_a_topic_made_again_while_we_were_away_is_read_from_its_beginning",
            "R": "real/test_faults::test_topic_deleted_and_made_again"
            " real/test_faults::test_topic_deleted_and_made_again_under_a_running_daemon",
        },
    ),
    Row(
        "groups",
        "classic and KIP-848: members share, come and go",
        {
            "D": "daemon/systems/kafka/source/test_source::test_two_members_share_and_hand_over",
            "G": "fastwire/kafka/test_membership::test_a_leader_shares_out"
            " fastwire/kafka/test_membership::test_the_exchange_that_was_seen",
            "R": "real/test_kafka_group::test_members_killed_added_and_paused"
            " real/test_kafka_group::test_handed_over_in_order",
        },
    ),
    Row(
        "groups",
        "members that die and sleep",
        {
            "D": "crash/test_campaign::test_fifty_accidents",
            "R": "real/test_kafka_group::test_members_killed_added_and_paused",
        },
    ),
    Row(
        "groups",
        "static members",
        {
            "D": "daemon/systems/kafka/source/test_source"
            "::test_a_static_member_that_comes_back_reads_what_is_new_to_it",
            "G": "fastwire/kafka/test_membership::test_only_those_leave_who_do_not_come_back",
            "R": "real/test_kafka_group::test_a_static_member_restarts"
            " real/test_kafka_group::test_a_static_member_comes_back_for_more",
        },
    ),
    Row(
        "groups",
        "assignors: range, cooperative-sticky",
        {
            "D": "daemon/systems/kafka/source/test_source"
            "::test_a_static_member_that_comes_back_reads_what_is_new_to_it",
            "G": "fastwire/kafka/test_assignor::test_ranges_are_the_same_as_official_ones"
            " fastwire/kafka/test_assignor::test_cooperative_against_the_official_one",
            "R": "real/test_kafka_group::test_beside_an_official_consumer",
        },
    ),
    Row(
        "groups",
        "assignors: roundrobin, sticky",
        {
            "G": "fastwire/kafka/test_assignor::test_round_robin_is_the_same_as_the_official_one"
            " fastwire/kafka/test_assignor::test_rounds_of_members_that_come_and_go",
        },
        open="DR",
    ),
    Row(
        "groups",
        "members get partitions with a replica in their rack (KIP-881)",
        {
            "D": "daemon/systems/kafka/source/test_racks::test_members_get_the_partitions_of_their_racks"
            " daemon/systems/kafka/source/test_racks::test_a_member_says_its_rack",
            "G": "fastwire/kafka/test_assignor::test_ranges_are_the_same_as_official_ones"
            " fastwire/kafka/test_assignor::test_ranges_by_rack",
        },
        open="R",
    ),
    Row(
        "groups",
        "the leader of a group shares out although Metadata failed",
        {
            "D": "daemon/systems/kafka/source/test_leaders"
            "::test_the_leader_of_a_group_shares_out_although_metadata_failed",
        },
    ),
    Row(
        "life",
        "a broker that restarts",
        {
            "D": "daemon/systems/test_conformance::test_a_broker_that_restarts",
            "R": "real/test_faults::test_broker_restarted_under_load_with_an_open_roll",
        },
    ),
    Row(
        "life",
        "a peer that falls silent",
        {
            "D": "daemon/systems/kafka/source/test_source::test_a_broker_that_falls_silent_is_left",
            "G": "fastwire/kafka/test_connection::test_a_broker_that_says_nothing_is_given_up",
            "R": "real/test_faults::test_peer_that_falls_silent_is_left_and_found_again",
        },
    ),
    Row(
        "life",
        "answers that cannot be right",
        {
            "D": "daemon/systems/kafka/test_hostile_brokers::test_what_a_reader_is_told"
            " daemon/systems/kafka/test_hostile_brokers::test_what_a_member_is_told"
            " daemon/systems/kafka/test_producer::test_answers_that_cannot_be_right",
            "G": "fastwire/kafka/test_conversation::test_damaged_conversations",
        },
    ),
    Row(
        "life",
        "killed at every step",
        {
            "D": "crash/test_kill::test_killed_at_every_step",
            "R": "crash/test_kill::test_killed_on_a_real_broker real/test_kafka::test_killed_on_the_way",
        },
    ),
    Row(
        "life",
        "killed at random, stopped, cut, half-open, full and failing disks",
        {
            "D": "crash/test_campaign::test_fifty_accidents",
        },
        open="R",
    ),
    Row(
        "producer",
        "idempotent: refusals, lost connections and new leaders neither lose nor double",
        {
            "D": "daemon/systems/kafka/test_producer::test_refusals_that_pass"
            " daemon/systems/kafka/test_producer::test_leaders_that_move",
            "G": "fastwire/kafka/test_producer::test_any_order_of_faults_stores_each_record_once_and_in_order",
            "R": "real/test_kafka_producing::test_connections_that_break_lose_and_double_nothing"
            " real/test_kafka_producing::test_a_broker_that_restarts",
            "C": "real/test_kafka_producing::test_connections_that_break_lose_and_double_nothing",
        },
    ),
    Row(
        "producer",
        "keys to the partitions that Java's client chooses",
        {
            "G": "fastwire/kafka/test_producer::test_murmur2",
            "R": "real/test_kafka_producing::test_keys_go_where_the_java_client_sends_them",
        },
    ),
    Row(
        "producer",
        "records that are too large fail alone",
        {
            "G": "fastwire/kafka/test_producer::test_a_batch_that_is_too_large_is_halved_until_one_record_is",
            "R": "real/test_kafka_producing::test_a_record_that_is_too_large",
            "C": "real/test_kafka_producing::test_a_record_that_is_too_large",
        },
        open="D",
    ),
    Row(
        "producer",
        "topics that are not there",
        {
            "D": "daemon/systems/kafka/test_producer::test_a_topic_that_nobody_makes",
            "R": "real/test_kafka_producing::test_a_topic_that_is_not_there",
        },
    ),
    Row(
        "producer",
        "a broker that throttles",
        {
            "D": "daemon/systems/kafka/test_producer::test_a_broker_that_throttles",
        },
        open="R",
    ),
    Row(
        "producer",
        "the command",
        {
            "R": "real/test_kafka_producing::test_the_command",
            "C": "real/test_kafka_producing::test_the_command",
        },
        open="D",
    ),
    Row(
        "stats",
        "the lag of a group in /status and metrics",
        {
            "D": "daemon/systems/test_lag::test_the_backlog_is_what_has_not_landed"
            " daemon/systems/test_lag::test_a_log_is_behind_while_its_head_has_not_come",
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
        "tail",
        "records come from the replica in our rack",
        {
            "D": "daemon/cli/test_tail::test_tail_reads_from_the_replica_in_our_rack",
        },
        open="R",
    ),
    Row(
        "Spark",
        "batches and streams, each record once",
        {
            "D": "daemon/spark/source/test_offsetrangereader::test_each_record_once_through_whatever_happens"
            " daemon/spark/source/datasource/test_stream"
            "::test_a_driver_that_dies_in_a_later_batch_reads_the_same_again",
            "R": "real/test_kafka_spark::test_batches_and_streams",
            "P": "real/test_kafka_spark::test_batches_and_streams",
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
    Row(
        "Spark",
        "ranges come from the replica in our rack, from the leader where that fails",
        {
            "D": "daemon/spark/source/kafka/test_rangereader::test_a_range_is_read_from_the_replica_in_our_rack"
            " daemon/spark/source/kafka/test_rangereader::test_a_replica_that_is_of_no_use_is_left_for_the_leader",
        },
        open="R",
    ),
    Row(
        "Spark",
        "a reader above its quota gets every row",
        {
            "D": "daemon/spark/source/kafka/test_rangereader::test_a_throttled_reader_gets_all_rows",
            "R": "real/test_kafka_spark::test_a_reader_above_its_quota",
        },
    ),
    Row(
        "Spark",
        "TLS with a password by file",
        {
            "R": "real/test_kafka_spark::test_tls_and_a_password_by_file",
        },
        open="D",
    ),
]
