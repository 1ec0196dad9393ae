-- Which probes cost a recording most?
SELECT "device", "probe", CAST(sum("hits") AS BIGINT) AS "runs_counted",
    CAST(sum("price_ns" * CAST("hits" AS DOUBLE)) AS DOUBLE) AS "counted_ns"
FROM coverage
WHERE "hits" > 0 AND "price_ns" IS NOT NULL
GROUP BY "device", "probe"
ORDER BY "counted_ns" DESC, "device", "probe"
LIMIT 20
