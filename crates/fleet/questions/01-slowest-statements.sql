-- Which statements are slowest on which device?
-- Percentiles by rank (the smallest latency that 99 of 100 executions do not exceed), so that every engine says the same.
WITH timed AS (
    SELECT o."device", s."text", o."end_ns" - o."start_ns" AS "latency_ns"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE o."end_ns" IS NOT NULL AND s."kind" = 'statement'
), ranked AS (
    SELECT "device", "text", "latency_ns",
        row_number() OVER (PARTITION BY "device", "text" ORDER BY "latency_ns") AS "place_in_order",
        count(*) OVER (PARTITION BY "device", "text") AS "executions"
    FROM timed
)
SELECT "device", "text", max("executions") AS "executions",
    min(CASE WHEN 2 * "place_in_order" >= "executions" THEN "latency_ns" END) AS "p50_ns",
    min(CASE WHEN 100 * "place_in_order" >= 99 * "executions" THEN "latency_ns" END) AS "p99_ns"
FROM ranked
GROUP BY "device", "text"
ORDER BY "p99_ns" DESC, "device", "text"
LIMIT 20
