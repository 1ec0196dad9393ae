//! Merges what the processes of a cell report into one text: the proof of a mode counts what was compiled and for how long, with
//! different numbers in each process, and proves the same thing.
//!
//! A text is split at its semicolons. A part that is equal in all texts is kept; one in which only numbers differ is kept with
//! their range; any other part is dropped.

/// Splits a part into its text, with numbers replaced by placeholders, and those numbers. Only free-standing numbers count: that
/// of a version or of a name (`c2`) is part of the text.
fn split_numbers(part: &str) -> (String, Vec<&str>) {
    let (mut skeleton, mut numbers) = (String::new(), Vec::new());
    let mut rest = part;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[at..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |n| at + n);
        let before = rest[..at].chars().next_back().or(skeleton.chars().next_back());
        let alone =
            before.is_none_or(|c| " ={,".contains(c)) && rest[end..].chars().next().is_none_or(|c| " ,}".contains(c));
        skeleton.push_str(&rest[..at]);
        if alone {
            skeleton.push('\u{0}');
            numbers.push(&rest[at..end]);
        } else {
            skeleton.push_str(&rest[at..end]);
        }
        rest = &rest[end..];
    }
    skeleton.push_str(rest);
    (skeleton, numbers)
}

/// Returns what parts at the same place have in common.
fn common_part(parts: &[&str]) -> Option<String> {
    let first = *parts.first()?;
    if parts.iter().all(|part| *part == first) {
        return Some(first.into());
    }
    let all: Vec<(String, Vec<&str>)> = parts.iter().map(|part| split_numbers(part)).collect();
    let skeleton = &all[0].0;
    if all.iter().any(|(other, _)| other != skeleton) {
        return None;
    }
    let mut out = String::new();
    for (nth, piece) in skeleton.split('\u{0}').enumerate() {
        if nth > 0 {
            let values: Vec<&str> = all.iter().filter_map(|(_, numbers)| numbers.get(nth - 1).copied()).collect();
            let size = |text: &&str| text.parse::<u64>().unwrap_or(u64::MAX);
            let (low, high) = (values.iter().copied().min_by_key(size)?, values.iter().copied().max_by_key(size)?);
            out += &if low == high { low.to_string() } else { format!("{low} to {high}") };
        }
        out += piece;
    }
    Some(out)
}

/// Returns the parts of texts, by place; `None` if a text has more parts than another.
fn parts_by_place<'a>(texts: &[&'a str]) -> Option<Vec<Vec<&'a str>>> {
    let split: Vec<Vec<&str>> = texts.iter().map(|text| text.split("; ").collect()).collect();
    let places = split.first()?.len();
    split
        .iter()
        .all(|parts| parts.len() == places)
        .then(|| (0..places).map(|place| split.iter().map(|parts| parts[place]).collect()).collect())
}

/// Returns what texts have in common; `None` if their first parts differ.
pub fn common_text(texts: &[&str]) -> Option<String> {
    let mut parts = parts_by_place(texts)?.into_iter().map(|parts| common_part(&parts));
    let first = parts.next()??;
    Some(std::iter::once(first).chain(parts.flatten()).collect::<Vec<_>>().join("; "))
}

/// Whether two groups of texts contradict each other: a part is the same within each group but differs between them.
pub fn contradict(a: &[&str], b: &[&str]) -> bool {
    let (Some(a), Some(b)) = (parts_by_place(a), parts_by_place(b)) else { return a != b };
    let fixed = |parts: &[&str]| parts.iter().all(|part| *part == parts[0]).then(|| parts[0].to_string());
    let differ = |(x, y): (&Vec<&str>, &Vec<&str>)| {
        let (skeleton_x, skeleton_y) = (split_numbers(x[0]).0, split_numbers(y[0]).0);
        match (fixed(x), fixed(y)) {
            // Counts of ms of single processes do not contradict each other.
            (Some(x), Some(y)) if skeleton_x.ends_with(" ms") && skeleton_x == skeleton_y => {
                x.is_empty() != y.is_empty()
            }
            (Some(x), Some(y)) => x != y,
            _ => false,
        }
    };
    a.len() != b.len() || a.iter().zip(&b).any(differ)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_PROOF: &str = "jvm-c2: OpenJDK 17.0.9 (mixed mode); TieredCompilation false; compilers ran 88 ms; tiers {4=31}; of the kernel lu tier 4";
    const SECOND_PROOF: &str = "jvm-c2: OpenJDK 17.0.9 (mixed mode); TieredCompilation false; compilers ran 103 ms; tiers {4=29}; of the kernel lu tier 4";

    #[test]
    fn proofs_differing_only_in_numbers_are_equal() {
        let said = common_text(&[FIRST_PROOF, SECOND_PROOF, FIRST_PROOF]).unwrap();
        assert!(said.starts_with("jvm-c2: OpenJDK 17.0.9 (mixed mode); Tiered"), "{said}");
        assert!(said.contains("compilers ran 88 to 103 ms") && said.contains("{4=29 to 31}"), "{said}");
        assert!(
            !contradict(&[FIRST_PROOF, SECOND_PROOF], &[SECOND_PROOF, FIRST_PROOF])
                && !contradict(&[FIRST_PROOF], &[FIRST_PROOF])
        );
        // One lists another tier: the common text omits it.
        let tiers = SECOND_PROOF.replace("{4=29}", "{1=3, 4=29}");
        let said = common_text(&[FIRST_PROOF, &tiers]).unwrap();
        assert!(!said.contains("tiers") && said.ends_with("of the kernel lu tier 4"), "{said}");
    }

    #[test]
    fn proofs_of_another_machine_or_mode_differ() {
        let other = FIRST_PROOF.replace("jvm-c2", "jvm-c1");
        assert_eq!(common_text(&[FIRST_PROOF, &other]), None);
        let newer = FIRST_PROOF.replace("17.0.9", "21.0.1");
        assert!(contradict(&[FIRST_PROOF, SECOND_PROOF], &[&newer, &newer]));
        assert!(contradict(&["interpreted"], &["compiled"]) && !contradict(&["a"], &["a"]));
        assert_eq!(common_text(&["interpreted", "compiled"]), None);
    }
}
