-- Which recordings miss something, and what?
SELECT l."device", l."date", l."archive", l."source", count(*) AS "losses", CAST(sum(coalesce(l."events", 0)) AS BIGINT) AS "events_known",
    CAST(sum(CASE WHEN l."events" IS NULL OR l."at_least" THEN 1 ELSE 0 END) AS BIGINT) AS "losses_of_unknown_size"
FROM losses l
GROUP BY l."device", l."date", l."run", l."archive", l."source"
ORDER BY l."date", l."device", l."archive", l."source"
