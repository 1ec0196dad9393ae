-- Who is behind the bytes that disks wrote: the recorded operations, other processes, the tracer?
SELECT c."device", c."origin", CAST(sum(c."share") AS DOUBLE) AS "commands",
    CAST(sum(c."share" * CAST(p."bytes" AS DOUBLE)) AS DOUBLE) AS "written_bytes"
FROM causes c
JOIN spans p ON p."run" = c."run" AND p."id" = c."command"
WHERE p."flags" LIKE '%write%'
GROUP BY c."device", c."origin"
ORDER BY c."device", "written_bytes" DESC, c."origin"
