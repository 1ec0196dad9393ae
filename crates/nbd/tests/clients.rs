//! Common NBD clients against memory served over a Unix socket, as independent oracles.
//!
//! A client that is not installed is reported as ignored, with the reason.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nbd::certificates::from_directory;
use nbd::memory::Memory;
use nbd::{Single, Tls};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;

const DISK_BYTES: u64 = 64 << 20;

fn main() -> ExitCode {
    let trials = vec![
        trial("nbdinfo_shows_offered_features", &["nbdinfo"], check_nbdinfo),
        trial("qemu_io_reads_back_writes_and_zeroes_after_trim", &["qemu-io"], check_qemu_io),
        trial("fio_verifies_its_writes", &["fio"], check_fio),
        trial("nbdcopy_over_four_connections_and_qemu_img_agree", &["nbdcopy", "qemu-img", "nbdinfo"], check_copy),
        trial("libnbd_continues_after_refused_writes", &[PYTHON_PATH], check_refused_writes),
        trial("encrypted_session_serves_same_data", &["nbdinfo", "nbdcopy"], check_encryption),
        trial("client_without_required_certificate_is_refused", &["nbdinfo"], check_client_certificate),
        trial("missing_and_invalid_certificates_are_reported", &[], check_certificate_errors),
        trial("clear_session_is_refused_if_tls_is_required", &["nbdinfo"], check_tls_requirement),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, tools: &'static [&'static str], check: fn(&ServedDisks) -> Result<(), Failed>) -> Trial {
    Trial::ignorable_test(name, move || {
        let missing = tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
        match missing {
            Some(tool) => Ok(Completion::ignored_with(format!("{tool} is not installed"))),
            None => check(&ServedDisks::new()?).map(|()| Completion::Completed),
        }
    })
}

/// The distribution's Python, which python3-libnbd is built for; another may come first in the path.
const PYTHON_PATH: &str = "/usr/bin/python3";

/// Five sockets in a directory, each with its own disk: plaintext, encryption offered, required, and required with a client
/// certificate; and a read-only one.
struct ServedDisks {
    directory: tempfile::TempDir,
}

impl ServedDisks {
    fn new() -> Result<Self, Failed> {
        let directory = tempfile::tempdir()?;
        make_certificates(directory.path())?;
        let acceptor = from_directory(directory.path(), false)?;
        let verified = from_directory(directory.path(), true)?;
        for (name, tls, disk) in [
            ("clear", Tls::Off, Memory::new(DISK_BYTES)),
            ("offered", Tls::Offered(acceptor.clone()), Memory::new(DISK_BYTES)),
            ("required", Tls::Required(acceptor), Memory::new(DISK_BYTES)),
            ("verified", Tls::Required(verified), Memory::new(DISK_BYTES)),
            ("read-only", Tls::Off, Memory::new(DISK_BYTES).read_only()),
        ] {
            let socket = std::os::unix::net::UnixListener::bind(directory.path().join(name))?;
            socket.set_nonblocking(true)?;
            // Ends with the process.
            std::thread::spawn(move || serve(socket, disk, &tls));
        }
        Ok(Self { directory })
    }

    fn uri(&self, socket: &str) -> String {
        format!("nbd+unix:///disk?socket={}", self.directory.path().join(socket).display())
    }

    fn encrypted_uri(&self, socket: &str) -> String {
        self.uri_with(socket, self.directory.path())
    }

    /// With the certificates of a directory.
    fn uri_with(&self, socket: &str, certificates: &Path) -> String {
        let (directory, certificates) = (self.directory.path().display(), certificates.display());
        format!("nbds+unix:///disk?socket={directory}/{socket}&tls-certificates={certificates}&tls-hostname=localhost")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn serve(socket: std::os::unix::net::UnixListener, export: Memory, tls: &Tls) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let exports = Rc::new(Single { name: "disk".into(), export });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let socket = tokio::net::UnixListener::from_std(socket).expect("a socket");
        while let Ok((stream, _)) = socket.accept().await {
            let (exports, tls) = (exports.clone(), tls.clone());
            tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &tls).await });
        }
    });
}

/// An authority, a server and a client, with the file names that clients and servers expect; `bare` contains the files of a
/// client without a certificate.
fn make_certificates(directory: &Path) -> Result<(), Failed> {
    let key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let vouched = authority.self_signed(&key)?.pem();
    let issuer = rcgen::Issuer::new(authority, key);
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate()?;
        let certificate = rcgen::CertificateParams::new(vec!["localhost".into()])?.signed_by(&key, &issuer)?;
        std::fs::write(directory.join(format!("{name}-cert.pem")), certificate.pem())?;
        std::fs::write(directory.join(format!("{name}-key.pem")), key.serialize_pem())?;
    }
    std::fs::write(directory.join("ca-cert.pem"), &vouched)?;
    std::fs::create_dir(directory.join("bare"))?;
    Ok(std::fs::write(directory.join("bare/ca-cert.pem"), vouched)?)
}

fn run(program: &str, arguments: &[&str]) -> Result<String, Failed> {
    let output = Command::new(program).args(arguments).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{program} {arguments:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)).into())
}

fn check_nbdinfo(served: &ServedDisks) -> Result<(), Failed> {
    let output = run("nbdinfo", &[&served.uri("clear")])?;
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 67108864",
        "base:allocation",
        "can_df: true",
        "can_fast_zero: true",
        "can_multi_conn: true",
        "block_size_preferred: 4096",
    ] {
        if !output.contains(line) {
            return Err(format!("no {line:?} in\n{output}").into());
        }
    }
    let listed = run("nbdinfo", &["--list", &served.uri("clear")])?;
    if listed.contains("export=\"disk\"") { Ok(()) } else { Err(listed.into()) }
}

