"""The tables of all Kafka messages that fastwire uses, read by ``fastwire.kafka.format.message`` (spec: kafka 5).

A line is a field in wire order: name, type, options. ``[`` opens an array of structs and ``{`` a struct, up to the line
that closes it; ``[i32]`` is an array of numbers. ``v3+`` or ``v2-4``: only in these versions. ``null=1+``: may be null
in these. ``tag=0``: a tagged field. ``=X``: the default of a field without a value. ``flex`` is the first flexible
version: compact lengths, and tagged fields after every struct.
"""

LAYOUTS = """
ApiVersions key=18 v=0-4 flex=3
request
  client_software_name string v3+
  client_software_version string v3+
response
  error_code i16
  api_keys [
    api_key i16
    min_version i16
    max_version i16
  ]
  throttle_time_ms i32 v1+
  supported_features [ v3+ tag=0
    name string
    min_version i16
    max_version i16
  ]
  finalized_features_epoch i64 v3+ tag=1 =-1
  finalized_features [ v3+ tag=2
    name string
    max_version_level i16
    min_version_level i16
  ]
  zk_migration_ready bool v3+ tag=3

Metadata key=3 v=0-13 flex=9
request
  topics [ null=1+
    topic_id uuid v10+
    name string null=10+
  ]
  allow_auto_topic_creation bool v4+ =1
  include_cluster_authorized_operations bool v8-10
  include_topic_authorized_operations bool v8+
response
  throttle_time_ms i32 v3+
  brokers [
    node_id i32
    host string
    port i32
    rack string v1+ null=1+
  ]
  cluster_id string v2+ null=2+
  controller_id i32 v1+ =-1
  topics [
    error_code i16
    name string null=12+
    topic_id uuid v10+
    is_internal bool v1+
    partitions [
      error_code i16
      partition_index i32
      leader_id i32
      leader_epoch i32 v7+ =-1
      replica_nodes [i32]
      isr_nodes [i32]
      offline_replicas [i32] v5+
    ]
    topic_authorized_operations i32 v8+ =-2147483648
  ]
  cluster_authorized_operations i32 v8-10 =-2147483648
  error_code i16 v13+

FindCoordinator key=10 v=0-6 flex=3
request
  key string v0-3
  key_type i8 v1+ =0
  coordinator_keys [string] v4+
response
  throttle_time_ms i32 v1+
  error_code i16 v0-3
  error_message string v1-3 null=1-3
  node_id i32 v0-3
  host string v0-3
  port i32 v0-3
  coordinators [ v4+
    key string
    node_id i32
    host string
    port i32
    error_code i16
    error_message string null=4+
  ]

JoinGroup key=11 v=0-9 flex=6
request
  group_id string
  session_timeout_ms i32
  rebalance_timeout_ms i32 v1+ =-1
  member_id string
  group_instance_id string v5+ null=5+
  protocol_type string
  protocols [
    name string
    metadata bytes
  ]
  reason string v8+ null=8+
response
  throttle_time_ms i32 v2+
  error_code i16
  generation_id i32 =-1
  protocol_type string v7+ null=7+
  protocol_name string null=7+
  leader string
  skip_assignment bool v9+
  member_id string
  members [
    member_id string
    group_instance_id string v5+ null=5+
    metadata bytes
  ]

SyncGroup key=14 v=0-5 flex=4
request
  group_id string
  generation_id i32
  member_id string
  group_instance_id string v3+ null=3+
  protocol_type string v5+ null=5+
  protocol_name string v5+ null=5+
  assignments [
    member_id string
    assignment bytes
  ]
response
  throttle_time_ms i32 v1+
  error_code i16
  protocol_type string v5+ null=5+
  protocol_name string v5+ null=5+
  assignment bytes

Heartbeat key=12 v=0-4 flex=4
request
  group_id string
  generation_id i32
  member_id string
  group_instance_id string v3+ null=3+
response
  throttle_time_ms i32 v1+
  error_code i16

LeaveGroup key=13 v=0-5 flex=4
request
  group_id string
  member_id string v0-2
  members [ v3+
    member_id string
    group_instance_id string null=3+
    reason string v5+ null=5+
  ]
response
  throttle_time_ms i32 v1+
  error_code i16
  members [ v3+
    member_id string
    group_instance_id string null=3+
    error_code i16
  ]

OffsetCommit key=8 v=0-10 flex=8
request
  group_id string
  generation_id_or_member_epoch i32 v1+ =-1
  member_id string v1+
  group_instance_id string v7+ null=7+
  retention_time_ms i64 v2-4 =-1
  topics [
    name string v0-9
    topic_id uuid v10+
    partitions [
      partition_index i32
      committed_offset i64
      committed_leader_epoch i32 v6+ =-1
      commit_timestamp i64 v1-1 =-1
      committed_metadata string null=0+
    ]
  ]
response
  throttle_time_ms i32 v3+
  topics [
    name string v0-9
    topic_id uuid v10+
    partitions [
      partition_index i32
      error_code i16
    ]
  ]

OffsetFetch key=9 v=0-10 flex=6
request
  group_id string v0-7
  topics [ v0-7 null=2-7
    name string
    partition_indexes [i32]
  ]
  groups [ v8+
    group_id string
    member_id string v9+ null=9+
    member_epoch i32 v9+ =-1
    topics [ null=8+
      name string v8-9
      topic_id uuid v10+
      partition_indexes [i32]
    ]
  ]
  require_stable bool v7+
response
  throttle_time_ms i32 v3+
  topics [ v0-7
    name string
    partitions [
      partition_index i32
      committed_offset i64
      committed_leader_epoch i32 v5-7 =-1
      metadata string null=0-7
      error_code i16
    ]
  ]
  error_code i16 v2-7
  groups [ v8+
    group_id string
    topics [
      name string v8-9
      topic_id uuid v10+
      partitions [
        partition_index i32
        committed_offset i64
        committed_leader_epoch i32 =-1
        metadata string null=8+
        error_code i16
      ]
    ]
    error_code i16
  ]

ListOffsets key=2 v=0-11 flex=6
request
  replica_id i32 =-1
  isolation_level i8 v2+
  topics [
    name string
    partitions [
      partition_index i32
      current_leader_epoch i32 v4+ =-1
      timestamp i64
      max_num_offsets i32 v0-0 =1
    ]
  ]
  timeout_ms i32 v10+
response
  throttle_time_ms i32 v2+
  topics [
    name string
    partitions [
      partition_index i32
      error_code i16
      old_style_offsets [i64] v0-0
      timestamp i64 v1+ =-1
      offset i64 v1+ =-1
      leader_epoch i32 v4+ =-1
    ]
  ]

Fetch key=1 v=4-18 flex=12
request
  cluster_id string v12+ null=12+ tag=0
  replica_id i32 v4-14 =-1
  replica_state { v15+ tag=1
    replica_id i32 =-1
    replica_epoch i64 =-1
  }
  max_wait_ms i32
  min_bytes i32
  max_bytes i32 =2147483647
  isolation_level i8
  session_id i32 v7+ =0
  session_epoch i32 v7+ =-1
  topics [
    topic string v4-12
    topic_id uuid v13+
    partitions [
      partition i32
      current_leader_epoch i32 v9+ =-1
      fetch_offset i64
      last_fetched_epoch i32 v12+ =-1
      log_start_offset i64 v5+ =-1
      partition_max_bytes i32
      replica_directory_id uuid v17+ tag=0
      high_watermark i64 v18+ tag=1 =9223372036854775807
    ]
  ]
  forgotten_topics_data [ v7+
    topic string v7-12
    topic_id uuid v13+
    partitions [i32]
  ]
  rack_id string v11+
response
  throttle_time_ms i32
  error_code i16 v7+
  session_id i32 v7+
  responses [
    topic string v4-12
    topic_id uuid v13+
    partitions [
      partition_index i32
      error_code i16
      high_watermark i64
      last_stable_offset i64 =-1
      log_start_offset i64 v5+ =-1
      diverging_epoch { v12+ tag=0
        epoch i32 =-1
        end_offset i64 =-1
      }
      current_leader { v12+ tag=1
        leader_id i32 =-1
        leader_epoch i32 =-1
      }
      snapshot_id { v12+ tag=2
        end_offset i64 =-1
        epoch i32 =-1
      }
      aborted_transactions [ null=4+
        producer_id i64
        first_offset i64
      ]
      preferred_read_replica i32 v11+ =-1
      records records null=4+
    ]
  ]
  node_endpoints [ v16+ tag=0
    node_id i32
    host string
    port i32
    rack string null=16+
  ]

OffsetForLeaderEpoch key=23 v=0-4 flex=4
request
  replica_id i32 v3+ =-1
  topics [
    topic string
    partitions [
      partition i32
      current_leader_epoch i32 v2+ =-1
      leader_epoch i32
    ]
  ]
response
  throttle_time_ms i32 v2+
  topics [
    topic string
    partitions [
      error_code i16
      partition i32
      leader_epoch i32 v1+ =-1
      end_offset i64 =-1
    ]
  ]

Produce key=0 v=3-13 flex=9
request
  transactional_id string null=3+
  acks i16 =-1
  timeout_ms i32 =30000
  topic_data [
    name string v3-12
    topic_id uuid v13+
    partition_data [
      index i32
      records records null=3+
    ]
  ]
response
  responses [
    name string v3-12
    topic_id uuid v13+
    partition_responses [
      index i32
      error_code i16
      base_offset i64
      log_append_time_ms i64 =-1
      log_start_offset i64 v5+ =-1
      record_errors [ v8+
        batch_index i32
        batch_index_error_message string null=8+
      ]
      error_message string v8+ null=8+
      current_leader { v10+ tag=0
        leader_id i32 =-1
        leader_epoch i32 =-1
      }
    ]
  ]
  throttle_time_ms i32
  node_endpoints [ v10+ tag=0
    node_id i32
    host string
    port i32
    rack string null=10+
  ]

InitProducerId key=22 v=0-5 flex=2
request
  transactional_id string null=0+
  transaction_timeout_ms i32
  producer_id i64 v3+ =-1
  producer_epoch i16 v3+ =-1
response
  throttle_time_ms i32
  error_code i16
  producer_id i64 =-1
  producer_epoch i16

AddPartitionsToTxn key=24 v=0-3 flex=3
request
  transactional_id string
  producer_id i64
  producer_epoch i16
  topics [
    name string
    partitions [i32]
  ]
response
  throttle_time_ms i32
  results [
    name string
    partitions [
      partition_index i32
      error_code i16
    ]
  ]

EndTxn key=26 v=0-5 flex=3
request
  transactional_id string
  producer_id i64
  producer_epoch i16
  committed bool
response
  throttle_time_ms i32
  error_code i16
  producer_id i64 v5+ =-1
  producer_epoch i16 v5+ =-1

CreateTopics key=19 v=0-7 flex=5
request
  topics [
    name string
    num_partitions i32
    replication_factor i16
    assignments [
      partition_index i32
      broker_ids [i32]
    ]
    configs [
      name string
      value string null=0+
    ]
  ]
  timeout_ms i32 =60000
  validate_only bool v1+
response
  throttle_time_ms i32 v2+
  topics [
    name string
    topic_id uuid v7+
    error_code i16
    error_message string v1+ null=1+
    topic_config_error_code i16 v5+ tag=0
    num_partitions i32 v5+ =-1
    replication_factor i16 v5+ =-1
    configs [ v5+ null=5+
      name string
      value string null=5+
      read_only bool
      config_source i8 =-1
      is_sensitive bool
    ]
  ]

DeleteTopics key=20 v=0-6 flex=4
request
  topics [ v6+
    name string null=6+
    topic_id uuid
  ]
  topic_names [string] v0-5
  timeout_ms i32 =60000
response
  throttle_time_ms i32 v1+
  responses [
    name string null=6+
    topic_id uuid v6+
    error_code i16
    error_message string v5+ null=5+
  ]

DescribeConfigs key=32 v=0-4 flex=4
request
  resources [
    resource_type i8
    resource_name string
    configuration_keys [string] null=0+
  ]
  include_synonyms bool v1+
  include_documentation bool v3+
response
  throttle_time_ms i32
  results [
    error_code i16
    error_message string null=0+
    resource_type i8
    resource_name string
    configs [
      name string
      value string null=0+
      read_only bool
      is_default bool v0-0
      config_source i8 v1+ =-1
      is_sensitive bool
      synonyms [ v1+
        name string
        value string null=1+
        source i8
      ]
      config_type i8 v3+
      documentation string v3+ null=3+
    ]
  ]

SaslHandshake key=17 v=0-1
request
  mechanism string
response
  error_code i16
  mechanisms [string]

SaslAuthenticate key=36 v=0-2 flex=2
request
  auth_bytes bytes
response
  error_code i16
  error_message string null=0+
  auth_bytes bytes
  session_lifetime_ms i64 v1+

ConsumerGroupHeartbeat key=68 v=0-1 flex=0
request
  group_id string
  member_id string
  member_epoch i32
  instance_id string null=0+
  rack_id string null=0+
  rebalance_timeout_ms i32 =-1
  subscribed_topic_names [string] null=0+
  subscribed_topic_regex string v1+ null=1+
  server_assignor string null=0+
  topic_partitions [ null=0+
    topic_id uuid
    partitions [i32]
  ]
response
  throttle_time_ms i32
  error_code i16
  error_message string null=0+
  member_id string null=0+
  member_epoch i32
  heartbeat_interval_ms i32
  assignment { null=0+
    topic_partitions [
      topic_id uuid
      partitions [i32]
    ]
  }
"""
