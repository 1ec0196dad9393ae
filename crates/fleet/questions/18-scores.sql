-- What did each benchmark's cell score, by device? The median over its processes of the mean of what each printed.
WITH means AS (
    SELECT r."device", d."name" AS "design", c."name" AS "cell", s."unit", r."run", r."id", avg(s."value") AS "mean_value"
    FROM replicates r
    JOIN cells c ON c."run" = r."run" AND c."id" = r."cell"
    JOIN designs d ON d."run" = c."run" AND d."id" = c."design"
    JOIN samples s ON s."run" = r."run" AND s."replicate" = r."id" AND s."metric" = c."metric"
    WHERE NOT r."warmup" AND r."failure" IS NULL AND r."why" IS NULL
    GROUP BY r."device", d."name", c."name", s."unit", r."run", r."id"
), ranked AS (
    SELECT "device", "design", "cell", "unit", "mean_value",
        row_number() OVER (PARTITION BY "device", "design", "cell", "unit" ORDER BY "mean_value") AS "place_in_order",
        count(*) OVER (PARTITION BY "device", "design", "cell", "unit") AS "processes"
    FROM means
)
SELECT "device", "design", "cell", "unit", max("processes") AS "processes",
    min(CASE WHEN 2 * "place_in_order" >= "processes" THEN "mean_value" END) AS "median_value"
FROM ranked
GROUP BY "device", "design", "cell", "unit"
ORDER BY "device", "design", "cell", "unit"
