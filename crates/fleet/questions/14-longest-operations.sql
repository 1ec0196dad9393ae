-- Which single operations took longest, and what did they wait for most?
WITH ranked AS (
    SELECT o."device", o."run", o."archive", o."id", s."text", o."end_ns" - o."start_ns" AS "latency_ns",
        row_number() OVER (PARTITION BY s."kind" ORDER BY o."end_ns" - o."start_ns" DESC, o."run", o."id") AS "place_in_kind"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE o."end_ns" IS NOT NULL
), longest AS (
    SELECT "device", "run", "archive", "id", "text", "latency_ns" FROM ranked WHERE "place_in_kind" <= 10
), parts AS (
    SELECT l."run", l."id", c."layer", c."reason", CAST(sum(c."end_ns" - c."start_ns") AS BIGINT) AS "time_ns"
    FROM longest l
    JOIN slices c ON c."run" = l."run" AND c."operation" = l."id"
    GROUP BY l."run", l."id", c."layer", c."reason"
), chief AS (
    SELECT "run", "id", "layer", "reason", "time_ns",
        row_number() OVER (PARTITION BY "run", "id" ORDER BY "time_ns" DESC, "layer", "reason") AS "place_in_order"
    FROM parts
)
SELECT l."device", l."archive", l."text", l."latency_ns", f."layer", f."reason", f."time_ns"
FROM longest l
LEFT JOIN chief f ON f."run" = l."run" AND f."id" = l."id" AND f."place_in_order" = 1
ORDER BY l."latency_ns" DESC, l."run", l."id"
LIMIT 10