fn check_qemu_io(served: &ServedDisks) -> Result<(), Failed> {
    let commands = [
        "write -P 7 1M 128k",
        "read -P 7 1M 128k",
        "flush",
        "write -f -P 9 3M 64k",
        "read -P 9 3M 64k",
        "discard 1M 64k",
        "read -P 0 1M 64k",
        "read -P 7 1088k 64k",
        "write -z 3M 64k",
        "read -P 0 3M 64k",
        "write -P 5 12345 777",
        "read -P 5 12345 777",
    ];
    let uri = served.uri("clear");
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|c| ["-c", c]));
    arguments.push(&uri);
    let output = run("qemu-io", &arguments)?;
    // A pattern mismatch is only printed; some versions still exit with 0.
    if output.contains("failed") { Err(output.into()) } else { Ok(()) }
}

fn check_refused_writes(served: &ServedDisks) -> Result<(), Failed> {
    if Command::new(PYTHON_PATH).args(["-c", "import nbd"]).output().is_ok_and(|output| !output.status.success()) {
        // The harness cannot skip a running test.
        println!("SKIP libnbd_continues_after_refused_writes: python3-libnbd is not installed");
        return Ok(());
    }
    let mut client = Command::new(PYTHON_PATH);
    client.args(["-c", include_str!("refused.py")]);
    client.env("CLEAR", served.uri("clear")).env("READ_ONLY", served.uri("read-only"));
    let output = client.output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn check_fio(served: &ServedDisks) -> Result<(), Failed> {
    let uri = format!("--uri={}", served.uri("clear"));
    let job = ["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=512-64k", "--size=32m"];
    let check = ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0", "--iodepth=64", &uri];
    run("fio", &[&job[..], &check[..]].concat()).map(drop)
}

/// Copies a file with data and holes there and back over four connections.
fn check_copy(served: &ServedDisks) -> Result<(), Failed> {
    let (source, back) = (served.file("source.raw"), served.file("back.raw"));
    let mut data = vec![0_u8; DISK_BYTES as usize];
    for (at, byte) in data.iter_mut().enumerate().filter(|(at, _)| at / (1 << 20) % 3 == 0) {
        *byte = ((at * 2_654_435_761) >> 13) as u8;
    }
    std::fs::write(&source, &data)?;
    let (source, back) = (source.to_string_lossy(), back.to_string_lossy());
    run("nbdcopy", &["--connections=4", &source, &served.uri("clear")])?;
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &served.uri("clear")])?;
    run("nbdcopy", &["--connections=4", &served.uri("clear"), &back])?;
    if std::fs::read(served.file("back.raw"))? != data {
        return Err("what came back differs".into());
    }
    let map = run("nbdinfo", &["--map", "--totals", &served.uri("clear")])?;
    if map.contains("hole") && map.contains("data") { Ok(()) } else { Err(map.into()) }
}

fn check_encryption(served: &ServedDisks) -> Result<(), Failed> {
    for socket in ["offered", "required"] {
        let output = run("nbdinfo", &[&served.encrypted_uri(socket)])?;
        if !output.contains("with TLS") {
            return Err(output.into());
        }
    }
    let source = served.file("plain.raw");
    let data: Vec<u8> = (0..DISK_BYTES).map(|at| (at >> 9) as u8).collect();
    std::fs::write(&source, &data)?;
    run("nbdcopy", &[&source.to_string_lossy(), &served.encrypted_uri("required")])?;
    let back = served.file("decrypted.raw");
    run("nbdcopy", &[&served.encrypted_uri("required"), &back.to_string_lossy()])?;
    if std::fs::read(back)? == data { Ok(()) } else { Err("what came back differs".into()) }
}

fn check_tls_requirement(served: &ServedDisks) -> Result<(), Failed> {
    run("nbdinfo", &[&served.uri("offered")])?;
    match run("nbdinfo", &[&served.uri("required")]) {
        Ok(output) => Err(format!("a clear session was served:\n{output}").into()),
        Err(_) => Ok(()),
    }
}

fn check_client_certificate(served: &ServedDisks) -> Result<(), Failed> {
    run("nbdinfo", &[&served.encrypted_uri("verified")])?;
    run("nbdinfo", &[&served.uri_with("required", &served.file("bare"))])?;
    let bare = served.uri_with("verified", &served.file("bare"));
    match run("nbdinfo", &[&bare]) {
        Ok(output) => Err(output.into()),
        Err(_) => Ok(()),
    }
}

fn check_certificate_errors(served: &ServedDisks) -> Result<(), Failed> {
    for (directory, verify, words) in [("none", false, "server-cert.pem"), ("bare", false, "server-cert.pem")] {
        let why = from_directory(&served.file(directory), verify).map(drop).expect_err("it has none").to_string();
        if !why.contains(words) {
            return Err(why.into());
        }
    }
    let directory = served.file("broken");
    std::fs::create_dir(&directory)?;
    std::fs::copy(served.file("server-cert.pem"), directory.join("server-cert.pem"))?;
    std::fs::copy(served.file("client-key.pem"), directory.join("server-key.pem"))?;
    let why = from_directory(&directory, false).map(drop).expect_err("the key is another's").to_string();
    std::fs::copy(served.file("server-key.pem"), directory.join("server-key.pem"))?;
    std::fs::write(directory.join("ca-cert.pem"), "nothing")?;
    let none = from_directory(&directory, true).map(drop).expect_err("there is no authority").to_string();
    if why.contains("server-cert.pem") && none.contains("ca-cert.pem: it has no certificate") {
        Ok(())
    } else {
        Err(format!("{why}; {none}").into())
    }
}
