-- Which setting goes along with the largest difference in a statement's mean latency?
-- A difference that goes along with a setting need not come of it: `fathom bench ab` tries that.
WITH means AS (
    SELECT o."run", s."text", avg(CAST(o."end_ns" - o."start_ns" AS DOUBLE)) AS "mean_ns"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE o."end_ns" IS NOT NULL AND s."kind" = 'statement'
    GROUP BY o."run", s."text"
), settings AS (
    SELECT "run", "name", max("value") AS "setting"
    FROM facts
    WHERE "value" IS NOT NULL
        AND ("name" LIKE 'sqlite.%' OR "name" LIKE 'fs.%' OR "name" LIKE 'disk.%' OR "name" LIKE 'memory.dirty%' OR "name" LIKE 'cpu.%')
    GROUP BY "run", "name"
), grouped AS (
    SELECT t."name", m."text", t."setting", avg(m."mean_ns") AS "mean_ns", count(*) AS "runs"
    FROM means m
    JOIN settings t ON t."run" = m."run"
    GROUP BY t."name", m."text", t."setting"
)
SELECT "name", "text", count(*) AS "settings", CAST(sum("runs") AS BIGINT) AS "runs",
    min("mean_ns") AS "fastest_ns", max("mean_ns") AS "slowest_ns",
    max("mean_ns") / NULLIF(CAST(min("mean_ns") AS DOUBLE), CAST(0 AS DOUBLE)) AS "ratio"
FROM grouped
GROUP BY "name", "text"
HAVING count(*) > 1
ORDER BY "ratio" DESC, "name", "text"
LIMIT 20
