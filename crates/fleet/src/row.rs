//! The row of an archive in the table of archives (`model::fleet`).

use crate::identity::Identity;
use archive::Meta;
use model::table::Cell;

/// The row of an archive in [`model::fleet::ARCHIVES`].
pub fn archives_row(meta: &Meta, identity: &Identity) -> Vec<Cell> {
    let text = |text: String| Cell::Text(text.into());
    let words: Vec<String> = meta.command.iter().map(|word| model::shell_word(word.as_ref())).collect();
    let kind = serde_json::to_value(meta.kind).ok();
    vec![
        text(kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or_default().to_string()),
        text(words.join(" ")),
        Cell::I64(identity.created_unix_ns),
        meta.boot.clone().map_or(Cell::Empty, text),
        Cell::Bool(meta.complete && !identity.damaged),
        text(meta.made_by.clone()),
        Cell::I64(i64::try_from(identity.log_bytes).unwrap_or(i64::MAX)),
    ]
}
