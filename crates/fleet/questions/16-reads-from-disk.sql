-- Which statements read pages that were not in the page cache?
SELECT p."device", s."text", count(*) AS "reads", CAST(sum(coalesce(p."cache_added", 0)) AS BIGINT) AS "pages_added",
    CAST(sum(p."bytes") AS BIGINT) AS "bytes_read"
FROM spans p
JOIN operations o ON o."run" = p."run" AND o."id" = p."operation"
JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
WHERE p."layer" = 'FileSystem' AND p."kind" = 'read'
GROUP BY p."device", s."text"
ORDER BY "pages_added" DESC, p."device", s."text"
LIMIT 20
