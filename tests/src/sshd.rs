//! A real sshd of the test's own, on loopback.

use crate::service::Service;
use crate::{installed, run};
use anyhow::Result;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Why one is not possible here.
pub fn possible() -> Result<(), String> {
    installed("ssh").and_then(|()| find_sshd().map(drop))
}

fn find_sshd() -> Result<PathBuf, String> {
    let all = ["/usr/sbin/sshd", "/usr/bin/sshd"].map(PathBuf::from);
    all.into_iter().find(|p| p.exists()).ok_or_else(|| {
        "sshd is not installed (Debian: openssh-server, which setup leaves out where it would run as a service)".into()
    })
}

/// An sshd of the test's own: its port, keys and users' keys; and a wrapper of the real `ssh` that uses them.
pub struct Ssh {
    _server: Service,
    /// The port it listens on.
    pub port: u16,
    /// Its keys and settings.
    pub directory: tempfile::TempDir,
}

impl Ssh {
    /// Starts it.
    pub fn start() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        for key in ["host", "user"] {
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]))?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let settings = [
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}",
                at("host"),
                at("user.pub")
            ),
            format!(
                "StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nSetEnv XDG_CACHE_HOME={}",
                at("cache")
            ),
        ];
        fs::write(at("sshd_config"), settings.join("\n") + "\n")?;
        let host = fs::read_to_string(at("host.pub"))?;
        fs::write(at("known"), format!("[127.0.0.1]:{port} {host}"))?;
        let client = format!(
            "Host *\nIdentityFile {}\nIdentitiesOnly yes\nUserKnownHostsFile {}\nGlobalKnownHostsFile none\n",
            at("user"),
            at("known")
        );
        fs::write(at("config"), client)?;
        fs::create_dir(at("bin"))?;
        let real = run(Command::new("sh").args(["-c", "command -v ssh"]))?;
        let real = String::from_utf8(real.stdout)?;
        lab::script::write(at("bin/ssh"), &format!("#!/bin/sh\nexec {} -F {} \"$@\"\n", real.trim(), at("config")))?;
        if fs::metadata("/proc/self")?.uid() == 0 {
            // root's sshd does not start without it, whether or not this root may trace.
            fs::create_dir_all("/run/sshd")?;
        }
        let sshd = find_sshd().map_err(anyhow::Error::msg)?;
        let mut command = Command::new(sshd);
        command.args(["-D", "-e", "-f", &at("sshd_config")]);
        let mut server = Service::start("sshd", &mut command, &directory.path().join("log"))?;
        server.ready(|| Ok(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(Self { _server: server, port, directory })
    }

    /// Its device's name.
    pub fn device(&self) -> String {
        format!("ssh:127.0.0.1:{}", self.port)
    }

    /// Makes a command find the `ssh` that uses it.
    pub fn path(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.directory.path().join("bin").display()));
    }

    /// Fathom's directory there.
    pub fn cache(&self) -> PathBuf {
        self.directory.path().join("cache/fathom")
    }

    /// The programs that were copied there.
    pub fn kept(&self) -> Result<Vec<PathBuf>> {
        let mut all: Vec<PathBuf> = fs::read_dir(self.cache())?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
        // Besides their hashes.
        all.retain(|path| !path.ends_with("verified"));
        all.sort();
        Ok(all)
    }
}
