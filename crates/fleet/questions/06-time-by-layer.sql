-- Where do operations spend their time, by layer and device?
WITH spent AS (
    SELECT "device", "layer", "reason", CAST(sum("end_ns" - "start_ns") AS BIGINT) AS "time_ns"
    FROM slices
    GROUP BY "device", "layer", "reason"
)
SELECT "device", "layer", "reason", "time_ns",
    CAST("time_ns" AS DOUBLE) / NULLIF(CAST(sum("time_ns") OVER (PARTITION BY "device") AS DOUBLE), CAST(0 AS DOUBLE)) AS "part"
FROM spent
ORDER BY "device", "time_ns" DESC, "layer", "reason"
