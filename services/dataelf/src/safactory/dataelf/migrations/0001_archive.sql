-- Every table: identity as sorting key, so that a repeated fact replaces itself; partitions from identity, never from
-- arrival time, so that FINAL need not look across partitions. Times are UTC. Each statement is safe to repeat.
CREATE TABLE IF NOT EXISTS job_events (
  tenant LowCardinality(String), job_id String, type LowCardinality(String), event_id UUID,
  occurred_at DateTime64(6, 'UTC'), body String CODEC(ZSTD(3))
) ENGINE = ReplacingMergeTree ORDER BY (tenant, job_id, type, event_id) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS session_events (
  tenant LowCardinality(String), session_id UUID, attempt UInt16, type LowCardinality(String), event_id UUID,
  job_id String, group_id String, environment LowCardinality(String), occurred_at DateTime64(6, 'UTC'),
  mode LowCardinality(String), reason LowCardinality(String), cause String, score Float64, scored UInt8,
  last_seq UInt32, prompt_tokens UInt64, completion_tokens UInt64, wall_s Float64, group_size UInt32,
  bus LowCardinality(String), body String CODEC(ZSTD(3)),
  INDEX by_job job_id TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX by_group group_id TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(UUIDv7ToDateTime(session_id, 'UTC'))
ORDER BY (tenant, toUInt128(session_id), attempt, type, event_id) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS messages (
  tenant LowCardinality(String), sha256 FixedString(64), role LowCardinality(String), body String CODEC(ZSTD(3)),
  first_seen DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY (tenant, sha256) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS steps (
  tenant LowCardinality(String), session_id UUID, attempt UInt16, seq UInt32, event_id UUID,
  job_id String, group_id String, environment LowCardinality(String), occurred_at DateTime64(6, 'UTC'),
  status LowCardinality(String), http_status UInt16, error String, endpoint LowCardinality(String),
  route LowCardinality(String), model LowCardinality(String), upstream LowCardinality(String), stream UInt8,
  input_hashes Array(FixedString(64)) CODEC(ZSTD(3)), output_hash String,
  parameters String CODEC(ZSTD(3)), tokens String CODEC(ZSTD(3)), weight_versions String, temperature Float64,
  finish_reason LowCardinality(String), prompt_tokens UInt32, completion_tokens UInt32, cached_tokens UInt32,
  ttft_s Float64, total_s Float64, upstream_s Float64,
  INDEX by_job job_id TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(UUIDv7ToDateTime(session_id, 'UTC'))
ORDER BY (tenant, toUInt128(session_id), attempt, seq) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS rewards (
  tenant LowCardinality(String), session_id UUID, attempt UInt16, scorer LowCardinality(String), scorer_version String,
  event_id UUID, job_id String, group_id String, environment LowCardinality(String), occurred_at DateTime64(6, 'UTC'),
  score Float64, scored UInt8, raw_score Float64, passed UInt8, reason String, error String, artifacts String, wall_s Float64,
  INDEX by_job job_id TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(UUIDv7ToDateTime(session_id, 'UTC'))
ORDER BY (tenant, toUInt128(session_id), attempt, scorer, scorer_version) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS snapshots (
  tenant LowCardinality(String), session_id UUID, attempt UInt16, kind LowCardinality(String), sha256 FixedString(64),
  event_id UUID, job_id String, occurred_at DateTime64(6, 'UTC'), parent String, files UInt32, uri String, bytes UInt64
) ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(UUIDv7ToDateTime(session_id, 'UTC'))
ORDER BY (tenant, toUInt128(session_id), attempt, kind, sha256) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS rollouts (
  tenant LowCardinality(String), group_id String, type LowCardinality(String), event_id UUID, job_id String,
  environment LowCardinality(String), occurred_at DateTime64(6, 'UTC'), reason LowCardinality(String), group_size UInt32,
  sample_count UInt32, oldest_version LowCardinality(String), reward_mean Float64
) ENGINE = ReplacingMergeTree ORDER BY (tenant, job_id, group_id, type) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS weights (
  tenant LowCardinality(String), run_id String, epoch UInt32, step UInt64, event_id UUID, model LowCardinality(String),
  occurred_at DateTime64(6, 'UTC'), digest String, run_step UInt64, bytes UInt64, push_s Float64,
  committed Array(String), quarantined Array(String), checkpoint String
) ENGINE = ReplacingMergeTree ORDER BY (tenant, run_id, epoch, step) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS metrics (
  tenant LowCardinality(String), run_id String, source LowCardinality(String), step UInt64, name LowCardinality(String),
  event_id UUID, occurred_at DateTime64(6, 'UTC'), value Float64
) ENGINE = ReplacingMergeTree ORDER BY (tenant, run_id, source, name, step) SETTINGS fsync_after_insert = 1;

CREATE TABLE IF NOT EXISTS dead_letters (
  tenant LowCardinality(String), topic LowCardinality(String), partition UInt32, offset UInt64,
  consumer_group LowCardinality(String), event_id UUID, key String, kind LowCardinality(String), error String,
  attempts UInt16, value String CODEC(ZSTD(3)), bus LowCardinality(String), archived_at DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY (tenant, bus, topic, partition, offset, consumer_group) SETTINGS fsync_after_insert = 1;

-- Which records of which partition are in the tables above: where to read on, and the proof that none is missing.
CREATE TABLE IF NOT EXISTS ingest_ledger (
  bus LowCardinality(String), topic LowCardinality(String), partition UInt32, first UInt64, next UInt64, rows UInt64,
  archived_at DateTime64(3, 'UTC') DEFAULT now64(3)
) ENGINE = ReplacingMergeTree ORDER BY (bus, topic, partition, first, next) SETTINGS fsync_after_insert = 1;
