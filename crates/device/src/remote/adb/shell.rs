//! A command in a device's shell, with version 2 of the shell protocol: its input, both outputs, its exit status.

use super::server::{AdbServer, Failure};
use super::wire::{CHUNK_BYTES_MAX, Packet};
use crate::remote::pipe::{Ending, LossCause, Pipe};
use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Starts a shell command on the device.
pub fn open(server: &AdbServer, serial: &str, line: &str) -> Result<Pipe, Failure> {
    let stream = server.open(serial, &format!("shell,v2,raw:{line}"))?;
    let pipes = || -> io::Result<Pipe> {
        let (from, out) = io::pipe()?;
        let (complaints, err) = io::pipe()?;
        let ending = Arc::new((Mutex::new(None), Condvar::new()));
        let listening = stream.try_clone()?;
        std::thread::spawn({
            let ending = ending.clone();
            move || {
                let end = forward_output(listening, out, err);
                if let Ok(mut ending) = ending.0.lock() {
                    *ending = Some(end);
                }
                ending.1.notify_all();
            }
        });
        let to = Input { stream: stream.try_clone()? };
        Ok(Pipe {
            to: Box::new(to),
            from: Box::new(from),
            complaints: Box::new(complaints),
            life: Box::new(RunningCommand { stream, ending }),
        })
    };
    pipes().map_err(|e| Failure::Refused(format!("cannot make pipes: {e}")))
}

/// Forwards the command's output until it exits, or the connection ends. Both outputs stay open as long as this runs.
fn forward_output(mut from: TcpStream, mut out: impl Write, mut err: impl Write) -> Ending {
    loop {
        // A closed pipe is not an error; the command continues.
        match Packet::read(&mut from) {
            Ok(Some(Packet::Stdout(bytes))) => drop(out.write_all(&bytes)),
            Ok(Some(Packet::Stderr(bytes))) => drop(err.write_all(&bytes)),
            Ok(Some(Packet::Exit(status))) => return Ending::Exit(status.into()),
            Ok(Some(_)) => {}
            Ok(None) => return Ending::Lost(LossCause::Connection(None)),
            Err(error) => return Ending::Lost(LossCause::from_error(&error)),
        }
    }
}

struct Input {
    stream: TcpStream,
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(CHUNK_BYTES_MAX)];
        if !part.is_empty() {
            Packet::Stdin(part.to_vec()).write(&mut self.stream)?;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        let _ = Packet::CloseStdin.write(&mut self.stream);
    }
}

struct RunningCommand {
    stream: TcpStream,
    ending: Arc<(Mutex<Option<Ending>>, Condvar)>,
}

impl crate::remote::pipe::Life for RunningCommand {
    fn wait(&mut self, limit: Duration) -> Option<Ending> {
        // The status comes at the end of the stream, which another thread reads.
        let (ending, ended) = &*self.ending;
        let (ending, _) = ended.wait_timeout_while(ending.lock().ok()?, limit, |ending| ending.is_none()).ok()?;
        ending.clone()
    }

    fn kill(&mut self) {
        // adbd kills the command when its connection ends.
        let _ = self.stream.shutdown(Shutdown::Both);
        // If the command's output is not read, the window is closed, and the server would block before it notices the end.
        // Anything it sends into a connection that is shut down resets that connection (Linux, tcp_rcv_state_process).
        let _ = io::copy(&mut &self.stream, &mut io::sink());
    }
}
