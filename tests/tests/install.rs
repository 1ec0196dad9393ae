//! The installed files: the program, a manual page for each command, and completions that their shells accept.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite};
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("installed_program_runs_and_has_man_pages", installed("bash"), installed_program_runs_and_has_man_pages),
        ("fathom_sql_is_installed_next_to_fathom_or_named_as_missing", Ok(()), installs_sql),
    ];
    run_suite(cases)
}

fn installs_sql() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let built = directory.path().join("built");
    std::fs::create_dir(&built)?;
    std::fs::copy(fathom(), built.join("fathom"))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install");
    let install = || -> Result<String> {
        let mut install = Command::new(&script);
        install.arg(built.join("fathom")).env("DESTDIR", directory.path()).env("PREFIX", "/opt").env_remove("RUN");
        Ok(String::from_utf8(run(&mut install)?.stdout)?)
    };
    ensure!(install()?.contains("make build-sql"));
    let sql = built.join("fathom-sql");
    std::fs::write(&sql, "#!/bin/sh\necho \"asked $1\"\n")?;
    run(Command::new("chmod").arg("+x").arg(&sql))?;
    ensure!(!install()?.contains("make build-sql"));
    // Found next to it, and not in PATH.
    let installed = directory.path().join("opt/bin/fathom");
    let asked = run(Command::new(installed).args(["sql", "a.fathom", "SELECT 1"]).env("PATH", "/usr/bin:/bin"))?;
    ensure!(asked.stdout == b"asked sql\n", "{}", String::from_utf8_lossy(&asked.stdout));
    Ok(())
}

fn installed_program_runs_and_has_man_pages() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install");
    run(Command::new(script).arg(fathom()).env("DESTDIR", directory.path()).env("PREFIX", "/opt"))?;
    let at = |path: &str| directory.path().join("opt").join(path);
    let help = String::from_utf8(run(Command::new(at("bin/fathom")).arg("--help"))?.stdout)?;
    let (_, commands) = help.split_once("Commands:").context("commands")?;
    let mut pages = 0;
    for line in commands.lines().skip(1).take_while(|line| !line.is_empty()) {
        // A description that is too long continues on a line of its own.
        let Some(command) = line.strip_prefix("  ").filter(|l| !l.starts_with(' ')) else { continue };
        let command = command.split_whitespace().next().context("a command")?;
        if command == "help" {
            continue;
        }
        let page = std::fs::read_to_string(at(&format!("share/man/man1/fathom-{command}.1")))?;
        ensure!(page.contains(".SH SYNOPSIS"), "{command}: {page}");
        pages += 1;
    }
    ensure!(pages > 8, "{help}");
    run(Command::new("bash").arg("-n").arg(at("share/bash-completion/completions/fathom")))?;
    for other in
        ["share/zsh/site-functions/_fathom", "share/fish/vendor_completions.d/fathom.fish", "share/man/man1/fathom.1"]
    {
        ensure!(std::fs::read_to_string(at(other))?.contains("record"), "{other}");
    }
    Ok(())
}
