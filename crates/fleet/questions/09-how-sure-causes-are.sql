-- How sure is it, by device, which operation a device command came from?
SELECT "device", "confidence", count(*) AS "origins", CAST(sum("share") AS DOUBLE) AS "commands"
FROM causes
GROUP BY "device", "confidence"
ORDER BY "device", "commands" DESC, "confidence"
