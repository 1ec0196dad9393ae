//! A line of the log: an entry as JSON, followed by the line's number and a checksum, so that lost or changed lines are detected.
//!
//! `{"stopped":{…},"n":28,"crc32":"0c9d2a41"}`. The checksum is of everything before `,"crc32"`. Logs of earlier versions have neither,
//! and are read without them.

use super::Entry;

const NUMBER_KEY: &str = ",\"n\":";
const CHECKSUM_KEY: &str = ",\"crc32\":\"";

/// Line `number` (the first is 1), with its end.
pub fn encode(number: u64, entry: &Entry) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_string(entry)?;
    // The closing brace moves after the added fields.
    text.pop();
    text += &format!("{NUMBER_KEY}{number}");
    text += &format!("{CHECKSUM_KEY}{:08x}\"}}\n", crc32fast::hash(text.as_bytes()));
    Ok(text.into_bytes())
}

/// Returns the entry of a line and its number, or why the line is invalid.
pub fn decode(line: &[u8]) -> Result<(Option<u64>, Entry), String> {
    let text = std::str::from_utf8(line).map_err(|e| e.to_string())?.trim_end();
    let entry = |text: &str| serde_json::from_str(text).map_err(|e| e.to_string());
    let Some((summed, sum)) = text.rsplit_once(CHECKSUM_KEY) else { return Ok((None, entry(text)?)) };
    if sum.strip_suffix("\"}") != Some(&format!("{:08x}", crc32fast::hash(summed.as_bytes()))) {
        return Err("checksum mismatch".into());
    }
    let (body, number) = summed.rsplit_once(NUMBER_KEY).ok_or("no line number")?;
    let number = number.parse().map_err(|_| "invalid line number")?;
    Ok((Some(number), entry(&format!("{body}}}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_round_trip_and_every_changed_byte_is_detected() {
        let entry = Entry::Absent { cell: 3, why: "\"n\":1,\"crc32\":\"ä".into() };
        let line = encode(7, &entry).unwrap();
        assert_eq!(decode(&line).unwrap(), (Some(7), entry.clone()));
        serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        for at in 0..line.len() - 1 {
            for bit in [0, 4, 7] {
                let mut changed = line.clone();
                changed[at] ^= 1 << bit;
                // Only if the checksum's own key is hit does the line read as one of an older version.
                let read = decode(&changed);
                assert!(read.is_err() || read.as_ref().unwrap() == &(None, entry.clone()), "{at}: {read:?}");
            }
        }
        let old = serde_json::to_vec(&entry).unwrap();
        assert_eq!(decode(&old).unwrap(), (None, entry));
    }
}
