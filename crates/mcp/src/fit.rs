//! Fits an answer into a budget: the least important parts are cut first, and the cuts are listed.
//!
//! Lists in Fathom's JSON are ordered by weight: statements by time, findings by cost. So a list that is too long loses its end, a text its
//! tail, and the reader learns how much. Nothing is rounded or aggregated.

use serde_json::{Map, Value, json};

/// Shorter lists and texts are not cut.
const LIST_LENGTH_MIN: usize = 1;
const TEXT_CHARACTERS_MIN: usize = 200;
/// Number of cuts that are listed, and the part of the budget for that list (at least [`TEXT_CHARACTERS_MIN`] characters).
const CUTS_LISTED_MAX: usize = 12;
const CUTS_BUDGET_DIVISOR: usize = 6;
/// Maximum number of rounds: a hostile answer of many small parts is given up on.
const ROUNDS_MAX: usize = 2000;
/// Parts of an answer that are not its subject: they are cut first, and completely.
const SECONDARY_PARTS: [&str; 8] =
    ["environment", "facts", "coverage", "device_commands", "driver_commands", "links", "relations", "files"];

/// The value with at most `budget` characters of JSON, and its cuts: path and count.
pub fn fit(mut value: Value, budget: usize) -> (Value, Vec<Value>) {
    let mut left_out: Map<String, Value> = Map::new();
    for name in SECONDARY_PARTS {
        // Removing an empty part would gain nothing, and lose the fact that there is nothing.
        if json_characters(&value) > budget
            && value.get(name).is_some_and(|part| count_entries(part) > 0)
            && let Some(gone) = value.as_object_mut().and_then(|map| map.remove(name))
        {
            left_out.insert(name.into(), count_entries(&gone).into());
        }
    }
    // Each round halves the largest part, so a few dozen rounds reach most sizes; then fields are removed one by one.
    for _ in 0..ROUNDS_MAX {
        if json_characters(&value) <= budget {
            break;
        }
        let Some((path, kind)) = largest_part(&value).or_else(|| heaviest_field(&value)) else { break };
        let Some(found) = part_at(&mut value, &path) else { break };
        let name = if path.is_empty() { ".".to_string() } else { path.join(".") };
        let gone = match (kind, found) {
            (Kind::List, Value::Array(list)) => {
                let keep = (list.len() / 2).max(LIST_LENGTH_MIN);
                let gone = list.len() - keep;
                list.truncate(keep);
                gone
            }
            (Kind::Object, Value::Object(map)) => {
                let keep = map.len() / 2;
                let names: Vec<String> = map.keys().skip(keep).cloned().collect();
                names.iter().for_each(|name| {
                    map.remove(name);
                });
                names.len()
            }
            (Kind::Text, Value::String(text)) => {
                let length = text.chars().count();
                *text = text.chars().take(length / 2).chain(['…']).collect();
                length - length / 2
            }
            (Kind::Field(name), Value::Object(map)) => {
                map.remove(&name);
                1
            }
            _ => break,
        };
        let before = left_out.get(&name).and_then(Value::as_u64).unwrap_or(0);
        left_out.insert(name, (before + gone as u64).into());
    }
    if json_characters(&value) > budget {
        value = json!({"too_large": "the smallest form of this answer exceeds the budget; ask for less"});
    }
    let all = left_out.len();
    let mut room = (budget / CUTS_BUDGET_DIVISOR).max(TEXT_CHARACTERS_MIN);
    let mut places = Vec::new();
    for (path, count) in left_out.into_iter().take(CUTS_LISTED_MAX) {
        let place = json!({"path": path, "left_out": count});
        let Some(rest) = room.checked_sub(json_characters(&place)) else { break };
        room = rest;
        places.push(place);
    }
    let others = all - places.len();
    if others > 0 {
        places.push(json!({"path": format!("{others} other places"), "left_out": null}));
    }
    (value, places)
}

fn count_entries(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 1,
    }
}

fn json_characters(value: &Value) -> usize {
    value.to_string().chars().count()
}

enum Kind {
    List,
    Object,
    Text,
    /// One field of an object.
    Field(String),
}

/// The heaviest field, when no list or text is long any more: that of an object without a part that is half of it, so that the requested
/// part loses details rather than being removed.
fn heaviest_field(value: &Value) -> Option<(Vec<String>, Kind)> {
    let (mut path, mut here) = (Vec::new(), value);
    let mut last = None;
    loop {
        let parts: Vec<(String, &Value)> = match here {
            Value::Object(map) => map.iter().map(|(name, inner)| (name.clone(), inner)).collect(),
            Value::Array(list) => list.iter().enumerate().map(|(n, inner)| (n.to_string(), inner)).collect(),
            _ => return last,
        };
        let Some((name, part)) = parts.iter().max_by_key(|(_, inner)| json_characters(inner)).cloned() else {
            return last;
        };
        if here.is_object() {
            let half = json_characters(part) * 2 >= json_characters(here);
            // The lists of the answer itself are the requested part.
            let beside =
                parts.iter().filter(|(_, inner)| !inner.is_array()).max_by_key(|(_, inner)| json_characters(inner));
            let goes = if path.is_empty() && !half { beside.map_or(&name, |(name, _)| name) } else { &name };
            last = Some((path.clone(), Kind::Field(goes.clone())));
            if !half {
                return last;
            }
        }
        path.push(name);
        here = part;
    }
}

