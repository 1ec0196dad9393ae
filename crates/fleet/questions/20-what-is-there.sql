-- What is there: archives by day, device and kind?
SELECT "date", "device", "kind", count(*) AS "archives", CAST(sum(CASE WHEN "complete" THEN 0 ELSE 1 END) AS BIGINT) AS "cut_short",
    CAST(sum("log_bytes") AS BIGINT) AS "log_bytes"
FROM archives
GROUP BY "date", "device", "kind"
ORDER BY "date", "device", "kind"
