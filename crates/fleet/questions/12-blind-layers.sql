-- Which layers could not be seen on which device, and why?
SELECT "device", "layer", "probe", coalesce("absence", 'not said') AS "why", count(*) AS "recordings"
FROM coverage
WHERE NOT "attached"
GROUP BY "device", "layer", "probe", coalesce("absence", 'not said')
ORDER BY "recordings" DESC, "device", "layer", "probe", "why"
LIMIT 20
