//! Finds what a recording cannot carry.

use crate::account;
use crate::caveats::{Caveat, Caveats, Limit};
use crate::check_state::CheckState;
use crate::completeness::{completeness, lost_at_unknown_time};
use crate::rows::{Index, Rows};
use crate::text::count;
use model::words::{EMULATED_TIMES, is_emulated};

/// Those of a recording.
pub fn find_caveats(index: &Index) -> Caveats {
    let rows = index.rows;
    let mut all = Vec::new();
    let mut add = |limit, because: &str, cannot_claim: String| {
        all.push(Caveat { limit, because: because.to_owned(), cannot_claim });
    };
    if is_emulated(&rows.environment()) {
        add(
            Limit::EmulatedProcessor,
            EMULATED_TIMES,
            "how fast anything is, or what a change saves: the processor was emulated (QEMU's TCG), so that times show order, not \
             speed"
                .into(),
        );
    }
    if !rows.trace.complete {
        add(
            Limit::CutShort,
            "the recording was interrupted",
            "what happened at the end: the recording was cut short".into(),
        );
    }
    if let Some(lost) = lost_in_words(rows) {
        add(Limit::RecordsLost, &format!("{lost} lost"), format!("exact counts: {lost} lost"));
    }
    let commands = account::device_commands(index);
    let unknown = account::reportable_unattributed(commands);
    if unknown > 0.0 {
        let unknown = format!(
            "{} of {} device commands ({:.0} %) are of unknown origin",
            count(unknown),
            commands.total,
            100.0 * unknown / commands.total.max(1) as f64
        );
        add(Limit::UnknownOrigins, &unknown, format!("all that an operation caused at the device: {unknown}"));
    }
    let confirmed = completeness(index);
    if confirmed.state != CheckState::Checked {
        let (state, why) = (confirmed.state, confirmed.why.unwrap_or_else(|| "the kernel's counts are unknown".into()));
        add(
            Limit::Unconfirmed,
            &format!("completeness: {state}: {why}"),
            format!("that every device command was recorded ({state}): {why}"),
        );
    }
    Caveats::new(all)
}

/// Describes how many records were lost.
fn lost_in_words(rows: &Rows) -> Option<String> {
    let known = rows.losses.iter().filter_map(|loss| loss.events).fold(lost_at_unknown_time(rows), u64::saturating_add);
    let more = rows.losses.iter().any(|loss| loss.at_least || loss.events.is_none());
    match (known, more) {
        (0, false) => None,
        (0, true) => Some("an unknown number of records was".into()),
        (1, false) => Some("1 record was".into()),
        (known, false) => Some(format!("{known} records were")),
        (known, true) => Some(format!("at least {known} records were")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;
    use model::Layer;

    fn limits(rows: &Rows) -> Vec<Limit> {
        find_caveats(&Index::new(rows)).iter().map(|caveat| caveat.limit).collect()
    }

    #[test]
    fn each_flaw_of_a_recording_has_a_caveat() {
        let mut rows = small_trace::rows();
        let unknown = [Limit::RecordsLost, Limit::UnknownOrigins, Limit::Unconfirmed];
        assert_eq!(limits(&rows), unknown, "some commands have no cause");
        (rows.trace.complete, rows.facts) = (false, vec![small_trace::emulated_fact()]);
        let all = find_caveats(&Index::new(&rows));
        assert_eq!(limits(&rows), [&[Limit::EmulatedProcessor, Limit::CutShort], &unknown[..]].concat());
        assert!(all.against_times().unwrap().cannot_claim.contains("emulated"));
        rows.spans.edit().retain(|span| span.layer != Layer::Driver);
        assert!(!limits(&rows).contains(&Limit::UnknownOrigins), "nothing was sent");
        rows.losses[0].events = None;
        let text = serde_json::to_string(&find_caveats(&Index::new(&rows))).unwrap();
        assert!(text.contains("an unknown number of records was lost"), "{text}");
    }
}
