//! Connects a terminal in a guest with ours. Input and output pass unchanged: it is the user's own session, as with ssh.

use std::io::{IsTerminal as _, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// The end of a terminal's input: Ctrl-D.
const END_OF_INPUT: u8 = 4;

/// Both terminals, connected; dropping this restores ours.
#[derive(Debug)]
pub struct JoinedTerminals {
    _raw: RawMode,
    printing: JoinHandle<()>,
}

impl JoinedTerminals {
    /// Waits until all output of the ended guest is printed.
    pub fn finish(self) {
        let _ = self.printing.join();
    }
}

/// Connects our terminal with the guest's, until the guest is gone; the guest's output goes to `out`.
pub fn join(terminal: UnixStream, mut out: impl Write + Send + 'static) -> Option<JoinedTerminals> {
    let mut to = terminal.try_clone().ok()?;
    let raw = RawMode::enter();
    // Input before the shell has opened its terminal would be lost: wait for its first output.
    let (spoke, speaks) = std::sync::mpsc::channel();
    // This thread ends with the program: nothing else wakes a thread that waits for a key.
    std::thread::spawn(move || {
        if speaks.recv().is_err() {
            return;
        }
        let mut keys = [0; 1024];
        let mut stdin = std::io::stdin();
        while let Ok(n @ 1..) = stdin.read(&mut keys) {
            if to.write_all(&keys[..n]).is_err() {
                return;
            }
        }
        let _ = to.write_all(&[END_OF_INPUT]);
    });
    let mut from = terminal;
    let printing = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            // The other thread waits only once.
            let _ = spoke.send(());
            let _ = out.write_all(&bytes[..n]).and_then(|()| out.flush());
        }
    });
    Some(JoinedTerminals { _raw: raw, printing })
}

/// Our terminal in raw mode; dropping this restores it.
#[derive(Debug)]
struct RawMode(Option<libc::termios>);

impl RawMode {
    fn enter() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        // SAFETY: the struct is plain data, valid when zeroed, and the calls fill or read it.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(stdin.as_raw_fd(), &raw mut before) != 0 {
                return Self(None);
            }
            let mut raw = before;
            libc::cfmakeraw(&raw mut raw);
            libc::tcsetattr(stdin.as_raw_fd(), libc::TCSANOW, &raw const raw);
            Self(Some(before))
        }
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: the settings read from this terminal are restored to it.
            unsafe { libc::tcsetattr(std::io::stdin().as_raw_fd(), libc::TCSANOW, before) };
        }
    }
}
