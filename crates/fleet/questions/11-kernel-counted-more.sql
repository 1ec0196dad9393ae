-- Where did the kernel count more completed I/O than was recorded?
SELECT k."device", k."date", k."archive", coalesce(d."name", 'unknown') AS "disk_name", k."what", k."kernel", k."recorded", k."unsure"
FROM checks k
LEFT JOIN disks d ON d."run" = k."run" AND d."dev" = k."disk"
WHERE k."kernel" IS NOT NULL AND abs(k."kernel" - k."recorded") > k."unsure"
ORDER BY k."date", k."device", k."archive", "disk_name", k."what"
