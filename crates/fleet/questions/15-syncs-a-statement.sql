-- How many fsync calls does a statement make?
WITH executions AS (
    SELECT o."device", s."text", count(*) AS "executions"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE s."kind" = 'statement'
    GROUP BY o."device", s."text"
), syncs AS (
    SELECT p."device", s."text", count(*) AS "syncs", CAST(sum(p."end_ns" - p."start_ns") AS BIGINT) AS "time_ns"
    FROM spans p
    JOIN operations o ON o."run" = p."run" AND o."id" = p."operation"
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE p."layer" = 'Syscall' AND p."kind" IN ('fsync', 'fdatasync', 'sync_file_range') AND p."end_ns" IS NOT NULL
    GROUP BY p."device", s."text"
)
SELECT e."device", e."text", e."executions", y."syncs", CAST(y."syncs" AS DOUBLE) / CAST(e."executions" AS DOUBLE) AS "syncs_an_execution",
    CAST(y."time_ns" AS DOUBLE) / CAST(y."syncs" AS DOUBLE) AS "mean_sync_ns"
FROM executions e
JOIN syncs y ON y."device" = e."device" AND y."text" = e."text"
ORDER BY "syncs_an_execution" DESC, e."device", e."text"
LIMIT 20
