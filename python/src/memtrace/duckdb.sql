-- Macros for DuckDB that read the tables of a recording as the step functions that they are: a row
-- of `mem` holds until the next row of the same process, so GROUP BY ts adds up those that happened
-- to change, not those that held memory. `rec` is the recording's directory; instants are boot_ns.
--
--     .read duckdb.sql                              -- in the shell of DuckDB
--     duckdb.execute(memtrace.duckdb_macros())      -- in Python
--
--     FROM held_at('REC', boot_ns_at('REC', TIMESTAMPTZ '2026-03-01 12:03:07Z'));

-- A command line without the program's directories, cut at 48 letters.
CREATE OR REPLACE MACRO short(command) AS (
    WITH words AS (
        SELECT trim(
            regexp_replace(command, '[\s\x{0b}\x{1c}-\x{1f}\x{85}\p{Z}]+', ' ', 'g')
        ) AS text
    ),
    named AS (
        SELECT regexp_replace(text, '^[^ ]*/([^ /]+)( |$)', '\1\2') AS text FROM words
    )
    SELECT CASE WHEN length(text) <= 48 THEN text ELSE left(text, 47) || '…' END FROM named
);

-- Who each process is: its role with its framework and its rank, else its command line.
CREATE OR REPLACE MACRO processes(rec) AS TABLE
SELECT
    upid, tgid,
    CASE WHEN role <> 'main' THEN concat_ws(' ', framework, role, rank)
         ELSE short(coalesce(nullif(cmdline, ''), nullif(comm, ''), '?')) END AS name,
    framework, role, rank, exit_boot_ns,
    CASE WHEN peak_rss_source IN ('kernel_hiwater', 'footprint', 'self', 'wait4')
         THEN peak_rss_bytes END AS peak_bytes
FROM read_parquet(rec || '/process/*.parquet');

-- The kernel's per-CPU counters can read below zero for a moment; that counts as zero.
CREATE OR REPLACE MACRO from_zero(amount) AS (CASE WHEN amount < 0 THEN 0 ELSE amount END);

-- What a process held from each instant on: nothing from its end on. What it measured of itself
-- (RSS, and what of it is anonymous) counts after its first row, and up to the peak that the kernel
-- knows. Other kinds are as in the row before, while they still add up to it within 1 MiB. With
-- `until` no later row is read, and with `is_last` of each process only what was held then.
CREATE OR REPLACE MACRO steps(rec, until := 9223372036854775807, is_last := false) AS TABLE
WITH last AS (
    SELECT upid, max(boot_ns) AS since
    FROM read_parquet(rec || '/mem/*.parquet')
    WHERE is_last AND source IS DISTINCT FROM 'self' AND boot_ns <= until
    GROUP BY upid
),
read AS (
    SELECT upid, boot_ns, source, file_row_number,
        from_zero(rss_bytes) AS rss_bytes, from_zero(rss_anon_bytes) AS rss_anon_bytes,
        from_zero(rss_file_bytes) AS rss_file_bytes, from_zero(rss_shmem_bytes) AS rss_shmem_bytes,
        from_zero(swap_bytes) AS swap_bytes
    FROM read_parquet(rec || '/mem/*.parquet', file_row_number = true)
    LEFT JOIN last USING (upid)
    WHERE boot_ns BETWEEN coalesce(since, boot_ns) AND until
),
counted AS (
    SELECT mem.* EXCLUDE (source, rss_bytes, rss_anon_bytes),
        coalesce(source = 'self', false) AS is_own,
        CASE WHEN is_own THEN least(mem.rss_bytes, peak_bytes) ELSE mem.rss_bytes END AS rss_bytes,
        CASE WHEN NOT is_own OR mem.rss_anon_bytes IS NULL THEN mem.rss_anon_bytes
             ELSE least(mem.rss_anon_bytes, mem.rss_bytes, peak_bytes) END AS rss_anon_bytes
    FROM read mem
    LEFT JOIN processes(rec) process USING (upid)
    WHERE mem.boot_ns < coalesce(process.exit_boot_ns, mem.boot_ns + 1)
        AND (source IS DISTINCT FROM 'self'
            OR mem.rss_bytes <= coalesce(peak_bytes * 1.125, mem.rss_bytes))
),
-- `run` begins with each row of another source, `told` also with each that has the anonymous part.
numbered AS (
    SELECT *, is_own AND rss_anon_bytes IS NULL AS is_untold,
        abs(rss_bytes - lag(rss_bytes) OVER so_far) <= 1 << 20 AS is_near,
        count(*) FILTER (NOT is_own) OVER so_far AS run,
        count(*) FILTER (NOT is_untold) OVER so_far AS told
    FROM counted
    WINDOW so_far AS (PARTITION BY upid ORDER BY boot_ns, file_row_number ROWS UNBOUNDED PRECEDING)
),
compared AS (
    SELECT *, coalesce(CASE WHEN NOT is_own THEN true WHEN is_untold THEN is_near
        ELSE abs(first_value(rss_file_bytes + rss_shmem_bytes) OVER of_run
            - (rss_bytes - rss_anon_bytes)) <= 1 << 20 END, false) AS adds_up
    FROM numbered
    WINDOW of_run AS (PARTITION BY upid, run ORDER BY boot_ns, file_row_number)
)
SELECT upid, boot_ns, rss_bytes,
    CASE WHEN bool_and(adds_up OR NOT is_untold) OVER of_told
         THEN first_value(rss_anon_bytes) OVER of_told END AS rss_anon_bytes,
    CASE WHEN bool_and(adds_up) OVER of_run
         THEN first_value(rss_file_bytes) OVER of_run END AS rss_file_bytes,
    CASE WHEN bool_and(adds_up) OVER of_run
         THEN first_value(rss_shmem_bytes) OVER of_run END AS rss_shmem_bytes,
    first_value(swap_bytes) OVER of_run AS swap_bytes
