-- On which devices did a statement's p99 get worse by a tenth in the last seven days of the data?
-- A difference of two ranks, no test of it: `fathom diff` of two recordings says how sure it is.
WITH timed AS (
    SELECT o."device", s."text", o."end_ns" - o."start_ns" AS "latency_ns",
        CASE WHEN o."date" > (SELECT max("date") FROM archives) - INTERVAL '7' DAY THEN 1 ELSE 0 END AS "this_week"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE o."end_ns" IS NOT NULL AND s."kind" = 'statement'
), ranked AS (
    SELECT "device", "text", "this_week", "latency_ns",
        row_number() OVER (PARTITION BY "device", "text", "this_week" ORDER BY "latency_ns") AS "place_in_order",
        count(*) OVER (PARTITION BY "device", "text", "this_week") AS "executions"
    FROM timed
), percentiles AS (
    SELECT "device", "text", "this_week", max("executions") AS "executions",
        min(CASE WHEN 100 * "place_in_order" >= 99 * "executions" THEN "latency_ns" END) AS "p99_ns"
    FROM ranked
    GROUP BY "device", "text", "this_week"
)
SELECT b."device", b."text", b."p99_ns" AS "before_ns", a."p99_ns" AS "this_week_ns",
    b."executions" AS "executions_before", a."executions" AS "executions_this_week"
FROM percentiles b
JOIN percentiles a ON a."device" = b."device" AND a."text" = b."text" AND a."this_week" = 1
WHERE b."this_week" = 0 AND 10 * a."p99_ns" > 11 * b."p99_ns"
ORDER BY b."device", b."text"
