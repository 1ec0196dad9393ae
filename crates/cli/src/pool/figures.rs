//! `fathom pool bench --paper-figures`: the workload `cluster`, run as any other.

use crate::args::{self, PoolBench};
use crate::bench;
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;

pub fn run(args: &PoolBench) -> Result<ExitCode> {
    let paper = &args.paper;
    let mut words: Vec<OsString> = ["bench", "run", "cluster", "--output"].map(OsString::from).to_vec();
    words.push(paper.output.clone().into());
    words.extend(paper.quick.then(|| "--quick".into()));
    words.extend(args.load.json.then(|| "--json".into()));
    words.extend(paper.budget.map(|budget| format!("--budget={}s", budget.as_secs_f64()).into()));
    let code = bench::run::run(&args::parse_bench_run(&words)?)?;
    if !args.load.json {
        let output = crate::output::word(&paper.output);
        eprintln!(
            "fathom: to show the figures beside the paper's: fathom report {output}; as text: fathom papers \
             --archive {output} 001/7-12"
        );
    }
    Ok(code)
}
