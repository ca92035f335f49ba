"""The matrix of TubeMQ: what is shown to work, and by which witness."""

from tests.matrix.table import Row

__all__ = ["ROWS"]

ROWS = [
    Row(
        "wire",
        "frames of any blocks, borders also within a varint or a message",
        {
            "D": "daemon/devbroker/tubemq/test_rules::test_rule",
            "G": "fastwire/tubemq/test_scan::test_each_block_border_of_a_real_response"
            " fastwire/tubemq/test_scan::test_messages_of_any_size_over_any_borders"
            " fastwire/tubemq/test_frame::test_block_borders_have_no_meaning",
            "R": "real/test_tubemq::test_rule",
        },
    ),
    Row(
        "wire",
        "every message, byte for byte",
        {
            "D": "daemon/devbroker/tubemq/test_vectors::test_registration_get_and_commit_byte_for_byte"
            " daemon/devbroker/tubemq/test_vectors::test_the_master_of_a_server_balanced_group",
            "G": "fastwire/tubemq/test_frame::test_every_method_but_two_has_an_example"
            " fastwire/tubemq/test_frame::test_a_request_is_encoded_byte_for_byte"
            " fastwire/tubemq/test_frame::test_a_response_is_encoded_and_decoded_byte_for_byte",
            "R": "real/test_tubemq::test_rule",
        },
    ),
    Row(
        "wire",
        "a server that is silent is left",
        {
            "D": "daemon/systems/tubemq/test_source::test_a_master_that_is_silent_is_left_for_the_next_one"
            " daemon/systems/tubemq/test_hostile_reading::test_an_answer_that_never_comes",
            "G": "fastwire/tubemq/test_connection::test_a_request_without_an_answer_loses_the_connection",
        },
        open="R",
    ),
    Row(
        "wire",
        "a stand-by is left for the active Master",
        {
            "D": "daemon/systems/tubemq/test_source::test_a_stand_by_is_left_for_the_active_master",
            "G": "fastwire/tubemq/test_frame::test_a_standby_master_is_known_by_the_end_of_the_name",
            "R": "real/test_tubemq_guarded::test_the_other_master_takes_over",
        },
    ),
    Row(
        "wire",
        "error codes: what the client does, and advice for the user",
        {
            "D": "daemon/systems/tubemq/test_source::test_codes_after_which_the_get_is_sent_again"
            " daemon/systems/tubemq/test_source::test_codes_after_which_the_partition_is_registered_again"
            " daemon/systems/tubemq/test_source::test_a_partition_that_the_broker_takes_away_comes_back",
            "G": "fastwire/tubemq/test_flow::test_each_code_has_a_remedy"
            " fastwire/tubemq/test_flow::test_advice_follows_what_the_server_says",
            "R": "real/test_tubemq_guarded::test_who_is_not_let_in",
        },
    ),
    Row(
        "login",
        "signed requests and the visit token",
        {
            "D": "daemon/systems/tubemq/test_login::test_requests_are_signed"
            " daemon/devbroker/tubemq/test_cluster::test_requests_to_the_broker_carry_the_visit_token",
            "G": "fastwire/tubemq/test_flow::test_signatures_equal_those_of_the_java_library",
            "R": "real/test_tubemq_guarded::test_certificates_and_signed_requests",
        },
    ),
    Row(
        "login",
        "TLS with certificates of both sides",
        {
            "D": "daemon/systems/tubemq/test_login::test_tls_with_certificates_of_both_sides"
            " daemon/systems/tubemq/test_login::test_a_server_that_is_not_trusted",
            "R": "real/test_tubemq_guarded::test_certificates_and_signed_requests"
            " real/test_tubemq_guarded::test_who_is_not_let_in",
        },
    ),
    Row(
        "messages",
        "values, attributes, types and times",
        {
            "D": "daemon/systems/tubemq/test_writer::test_records_become_messages",
            "G": "fastwire/tubemq/test_scan::test_a_real_response_becomes_rows"
            " fastwire/tubemq/test_scan::test_attributes_become_headers"
            " fastwire/tubemq/test_scan::test_times_of_messages",
            "R": "real/test_tubemq_daemon::test_what_produce_sent_has_landed_as_it_was",
            "P": "real/test_tubemq_daemon::test_what_the_stock_producer_sent_has_landed",
            "C": "real/test_tubemq_daemon::test_what_produce_sent_is_read_by_the_stock_consumer",
        },
    ),
    Row(
        "messages",
        "damaged checksums and attributes: dead letters",
        {
            "D": "crash/test_campaign::test_fifty_accidents",
            "G": "fastwire/tubemq/test_scan::test_a_damaged_message_is_a_dead_letter"
            " fastwire/tubemq/test_scan::test_a_message_without_a_required_field_is_a_dead_letter"
            " fastwire/tubemq/test_scan::test_a_damaged_message_stops_a_partition",
        },
        open="R",
    ),
    Row(
        "messages",
        "filters, checked again by value",
        {
            "D": "daemon/systems/tubemq/test_filters::test_only_messages_of_the_types_land"
            " daemon/systems/tubemq/test_filters::test_other_filters_make_another_log_at_the_groups_offset",
            "G": "fastwire/tubemq/test_scan::test_a_foreign_type_that_the_broker_lets_through_is_left_out",
            "R": "real/test_tubemq::test_rule",
        },
    ),
    Row(
        "positions",
        "where a GET began and the messages taken, over any cut of the GETs",
        {
            "D": "daemon/systems/test_conformance::test_connections_that_are_cut_anywhere",
            "G": "fastwire/tubemq/test_scan::test_a_position_is_found_again_however_the_gets_are_cut"
            " fastwire/tubemq/test_scan::test_a_repeated_get_gives_no_row_twice"
            " fastwire/tubemq/test_scan::test_a_read_at_another_place_takes_nothing",
            "R": "real/test_tubemq_daemon::test_members_killed_and_added",
        },
    ),
    Row(
        "positions",
        "a COMMIT follows the dataset, and nothing is confirmed before",
        {
            "D": "daemon/systems/test_conformance::test_nothing_is_confirmed_before_the_commit"
            " daemon/systems/tubemq/test_source::test_a_partition_is_given_up_after_its_messages_have_landed"
            " daemon/systems/tubemq/test_source::test_the_offset_of_the_group_follows_a_stream_that_never_pauses",
        },
        open="R",
    ),
    Row(
        "positions",
        "late requests of a lost connection move nothing",
        {
            "D": "daemon/systems/tubemq/test_source::test_each_connection_owns_partitions_under_an_id_of_its_own",
        },
        open="R",
    ),
    Row(
        "positions",
        "start: earliest, latest, offsets",
        {
            "D": "daemon/systems/test_conformance::test_start_earliest"
            " daemon/systems/test_conformance::test_start_latest"
            " daemon/systems/test_conformance::test_start_at_a_position"
            " daemon/systems/tubemq/test_source::test_latest_is_the_end_of_the_partitions_that_were_there",
            "R": "real/test_tubemq::test_rule",
        },
    ),
    Row(
        "positions",
        "retention is a declared gap",
        {
            "D": "daemon/systems/tubemq/test_source::test_retention_is_a_declared_gap",
        },
        open="R",
    ),
    Row(
        "positions",
        "a topic that is created again stops its partitions",
        {
            "D": "daemon/systems/tubemq/test_source::test_a_topic_that_is_created_again_stops_its_partitions"
            " daemon/systems/tubemq/test_source::test_a_log_that_ends_before_what_has_landed_stops",
            "G": "fastwire/tubemq/test_scan::test_the_last_message_left_out_must_be_the_one_that_was_taken",
        },
        open="R",
    ),
    Row(
        "groups",
        "server balance: members come, go, die and stand still",
        {
            "D": "crash/test_takeover::test_stopped_at_every_step_while_another_takes_over"
            " daemon/devbroker/tubemq/test_cluster"
            "::test_three_members_share_five_partitions_and_keep_what_they_have",
            "G": "fastwire/tubemq/test_membership::test_the_real_conversation_byte_for_byte",
            "R": "real/test_tubemq_daemon::test_members_killed_and_added"
            " real/test_tubemq_daemon::test_a_member_that_stands_still_and_goes_on",
        },
    ),
    Row(
        "groups",
        "one result an event; a lost heartbeat closes and registers again",
        {
            "D": "daemon/systems/tubemq/test_member"
            "::test_events_are_performed_one_after_the_other_and_the_last_one_has_a_result"
            " daemon/devbroker/tubemq/test_cluster::test_a_result_that_belongs_to_no_event_is_a_violation",
            "G": "fastwire/tubemq/test_membership::test_each_result_is_sent_once"
            " fastwire/tubemq/test_membership::test_a_lost_heartbeat_closes_and_registers_again",
        },
        open="R",
    ),
    Row(
        "groups",
        "client balance: nodes share the partitions by their numbers",
        {
            "D": "daemon/systems/tubemq/test_source::test_nodes_share_the_partitions_by_their_numbers"
            " daemon/systems/tubemq/test_source::test_a_node_waits_for_its_number"
            " daemon/systems/tubemq/test_source::test_a_node_without_partitions_is_at_the_end",
            "G": "fastwire/tubemq/test_client_membership::test_the_real_conversation"
            " fastwire/tubemq/test_selection::test_all_clients_together_have_each_partition_once",
            "R": "real/test_tubemq_daemon::test_nodes_share_a_topic",
        },
    ),
    Row(
        "groups",
        "an operator moves a group to the end, and what is left out is declared",
        {
            "D": "daemon/systems/tubemq/test_source::test_an_operator_moves_a_group_to_the_end",
            "G": "fastwire/tubemq/test_client_membership::test_the_operator_moves_members_to_the_end_once",
        },
        open="R",
    ),
    Row(
        "groups",
        "partitions and stores that are added",
        {
            "D": "daemon/systems/test_conformance::test_partitions_that_are_added_while_away"
            " daemon/devbroker/tubemq/test_cluster"
            "::test_a_client_balanced_member_follows_topics_and_the_administrator",
            "G": "fastwire/tubemq/test_client_membership::test_partitions_that_come_and_go",
        },
        open="R",
    ),
    Row(
        "flow control",
        "rules of the group and of the cluster, and the limit of the Broker",
        {
            "D": "daemon/devbroker/tubemq/test_cluster::test_the_broker_limits_who_does_not_keep_the_rule"
            " daemon/systems/tubemq/test_source::test_rules_of_flow_control_are_kept",
            "G": "fastwire/tubemq/test_flow::test_the_bytes_of_five_seconds_are_limited"
            " fastwire/tubemq/test_flow::test_the_limit_of_the_brokers_is_obeyed"
            " fastwire/tubemq/test_flow::test_the_wait_at_the_end_of_a_partition",
        },
        open="R",
    ),
    Row(
        "life",
        "a Master and a Broker that restart",
        {
            "D": "daemon/systems/test_conformance::test_a_broker_that_restarts",
            "R": "real/test_tubemq_daemon::test_a_master_and_a_broker_that_restart",
        },
    ),
    Row(
        "life",
        "answers that cannot be right",
        {
            "D": "daemon/systems/tubemq/test_hostile_reading::test_what_a_pipeline_is_told"
            " daemon/systems/tubemq/test_hostile_brokers::test_what_a_producer_is_told_of_a_message",
            "G": "fastwire/tubemq/test_conversation::test_damaged_conversations"
            " fastwire/tubemq/test_scan::test_a_mutation_is_read_or_a_dead_letter_or_a_protocol_error",
        },
    ),
    Row(
        "life",
        "responses beyond the memory",
        {
            "D": "daemon/systems/test_conformance::test_memory_stays_below_the_budget",
            "G": "fastwire/tubemq/test_scan::test_a_response_larger_than_the_memory_allows_is_refused_by_its_head",
        },
        open="R",
    ),
    Row(
        "life",
        "killed at every step",
        {
            "D": "crash/test_kill::test_killed_at_every_step crash/test_kill::test_killed_at_random",
            "R": "real/test_tubemq_daemon::test_members_killed_and_added",
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
        "messages go round the partitions, and are sent again when it is unsure",
        {
            "D": "daemon/systems/tubemq/test_producer::test_messages_are_stored_in_the_partitions_in_turn"
            " daemon/systems/tubemq/test_producer"
            "::test_a_response_that_is_lost_means_the_message_is_sent_again"
            " daemon/systems/tubemq/test_producer::test_partitions_that_are_added_are_written_to",
            "G": "fastwire/tubemq/test_producer::test_the_real_conversation"
            " fastwire/tubemq/test_request::test_requests_of_a_producer_equal_the_real_ones",
            "R": "real/test_tubemq_daemon::test_a_master_and_a_broker_that_restart",
            "C": "real/test_tubemq_daemon::test_what_produce_sent_is_read_by_the_stock_consumer",
        },
    ),
    Row(
        "producer",
        "messages that are too large, or that a Broker refuses, fail alone",
        {
            "D": "daemon/systems/tubemq/test_producer::test_the_limit_of_the_master_is_that_of_a_message"
            " daemon/systems/tubemq/test_producer"
            "::test_a_message_that_the_broker_refuses_is_reported_and_later_ones_are_stored",
            "R": "real/test_tubemq::test_rule",
        },
    ),
    Row(
        "stats",
        "the lag in /status and metrics",
        {
            "D": "daemon/systems/test_lag::test_the_lag_of_positions_without_an_order_is_the_backlog",
        },
        open="R",
    ),
    Row(
        "tail",
        "shows records, as the only member of a group of its own",
        {
            "D": "daemon/systems/test_conformance::test_a_reader_ends_and_goes_on"
            " daemon/systems/test_conformance::test_what_is_written_is_read",
        },
        open="R",
    ),
    Row(
        "Spark",
        "a job is sent to the dataset",
        {
            "G": "daemon/systems/tubemq/test_config::test_a_job_of_spark_is_sent_to_the_dataset",
        },
    ),
]
