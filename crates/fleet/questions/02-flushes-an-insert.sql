-- How many flushes does an INSERT cost, by file system?
-- Shares of commands, so that a flush that two statements wait for is half a flush for each.
WITH inserts AS (
    SELECT o."run", o."id"
    FROM operations o
    JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE s."kind" = 'statement' AND lower(s."text") LIKE 'insert%'
), counted AS (
    SELECT "run", count(*) AS "inserts" FROM inserts GROUP BY "run"
), flushed AS (
    SELECT i."run", CAST(sum(c."share") AS DOUBLE) AS "flushes"
    FROM inserts i
    JOIN causes c ON c."run" = i."run" AND c."operation" = i."id"
    JOIN spans p ON p."run" = c."run" AND p."id" = c."command" AND p."kind" = 'flush'
    GROUP BY i."run"
), kinds AS (
    SELECT "run", max("value") AS "file_system" FROM facts WHERE "name" = 'fs.type' GROUP BY "run"
)
SELECT coalesce(k."file_system", 'unknown') AS "file_system",
    CAST(sum(n."inserts") AS BIGINT) AS "inserts",
    CAST(sum(coalesce(f."flushes", CAST(0 AS DOUBLE))) AS DOUBLE) / CAST(sum(n."inserts") AS DOUBLE) AS "flushes_an_insert"
FROM counted n
LEFT JOIN flushed f ON f."run" = n."run"
LEFT JOIN kinds k ON k."run" = n."run"
GROUP BY coalesce(k."file_system", 'unknown')
ORDER BY "file_system"