/// The largest thing that can be made smaller: the innermost one, so that one long list does not cost its neighbours.
fn largest_part(value: &Value) -> Option<(Vec<String>, Kind)> {
    let mut best: Option<(usize, Vec<String>, Kind)> = None;
    let mut path = Vec::new();
    find_largest(value, &mut path, &mut best);
    best.map(|(_, path, kind)| (path, kind))
}

fn find_largest(value: &Value, path: &mut Vec<String>, best: &mut Option<(usize, Vec<String>, Kind)>) {
    let kind = match value {
        Value::Array(list) if list.len() > LIST_LENGTH_MIN => Some(Kind::List),
        // A map of many similar things (facts, disks); a contract's own object has no more fields than a page holds.
        Value::Object(map) if map.len() > 40 => Some(Kind::Object),
        Value::String(text) if text.chars().count() > TEXT_CHARACTERS_MIN => Some(Kind::Text),
        _ => None,
    };
    if let Some(kind) = kind {
        let size = json_characters(value);
        if best.as_ref().is_none_or(|(most, ..)| size > *most) {
            *best = Some((size, path.clone(), kind));
        }
    }
    let mut within = |name: String, inner: &Value| {
        path.push(name);
        find_largest(inner, path, best);
        path.pop();
    };
    match value {
        Value::Array(list) => list.iter().enumerate().for_each(|(n, inner)| within(n.to_string(), inner)),
        Value::Object(map) => map.iter().for_each(|(name, inner)| within(name.clone(), inner)),
        _ => {}
    }
}

fn part_at<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, name| match value {
        Value::Array(list) => list.get_mut(name.parse::<usize>().ok()?),
        Value::Object(map) => map.get_mut(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_within_the_budget_is_unchanged() {
        let value = json!({"operations": [1, 2, 3]});
        assert_eq!(fit(value.clone(), 1000), (value, vec![]));
    }

    #[test]
    fn list_is_cut_and_the_rest_is_counted() {
        let (value, left_out) = fit(json!({"rows": (0..1000).collect::<Vec<_>>(), "n": 7}), 200);
        let rows = value["rows"].as_array().unwrap();
        assert!(json_characters(&value) <= 200 && rows[0] == 0 && value["n"] == 7);
        assert_eq!(left_out, [json!({"path": "rows", "left_out": 1000 - rows.len()})]);
    }

    #[test]
    fn empty_part_is_not_cut() {
        let (value, left_out) = fit(json!({"facts": [], "links": {}, "rows": vec![1; 100]}), 100);
        assert!(value["facts"] == json!([]) && value["links"] == json!({}), "{value}");
        assert!(left_out.iter().all(|cut| cut["path"] == "rows"), "{left_out:?}");
    }

    /// Some of the requested part remains as long as there is room for it.
    #[test]
    fn requested_part_is_cut_last() {
        let facts: Map<String, Value> = (0..30).map(|n| (format!("fact{n}"), json!("y".repeat(100)))).collect();
        let layers: Map<String, Value> =
            (0..10).map(|n| (format!("layer{n}"), json!({"ns": n, "share": "z"}))).collect();
        let operation = json!({"statement": "INSERT", "count": 7, "layers": layers});
        let summary = json!({"environment": facts, "operations": vec![operation; 50], "coverage": vec!["probe"; 90]});
        for (room, kept) in [(1000, "layers"), (300, "count"), (150, "statement")] {
            let (fitted, left_out) = fit(summary.clone(), room);
            assert!(json_characters(&fitted) <= room, "{fitted}");
            assert_eq!(fitted["operations"][0]["statement"], "INSERT", "{room}: {fitted}");
            assert!(!fitted["operations"][0][kept].is_null(), "{room}: {fitted}");
            assert!(left_out.contains(&json!({"path": "environment", "left_out": 30})), "{left_out:?}");
        }
    }

    #[test]
    fn every_value_fits_or_says_so() {
        let deep = (0..200).fold(json!("x"), |inner, _| json!([inner]));
        let wide: Map<String, Value> = (0..500).map(|n| (format!("fact{n}"), json!("y".repeat(n)))).collect();
        for value in [deep, Value::Object(wide), json!("z".repeat(10_000)), json!([vec![1; 50], vec![2; 50]])] {
            let (fitted, _) = fit(value, 150);
            assert!(json_characters(&fitted) <= 150, "{fitted}");
        }
    }
}
