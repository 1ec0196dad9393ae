//! `fathom papers --device`: the papers' figures on this machine and on a device, in one run, and whether the papers' claims that
//! compare the two hold. Both are measured with the same cells at the same time; then 1,000 INSERTs are recorded on each, with the
//! default journal mode of its own system, as in the papers.

use super::bench;
use super::each::archive_path;
use super::{info, inserts};
use crate::args::{self, Papers};
use crate::bench::inspect::load;
use crate::bench::run::run as measure;
use crate::output::{self, INTERRUPTED_STATUS};
use crate::{Usage, destination};
use ::papers::beside::{self as beside, Needs, Page, unmeasured_machine};
use ::papers::list::{List, ListedFigure};
use ::papers::networks::{Ends, Networks, is_network};
use ::papers::pairs::{self, Directory, MeasureBoth};
use anyhow::{Context as _, Result};
use device::remote::DeviceAddress;
use model::Environment;
use model::text::ShownPath as _;
use scores::results::Bench;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(args: &Papers, place: &DeviceAddress, all: &List, wanted: &[&ListedFigure]) -> Result<ExitCode> {
    if matches!(place, DeviceAddress::Local) {
        return Err(Usage("--device local is this machine; `fathom papers` makes its figures".into()).into());
    }
    destination::check_one_on_stdout(args.beside.json, args.output.as_deref())?;
    let directories = pairs::directories(&args.beside.dir, &args.beside.dir_here)?;
    // Queried first: a missing device is reported before anything is measured.
    let facts = info::ask(place, &args.beside.binary)?.facts;
    let directory =
        args.beside.directory.clone().unwrap_or_else(|| PathBuf::from(format!("papers-{}", place.file_name())));
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.shown()))?;
    let needs = Needs::from_figures(wanted);
    let called = args.beside.called.clone().unwrap_or_else(|| place.to_string());
    let mut host = unmeasured_machine("host".into(), Environment::new());
    let mut device = unmeasured_machine(called, facts);
    if !needs.workloads.is_empty() {
        // Its results are used whatever its status is, unless it was interrupted.
        if measure_both(args, place, &directory, &needs, &directories)? == ExitCode::from(INTERRUPTED_STATUS) {
            return Ok(report_no_page(args, &directory));
        }
        host.bench = load_result(&directory, &DeviceAddress::Local);
        device.bench = load_result(&directory, place);
    }
    if !needs.networks.is_empty() {
        let Some([a, b]) = measure_networks(args, place, &directory, &needs)? else {
            return Ok(report_no_page(args, &directory));
        };
        (host.network, device.network) = (a, b);
    }
    let modes = needs.recorded.then(|| pairs::journal_modes(&device.facts));
    if let Some(modes) = &modes {
        let [(here, _), (there, _)] = modes;
        let sides = [(&DeviceAddress::Local, here.as_str()), (place, there.as_str())];
        let both = inserts::record_both(sides, beside::rows_and_scans(args.quick), &directory, &args.beside.binary)?;
        let Some([a, b]) = both else { return Ok(report_no_page(args, &directory)) };
        (host.recorded, device.recorded) = (a, b);
    }
    for (machine, name) in [(&mut host, DeviceAddress::Local), (&mut device, place.clone())] {
        if let Ok(bench) = &machine.bench {
            machine.facts.extend(bench.tables.environment.clone());
        } else if machine.facts.is_empty() {
            machine.facts = info::ask(&name, &[])?.facts;
        }
    }
    let page = Page { all, wanted, place, host, device, quick: args.quick, modes, directories };
    let text = page.markdown(&model::text::date(archive::unix_now_ns()));
    match &args.output {
        Some(path) => destination::write_text(path, &text)?,
        None if !args.beside.json => output::print_text(&text),
        None => {}
    }
    if args.beside.json {
        output::print_text(&(serde_json::to_string_pretty(&page.json())? + "\n"));
    }
    eprintln!("fathom: the archives are in {0}. Draw: fathom report {0}/*.fathom", directory.shown());
    Ok(ExitCode::SUCCESS)
}

/// `fathom bench run` for both.
fn measure_both(
    args: &Papers,
    place: &DeviceAddress,
    directory: &Path,
    needs: &Needs,
    directories: &[Directory],
) -> Result<ExitCode> {
    let options = &args.beside;
    let mut both = options.parameters.clone();
    both.retain(|(name, _)| !name.split_once('.').is_some_and(|(design, _)| is_network(design)));
    let run = needs.add_to(MeasureBoth {
        devices: [&DeviceAddress::Local, place],
        directory,
        binaries: &options.binary,
        directories,
        blocks: options.blocks,
        quick: args.quick,
        no_wait: options.no_wait,
        dex_jar: options.dex_jar.as_deref(),
        modes: Vec::new(),
        parameters: &both,
        cells: Vec::new(),
        workloads: Vec::new(),
    });
    bench::run(&args::parse_bench_run(&run.words())?)
}

/// Measures the networks emulated here, then with the device; returns nothing if somebody interrupted.
fn measure_networks(
    args: &Papers,
    place: &DeviceAddress,
    directory: &Path,
    needs: &Needs,
) -> Result<Option<[Result<Bench, String>; 2]>> {
    let options = &args.beside;
    let own = net::interface::of_default_route();
    let here = options.interface_here.as_deref().or(own.as_deref());
    let networks = Networks {
        workloads: &needs.networks,
        blocks: options.blocks,
        quick: args.quick,
        no_wait: options.no_wait,
        parameters: &options.parameters,
    };
    let server = options.server.as_ref().map(|server| (server, options.server_interface.as_str()));
    let ends = Ends { place, interface: &options.interface, host_interface: here, server };
    let file = |name: &str| directory.join(format!("{name}-network.fathom"));
    let (alone, with) = (file("local"), file(&place.file_name()));
    let mut both = Vec::new();
    for (path, words) in [(&alone, networks.alone(&alone)), (&with, networks.with_device(&with, &ends))] {
        let Some(words) = words else {
            let why = "nothing of it can be measured: --interface-here NAME names this machine's network interface, --server a server";
            both.push(Err(why.into()));
            continue;
        };
        let mut run = args::parse_bench_run(&words)?;
        // The page has the results.
        run.files.silent = true;
        if measure(&run)? == ExitCode::from(INTERRUPTED_STATUS) {
            return Ok(None);
        }
        both.push(load_existing(path));
    }
    Ok(both.try_into().ok())
}

fn load_result(directory: &Path, place: &DeviceAddress) -> Result<Bench, String> {
    load_existing(&archive_path(directory, place))
}

fn load_existing(path: &Path) -> Result<Bench, String> {
    if !path.exists() {
        return Err("the run produced no result".into());
    }
    load(path).map_err(|error| crate::error_sentence(&error))
}

fn report_no_page(args: &Papers, directory: &Path) -> ExitCode {
    let page = args.output.as_ref().filter(|page| !destination::is_stdout(page));
    let page = page.map_or_else(|| "the page".into(), |page| page.shown().to_string());
    eprintln!("fathom: interrupted; {page} was not written; what was measured is in {}", directory.shown());
    ExitCode::from(INTERRUPTED_STATUS)
}
