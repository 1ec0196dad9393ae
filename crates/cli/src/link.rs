//! `fathom reindex`, and opening an archive that may have no tables yet. Which crates make tables is listed here, and nowhere else.

use crate::notices;
use anyhow::Result;
use archive::{Archive, TableMaker, table_maker};
use experiment::tables::FromRuns;
use model::text::ShownPath as _;
use model::{Context, counted};
use recorder::link::FromEvents;
use std::path::Path;

/// The table makers for every kind of archive.
const TABLE_MAKERS: [&dyn TableMaker; 2] =
    [&FromRuns { notify: &notices::print_table_notice }, &FromEvents { notify: &notices::print_recorder_notice }];

/// Opens an archive, making its tables first if it has none, as after a recording that was cut short.
pub fn open(dir: &Path, context: &Context) -> Result<Archive> {
    const NO_SPACE_REMEDY: &str =
        "tables are written to the archive; copy it to a writable disk with more space, and open the copy";
    table_maker::open(dir, &TABLE_MAKERS, context).map_err(|error| {
        let lacks_room = error.lacks_room();
        let error = anyhow::Error::new(error);
        if lacks_room { error.context(NO_SPACE_REMEDY) } else { error }
    })
}

pub fn run(args: &crate::args::Reindex) -> Result<()> {
    let made = table_maker::remake(&args.archive, &TABLE_MAKERS, &crate::progress::context(false))?;
    let count = |(n, what): (u64, &str)| counted(n as usize, what);
    println!("{}: {}, {}", args.archive.shown(), count(made.read), count(made.found));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::ArchiveKind;

    #[test]
    fn each_kind_of_archive_has_one_table_maker() {
        for kind in ArchiveKind::ALL {
            assert_eq!(TABLE_MAKERS.iter().filter(|maker| maker.kinds().contains(&kind)).count(), 1, "{kind}");
        }
    }
}
