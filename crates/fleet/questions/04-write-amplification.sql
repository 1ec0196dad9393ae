-- How many bytes reach the disk for each byte that a program writes, by device?
WITH asked AS (
    SELECT "device", CAST(sum("bytes") AS BIGINT) AS "asked_bytes"
    FROM spans
    WHERE "layer" = 'Syscall' AND "kind" IN ('write', 'writev', 'pwrite64', 'pwritev', 'pwritev2') AND "operation" IS NOT NULL
    GROUP BY "device"
), written AS (
    SELECT c."device", CAST(sum(c."share" * CAST(p."bytes" AS DOUBLE)) AS DOUBLE) AS "written_bytes"
    FROM causes c
    JOIN spans p ON p."run" = c."run" AND p."id" = c."command"
    WHERE c."origin" = 'operation' AND p."kind" = 'command' AND p."flags" LIKE '%write%'
    GROUP BY c."device"
)
SELECT a."device", a."asked_bytes", coalesce(w."written_bytes", CAST(0 AS DOUBLE)) AS "written_bytes",
    coalesce(w."written_bytes", CAST(0 AS DOUBLE)) / NULLIF(CAST(a."asked_bytes" AS DOUBLE), CAST(0 AS DOUBLE)) AS "amplification"
FROM asked a
LEFT JOIN written w ON w."device" = a."device"
ORDER BY a."device"
