-- What throughput do network runs reach, and what limited them?
WITH limits AS (
    SELECT "run", "replicate", max("text") AS "limited_by" FROM marks WHERE "name" = 'limited by' GROUP BY "run", "replicate"
)
SELECT s."device", coalesce(l."limited_by", 'unknown') AS "limited_by", count(*) AS "measurements",
    min(s."value") AS "least_bps", max(s."value") AS "most_bps"
FROM samples s
LEFT JOIN limits l ON l."run" = s."run" AND l."replicate" = s."replicate"
WHERE s."metric" = 'throughput' AND s."unit" = 'bit/s'
GROUP BY s."device", coalesce(l."limited_by", 'unknown')
ORDER BY s."device", "limited_by"
