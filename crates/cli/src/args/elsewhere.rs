//! Verbs of programs beside this one, whose arguments those parse.

use clap::Args;
use std::ffi::OsString;

/// Ask archives and fleets in SQL.
///
/// `fathom sql T.fathom "SELECT …"` asks one recording or thousands, with a table for each of docs/reference/tables.md. It is a program
/// of its own, fathom-sql, since an SQL engine is larger than everything else here: `make build-sql` builds it. `fathom sql --help` is
/// its help, `fathom sql --examples` lists twenty questions.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Sql {
    /// Archives, folders with archives or a fleet; the SQL; options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "T.fathom… SQL")]
    pub words: Vec<OsString>,
}

/// Keep archives of many devices and days in one place.
///
/// `fathom fleet init|add|ls|gc FLEET` collects archives in a folder, or in any store that speaks S3, as Parquet files that
/// `fathom sql FLEET` and other engines read. It is part of the program fathom-sql: `make build-sql` builds it. `fathom fleet --help`
/// is its help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Fleet {
    /// init, add, ls or gc; the fleet; what that verb takes
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "VERB FLEET")]
    pub words: Vec<OsString>,
}

/// Show a fleet's page, and its numbers for Prometheus, on this machine.
///
/// `fathom serve FLEET` answers on 127.0.0.1 and only reads. It is part of the program fathom-sql: `make build-sql` builds it. `fathom
/// serve --help` is its help.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Serve {
    /// The fleet; options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLEET")]
    pub words: Vec<OsString>,
}
