//! The command line of `fathom-sql`. The program is called by `fathom`, so its help shows that name; the verbs are declared in `fleet`.

use clap::{Parser, Subcommand};
use fleet::args::{Fleet, Serve, Sql};

/// SQL over archives and fleets.
#[derive(Debug, Parser)]
#[command(name = "fathom", bin_name = "fathom", version, arg_required_else_help = true)]
pub struct Program {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs. Their help is at their arguments: a doc comment here would hide the longer one there.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Sql(Sql),
    Fleet(Fleet),
    Serve(Serve),
    /// Generate many recordings from a few, to measure and test fleets
    #[command(hide = true)]
    Generate(crate::generate::Generate),
    /// Create the layout of a fleet too large for this machine, to measure the cost of opening and planning
    #[command(hide = true)]
    Simulate(crate::simulate::Simulate),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Program::command().debug_assert();
    }
}
