//! The papers' figures as sections of a page: from a benchmark's scores, and from recordings side by side.

use crate::density;
use crate::list::{ListedFigure, machine_line, recording_names};
use model::text::wrap_markdown;
use scores::figure::Figure;
use scores::figures;
use scores::measure::{Error, Open, Result};
use scores::results::Bench;
use std::path::PathBuf;

/// Formats the figures made from a benchmark.
///
/// # Errors
/// It has no cell for them, or no score.
pub fn scores(benchmark: &Bench, wanted: &[&ListedFigure]) -> Result<String> {
    let is_wanted = |figure: &Figure| {
        let is = |k: &&ListedFigure, number: &str| {
            k.paper == figure.paper && k.is_named_by(&format!("{}/{number}", figure.paper))
        };
        wanted.iter().any(|k| figure.figure.split(", ").any(|number| is(k, number)))
    };
    let all: Vec<Figure> = figures::figures(benchmark).into_iter().filter(is_wanted).collect();
    if all.is_empty() {
        return Err(Error::NoFigure { archive: benchmark.name.clone(), what: "cell of these figures" });
    }
    if all.iter().flat_map(|figure| &figure.bars).all(|bar| bar.estimate.is_none()) {
        return Err(Error::NoFigure { archive: benchmark.name.clone(), what: "score for these figures" });
    }
    Ok(format!("\n{}", wrap_markdown(&figures::markdown(&all))))
}

/// Formats the figures made from recordings, one column each.
pub fn values(archives: &[PathBuf], wanted: &[&ListedFigure], open: Open<'_>) -> Result<String> {
    let (mut text, mut columns, mut regions) = (String::from("\n"), Vec::new(), String::new());
    for (archive, name) in archives.iter().zip(recording_names(archives)) {
        let linked = open(archive).map_err(Error::Open)?;
        let summary = analysis::summarise_archive(&linked)?;
        if wanted.iter().any(|k| k.is_named_by("004/5")) {
            regions += &density::markdown(&name, &analysis::Rows::load_without_slices(&linked)?);
        }
        text += &machine_line(&name, &summary);
        text.push('\n');
        let mut figures = crate::measured_figures(&summary);
        crate::without_emulated_times(&summary, &mut figures);
        figures.retain(|figure| wanted.iter().any(|k| k.paper == figure.paper && k.number == figure.figure));
        columns.push((name, figures));
    }
    Ok(text + &crate::markdown(&columns) + &wrap_markdown(&regions))
}
