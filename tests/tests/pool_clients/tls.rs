//! A pool that encrypts for its NBD clients, and which clients are admitted: with third-party clients, each refusal with its reason at
//! both ends.

use super::stdout_of;
use anyhow::{Context, Result, ensure};
use fathom_tests::pool::{Server, pool_command};
use fathom_tests::{run, silent_connections, wait_until};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates a certificate authority with this name, and certificates that it signs: a server's and a client's, in files with the names
/// that servers and clients look for.
fn make_authority(directory: &Path, name: &str) -> Result<()> {
    std::fs::create_dir(directory)?;
    let key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::default();
    authority.distinguished_name.push(rcgen::DnType::CommonName, name);
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    std::fs::write(directory.join("ca-cert.pem"), authority.self_signed(&key)?.pem())?;
    let issuer = rcgen::Issuer::new(authority, key);
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate()?;
        let names = vec!["localhost".into(), "127.0.0.1".into()];
        let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        std::fs::write(directory.join(format!("{name}-cert.pem")), certificate.pem())?;
        std::fs::write(directory.join(format!("{name}-key.pem")), key.serialize_pem())?;
    }
    Ok(())
}

/// A directory with the files of one authority, except for some of another's.
fn mix_authorities(directory: &Path, files: &[(&Path, &str)]) -> Result<()> {
    std::fs::create_dir(directory)?;
    files.iter().try_for_each(|(from, name)| Ok(std::fs::copy(from.join(name), directory.join(name)).map(drop)?))
}

/// A coordinator, with its terminal output in a log.
struct ServedPool {
    server: Server,
    log: PathBuf,
    address: String,
}

impl ServedPool {
    fn start(directory: &Path, name: &str, options: &[&str]) -> Result<Self> {
        let log = directory.join(name);
        let mut command = pool_command(&["serve", "--backend", "memory:64M", "--nbd", "tcp:127.0.0.1:0"]);
        let server = Server::started(command.args(options).stderr(File::create(&log)?))?;
        let address = server.says.trim_start_matches("nbds://").trim_end_matches("/pool").to_string();
        ensure!(server.says.starts_with("nbds://"), "it is served as {}", server.says);
        Ok(Self { server, log, address })
    }

    fn uri(&self, certificates: &Path) -> String {
        format!("{}?tls-certificates={}", self.server.says, certificates.display())
    }

    /// Waits until its terminal shows these words; they are the only hint for its user.
    fn messages(&self, words: &str) -> Result<()> {
        wait_until("the message", || Ok(std::fs::read_to_string(&self.log)?.contains(words)))
            .with_context(|| format!("no {words:?} in what it said:\n{:?}", std::fs::read_to_string(&self.log)))
    }
}

/// Runs a command that must fail; returns its output.
fn refusal_of(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let messages = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(!output.status.success(), "it was let in: {messages}");
    Ok(messages)
}

pub fn tls_admits_only_valid_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let [ours, theirs, false_ours] = ["ours", "theirs", "false"].map(|name| directory.path().join(name));
    make_authority(&ours, "ours")?;
    make_authority(&theirs, "theirs")?;
    make_authority(&false_ours, "ours")?;
    let tls = ours.display().to_string();
    let served = ServedPool::start(directory.path(), "log", &["--tls", &tls, "--verify-clients"])?;
    let uri = served.uri(&ours);

    // A client with the right certificate is served normally.
    let told = stdout_of(Command::new("nbdinfo").arg(&uri))?;
    ensure!(told.contains("with TLS") && told.contains("export-size: 67108864"), "{told}");
    let (source, back) = (directory.path().join("source"), directory.path().join("back"));
    super::write_image(&source, 64 << 20)?;
    run(Command::new("nbdcopy").arg(&source).arg(&uri))?;
    run(Command::new("nbdcopy").arg("--connections=4").arg(&uri).arg(&back))?;
    ensure!(std::fs::read(&source)? == std::fs::read(&back)?, "what came back differs");
    let (host, port) = served.address.split_once(':').context("no port")?;
    let disk = format!("driver=nbd,host={host},port={port},export=pool,tls-creds=t");
    let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={tls}");
    let qemu = |commands: &[&str]| {
        let commands = commands.iter().flat_map(|c| ["-c", c]);
        stdout_of(Command::new("qemu-io").args(["--object", &credentials, "--image-opts"]).args(commands).arg(&disk))
    };
    let messages = qemu(&["write -P 9 1M 64k", "flush", "read -P 9 1M 64k"])?;
    ensure!(!messages.contains("failed"), "{messages}");

    // A certificate of an authority that only has our authority's name; one of an authority of another name, which the client does not
    // send since the server does not request it; none; no encryption; an authority that did not sign the server's certificate.
    let client = ["client-cert.pem", "client-key.pem"];
    for (name, authority, why) in [
        ("forger", &false_ours, "the TLS handshake failed: invalid peer certificate"),
        ("stranger", &theirs, "the TLS handshake failed: peer sent no certificates"),
    ] {
        let with = directory.path().join(name);
        mix_authorities(&with, &[(&ours, "ca-cert.pem"), (authority, client[0]), (authority, client[1])])?;
        let messages = refusal_of(Command::new("nbdinfo").arg(served.uri(&with)))?;
        println!("{name}: {messages}");
        served.messages(why)?;
    }
    let bare = directory.path().join("bare");
    mix_authorities(&bare, &[(&ours, "ca-cert.pem")])?;
    let messages = refusal_of(Command::new("nbdinfo").arg(served.uri(&bare)))?;
    println!("no certificate: {messages}");
    served.messages("the TLS handshake failed: peer sent no certificates")?;
    let plain = format!("nbd://{}/pool", served.address);
    refusal_of(Command::new("nbdinfo").arg(&plain))?;
    let messages = refusal_of(Command::new("qemu-io").args(["-f", "raw", "-c", "read 0 4k"]).arg(&plain))?;
    ensure!(messages.contains("requires STARTTLS"), "the client does not know why: {messages}");
    let messages = refusal_of(Command::new("nbdinfo").arg(served.uri(&theirs)))?;
    println!("a client that does not know the authority: {messages}");
    served.messages("it may not trust this server's certificate")?;
    println!("the coordinator's side:\n{}", std::fs::read_to_string(&served.log)?);

    // Refused clients do not affect the others.
    run(Command::new("nbdinfo").arg(&uri))?;
    served.server.end()?;

    // Without --verify-clients a client needs no certificate, but encryption is still mandatory.
    let served = ServedPool::start(directory.path(), "log2", &["--tls", &tls, "--insecure"])?;
    run(Command::new("nbdinfo").arg(served.uri(&bare)))?;
    refusal_of(Command::new("nbdinfo").arg(format!("nbd://{}/pool", served.address)))?;
    served.server.end()
}

pub fn silent_connections_do_not_block_tls_clients() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let ours = directory.path().join("ours");
    make_authority(&ours, "ours")?;
    let served =
        ServedPool::start(directory.path(), "log", &["--tls", &ours.display().to_string(), "--verify-clients"])?;
    let uri = served.uri(&ours);
    let before = silent_connections::open(&served.address)?;
    run(Command::new("nbdinfo").arg("--size").arg(&uri))?;
    // Nor do clients that stop during the TLS handshake.
    let mut halfway = silent_connections::open(&served.address)?;
    let words = b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0";
    // Some are closed already.
    halfway.iter_mut().for_each(|stream| drop(std::io::Write::write_all(stream, words)));
    run(Command::new("nbdinfo").arg("--size").arg(&uri))?;
    drop((before, halfway));
    served.server.end()
}