FROM compared
WHERE run > 0
WINDOW of_run AS (PARTITION BY upid, run ORDER BY boot_ns, file_row_number),
    of_told AS (PARTITION BY upid, told ORDER BY boot_ns, file_row_number)
QUALIFY row_number() OVER (PARTITION BY upid, boot_ns ORDER BY file_row_number DESC) = 1
UNION ALL
SELECT upid, exit_boot_ns, 0, 0, 0, 0, 0 FROM processes(rec) WHERE exit_boot_ns IS NOT NULL;

-- boot_ns at an instant of the wall clock, to the millisecond.
CREATE OR REPLACE MACRO boot_ns_at(rec, instant) AS (
    SELECT arg_max(
        boot_ns + (epoch_us(instant::TIMESTAMPTZ) - epoch_us(ts::TIMESTAMPTZ)) * 1000, boot_ns
    )
    FROM read_parquet(rec || '/mem/*.parquet')
    WHERE ts::TIMESTAMPTZ <= instant::TIMESTAMPTZ
);

-- What each process held at an instant, the largest first.
CREATE OR REPLACE MACRO held_at(rec, instant) AS TABLE
SELECT upid, tgid, coalesce(name, '?') AS name, framework, role, rank,
    step.* EXCLUDE (upid, boot_ns)
FROM steps(rec, until := instant, is_last := true) step
LEFT JOIN processes(rec) process USING (upid)
WHERE boot_ns <= instant AND instant < coalesce(exit_boot_ns, instant + 1)
QUALIFY row_number() OVER (PARTITION BY upid ORDER BY boot_ns DESC) = 1
ORDER BY rss_bytes DESC NULLS LAST, upid;

-- The sum of RSS over all processes from each instant on: an upper bound, since pages that
-- processes share count in each. What is unknown counts as nothing.
CREATE OR REPLACE MACRO sum_over_time(rec) AS TABLE
SELECT boot_ns, (sum(sum(grown)) OVER (ORDER BY boot_ns))::BIGINT AS rss_bytes
FROM (
    SELECT boot_ns, coalesce(rss_bytes, 0)
        - lag(coalesce(rss_bytes, 0), 1, 0) OVER (PARTITION BY upid ORDER BY boot_ns) AS grown
    FROM steps(rec)
)
GROUP BY boot_ns
ORDER BY boot_ns;

-- What all held over time, every page once (findings: see `memtrace report --save-findings`).
CREATE OR REPLACE MACRO held_over_time(rec) AS TABLE
FROM read_parquet(rec || '/held/*.parquet') ORDER BY boot_ns;

-- When most was held: the peak of the report.
CREATE OR REPLACE MACRO peak_boot_ns(rec) AS (
    SELECT boot_ns FROM held_over_time(rec) ORDER BY held_bytes DESC, boot_ns LIMIT 1
);

-- What each role held at an instant, the largest first (findings: see `memtrace report
-- --save-findings`).
CREATE OR REPLACE MACRO roles_at(rec, instant) AS TABLE
SELECT name, framework, role, process_count, held_bytes, rss_bytes, rss_anon_bytes, rss_file_bytes,
    rss_shmem_bytes, swap_bytes, gpu_bytes
FROM read_parquet(rec || '/role_mem/*.parquet')
WHERE boot_ns <= instant
QUALIFY row_number() OVER (PARTITION BY name ORDER BY boot_ns DESC) = 1 AND process_count > 0
ORDER BY held_bytes DESC NULLS LAST, name;

-- Who held memory of which GPU at an instant, the largest first.
CREATE OR REPLACE MACRO gpu_at(rec, instant) AS TABLE
SELECT device, upid, gpu.tgid, coalesce(name, comm) AS name, framework, role, rank, kind,
    used_bytes, host_bytes, client_id
FROM read_parquet(rec || '/gpu_process/*.parquet', file_row_number = true) gpu
LEFT JOIN processes(rec) process USING (upid)
WHERE boot_ns <= instant AND source IN ('nvml', 'drm')
QUALIFY row_number() OVER (
    PARTITION BY device, gpu.tgid, gpu_instance_id, compute_instance_id, client_id
    ORDER BY boot_ns DESC, file_row_number DESC
) = 1 AND (used_bytes IS NULL OR used_bytes <> 0 OR host_bytes <> 0)
ORDER BY used_bytes DESC NULLS LAST, device, gpu.tgid;
