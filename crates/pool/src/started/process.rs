//! A node as a process of this program: started, queried for its address, killed when it is dropped or with this process.

use super::{Error, Result};
use child::kill_with_parent;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    pub address: SocketAddr,
}

impl NodeProcess {
    /// Starts `command`, which is a `fathom pool node …`. Later output of the node goes to `remarks`, a line at a time.
    ///
    /// # Errors
    /// It cannot be started, or exits before it listens: then with its messages.
    pub fn start(mut command: Command, remarks: impl Fn(&str) + Send + 'static) -> Result<Self> {
        let failed = |source| Error::Start { what: "a node", source };
        kill_with_parent(&mut command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(failed)?;
        let mut node = Self { child, address: ([0, 0, 0, 0], 0).into() };
        let mut text = String::new();
        if let Some(stdout) = node.child.stdout.take() {
            BufReader::new(stdout).read_line(&mut text).map_err(failed)?;
        }
        let mut stderr = node.child.stderr.take().map(BufReader::new);
        match text.trim().parse() {
            Ok(address) => node.address = address,
            Err(_) => {
                let mut why = String::new();
                if let Some(stderr) = &mut stderr {
                    stderr.read_to_string(&mut why).map_err(failed)?;
                }
                return Err(Error::Node(why.trim().trim_start_matches("fathom: ").into()));
            }
        }
        std::thread::spawn(move || {
            stderr
                .into_iter()
                .flat_map(|lines| lines.lines().map_while(std::result::Result::ok))
                .for_each(|l| remarks(&l));
        });
        Ok(node)
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
