//! Which of several archives of one recording to add: copies, a copy that was damaged or cut short, a benchmark before it was resumed.
//! One is added, the others stay ready until it is: its tables may turn out to be damaged.

use crate::Identity;
use crate::commits::State;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;

/// An archive that may be added.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Where it is.
    pub dir: PathBuf,
    pub identity: Identity,
}

/// How a fleet knows an archive.
#[derive(Debug, PartialEq, Eq)]
pub enum FleetMatch {
    /// It has this archive.
    Same,
    /// It has another state of its recording, in this run.
    OtherState(String),
}

/// How the fleet knows this archive, if it does.
pub fn find_match(state: &State, identity: &Identity) -> Option<FleetMatch> {
    if state.runs.contains(&identity.run) {
        return Some(FleetMatch::Same);
    }
    state.recordings.get(identity.recording.as_ref()?).map(|run| FleetMatch::OtherState(run.clone()))
}

/// Groups the archives by recording, in order of their first one; in a group the best is first: an undamaged one, of several the
/// longest, of equal ones the one given first.
pub fn group_by_recording(all: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    let mut place: HashMap<String, usize> = HashMap::new();
    for one in all {
        let keys = [Some(&one.identity.run), one.identity.recording.as_ref()];
        let at = keys.into_iter().flatten().find_map(|key| place.get(key).copied()).unwrap_or(groups.len());
        for key in keys.into_iter().flatten() {
            place.insert(key.clone(), at);
        }
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(one);
    }
    for group in &mut groups {
        group.sort_by_key(|one| (one.identity.damaged, Reverse(one.identity.log_bytes)));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(dir: &str, run: &str, recording: Option<&str>, log_bytes: u64, damaged: bool) -> Candidate {
        let identity = Identity {
            device: "x".into(),
            run: run.into(),
            recording: recording.map(Into::into),
            damaged,
            archive: dir.into(),
            created_unix_ns: 1,
            day: 0,
            log_bytes,
        };
        Candidate { dir: dir.into(), identity }
    }

    #[test]
    fn best_state_of_each_recording_is_first() {
        let all = vec![
            candidate("half", "1", Some("a"), 50, false),
            candidate("flipped", "2", Some("a"), 100, true),
            candidate("whole", "3", Some("a"), 100, false),
            candidate("copy", "3", Some("a"), 100, false),
            candidate("other", "4", Some("b"), 1, false),
            candidate("unknown", "5", None, 1, false),
            candidate("unknown, copied", "5", None, 1, false),
        ];
        let names: Vec<Vec<String>> = group_by_recording(all)
            .into_iter()
            .map(|group| group.into_iter().map(|one| one.identity.archive).collect())
            .collect();
        assert_eq!(
            names,
            [vec!["whole", "copy", "half", "flipped"], vec!["other"], vec!["unknown", "unknown, copied"]]
        );
    }

    #[test]
    fn fleet_knows_a_run_and_its_recording() {
        let mut state = State::default();
        state.runs.insert("3".into());
        state.recordings.insert("a".into(), "3".into());
        let of = |run: &str, recording| find_match(&state, &candidate("x", run, recording, 1, false).identity);
        assert_eq!(of("3", Some("a")), Some(FleetMatch::Same));
        assert_eq!(of("1", Some("a")), Some(FleetMatch::OtherState("3".into())));
        assert_eq!((of("1", Some("b")), of("1", None)), (None, None));
    }
}
