-- To which files do operations write most?
SELECT p."device", coalesce(f."path", 'unknown') AS "file", count(*) AS "writes", CAST(sum(p."bytes") AS BIGINT) AS "written_bytes"
FROM spans p
LEFT JOIN files f ON f."run" = p."run" AND f."id" = p."file"
WHERE p."layer" = 'FileSystem' AND p."kind" = 'write' AND p."operation" IS NOT NULL
GROUP BY p."device", coalesce(f."path", 'unknown')
ORDER BY "written_bytes" DESC, p."device", "file"
LIMIT 20
