//! One run over an emulated link: both ends are processes of this program, each in its namespace. The client returns the measurement.

use super::test_bed::{SERVER_ADDRESSES, TestBed};
use crate::measure::{Handover, RunRequest};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

/// The server's port, in a namespace that no other program uses.
const SERVER_PORT: u16 = 7100;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine does not permit it.
    #[error("cannot run over the link: {0}")]
    Io(#[from] std::io::Error),
    /// Creating a key failed.
    #[error(transparent)]
    Key(#[from] wire::KeyError),
    /// The client failed, or has no valid measurement.
    #[error("the run over the link failed: {0}")]
    Failed(String),
    /// The client's output is not a result.
    #[error(transparent)]
    HandOver(#[from] crate::Error),
}

/// The server's address on every link.
///
/// # Panics
/// Never: the address is a valid constant.
pub fn server_address() -> SocketAddr {
    format!("{}:{SERVER_PORT}", SERVER_ADDRESSES[0]).parse().expect("the address of a test bed is one")
}

/// Runs `request` over the link. Both ends get a key made for this run.
///
/// # Errors
/// An end did not start, or has no result.
pub fn run(testbed: &TestBed, mut request: RunRequest) -> Result<Handover, Error> {
    let program = std::env::current_exe()?;
    let key = memory_file(wire::Key::generate()?.to_text().as_bytes())?;
    let key_path = format!("/proc/self/fd/{}", key.as_raw_fd());
    let mut serve = testbed.server().command(&program);
    serve.args(["net", "serve", "--once", "--key", &key_path, "--listen", &request.address.to_string()]);
    let mut serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut ready = String::new();
    if let Some(stdout) = serve.stdout.as_mut() {
        BufReader::new(stdout).read_line(&mut ready)?;
    }
    request.key = Some(key_path.into());
    let request_file = memory_file(&serde_json::to_vec(&request).map_err(std::io::Error::from)?)?;
    let mut client = testbed.command(&program);
    client.args(["net", "measure", &format!("/proc/self/fd/{}", request_file.as_raw_fd())]);
    let output = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    // The server may wait for another client; its result is already known.
    let _ = serve.kill();
    serve.wait()?;
    let output = output?;
    if !output.status.success() {
        return Err(Error::Failed(String::from_utf8_lossy(&output.stderr).trim().into()));
    }
    let handed = Handover::parse(&output.stdout)?;
    match &handed.measured.outcome.own.trouble {
        Some(trouble) => Err(Error::Failed(trouble.clone())),
        None if handed.measured.interrupted => Err(Error::Failed("interrupted".into())),
        None => Ok(handed),
    }
}

/// A file for both ends that has no name and disappears with this process.
fn memory_file(bytes: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is a C string. No MFD_CLOEXEC, so that both ends inherit the descriptor.
    let fd = unsafe { libc::memfd_create(c"fathom-net".as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    Ok(file)
}
