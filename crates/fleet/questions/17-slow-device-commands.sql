-- How long do devices take for a command, by what it does?
WITH timed AS (
    SELECT "device", "kind", CASE
            WHEN "kind" = 'flush' THEN 'flush'
            WHEN "flags" LIKE '%write%' THEN 'write'
            WHEN "flags" LIKE '%discard%' THEN 'discard'
            ELSE 'read'
        END AS "does", "bytes", "end_ns" - "start_ns" AS "latency_ns"
    FROM spans
    WHERE "layer" = 'Driver' AND "end_ns" IS NOT NULL
        AND "number" IS NOT NULL AND "flags" NOT LIKE '%untimed%'
), ranked AS (
    SELECT "device", "does", "bytes", "latency_ns",
        row_number() OVER (PARTITION BY "device", "does" ORDER BY "latency_ns") AS "place_in_order",
        count(*) OVER (PARTITION BY "device", "does") AS "commands"
    FROM timed
)
SELECT "device", "does", max("commands") AS "commands", CAST(sum("bytes") AS BIGINT) AS "moved_bytes",
    min(CASE WHEN 2 * "place_in_order" >= "commands" THEN "latency_ns" END) AS "p50_ns",
    min(CASE WHEN 100 * "place_in_order" >= 99 * "commands" THEN "latency_ns" END) AS "p99_ns"
FROM ranked
GROUP BY "device", "does"
ORDER BY "device", "does"
