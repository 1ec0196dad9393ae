//! The output of a shell command on a device, as a stream: for fetching existing data, where no program of ours has to run.
//! It only needs sh, and the commands it calls.

use super::patience::{NoAnswer, TransferCount, receive};
use super::pipe::{Ending, Life, LossCause, Pipe};
use super::read::read_some;
use super::{DeviceAddress, Unreachable, transport};
use model::Context;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// For the words of a command.
pub use child::quoted;

/// How long to wait for a command to exit after its output is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum error output that is kept, bytes.
const ERROR_BYTES_MAX: u64 = 1 << 16;

/// The maximum number of pieces that are read ahead, and their size, bytes.
const PIECES_MAX: usize = 4;
const PIECE_BYTES: usize = 1 << 16;
/// How long the command may be silent while its output is waited for: it may have to read much before it prints anything.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);

/// A shell command running on a device.
pub struct Output {
    place: DeviceAddress,
    pieces: Option<Receiver<io::Result<Vec<u8>>>>,
    piece: io::Cursor<Vec<u8>>,
    complaints: Option<JoinHandle<Vec<u8>>>,
    life: Box<dyn Life>,
}

/// Looks up the device; an Android device is then identified by its serial number.
///
/// # Errors
/// It is not available, or may not be used.
pub fn look_up(place: &DeviceAddress) -> Result<DeviceAddress, Unreachable> {
    transport::look_up(place, &Context::silent())
}

/// Starts a shell command there, without input.
///
/// # Errors
/// It cannot be started.
pub fn stream(place: &DeviceAddress, line: &str) -> Result<Output, Unreachable> {
    let Pipe { to, mut from, mut complaints, life } = transport::open(place, line, &Context::silent())?;
    drop(to);
    let reader = std::thread::spawn(move || {
        let mut messages = Vec::new();
        let _ = complaints.by_ref().take(ERROR_BYTES_MAX).read_to_end(&mut messages);
        // Read to the end: a full pipe would keep the process from exiting.
        let _ = io::copy(&mut complaints, &mut io::sink());
        messages
    });
    // Read in another thread, so that a command that prints nothing can be given up.
    let (sender, pieces) = sync_channel(PIECES_MAX);
    std::thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let got = read_some(&mut from, &mut piece).map(|got| {
                piece.truncate(got);
                piece
            });
            let is_end = got.as_ref().map_or(true, Vec::is_empty);
            if sender.send(got).is_err() || is_end {
                return;
            }
        }
    });
    Ok(Output {
        place: place.clone(),
        pieces: Some(pieces),
        piece: io::Cursor::default(),
        complaints: Some(reader),
        life,
    })
}

impl Read for Output {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let got = self.piece.read(bytes)?;
        let Some(pieces) = self.pieces.as_ref().filter(|_| got == 0 && !bytes.is_empty()) else { return Ok(got) };
        let what = format!("{} to send its output", self.place);
        match receive(pieces, SILENCE_TIMEOUT, &TransferCount::default(), &Context::silent(), &what) {
            Ok(piece) => self.piece = io::Cursor::new(piece?),
            // The reading thread ended with the output.
            Err(NoAnswer::Gone) => return Ok(0),
            Err(why) => return Err(io::Error::new(io::ErrorKind::TimedOut, why.into_unreachable(&self.place, &what))),
        }
        self.piece.read(bytes)
    }
}

impl Output {
    /// Waits for its exit; nothing more is read.
    ///
    /// # Errors
    /// It failed, or the connection to it broke.
    pub fn finish(mut self) -> Result<(), Unreachable> {
        // A process that still writes finds the pipe closed.
        self.pieces = None;
        let ending = self.life.wait(EXIT_TIMEOUT).unwrap_or_else(|| {
            self.life.kill();
            Ending::Lost(LossCause::Other("it does not end".into()))
        });
        let messages = self.complaints.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let why = match ending {
            Ending::Exit(0) => return Ok(()),
            Ending::Exit(status) => LossCause::Status(status),
            Ending::Lost(why) => why,
        };
        Err(Unreachable::new(&self.place, transport::explain(&String::from_utf8_lossy(&messages), &why)))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.complaints.is_some() {
            self.life.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_to_its_end_and_failure_says_why() {
        let mut output = stream(&DeviceAddress::Local, "printf 'a\\nb\\n'; echo told >&2").unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), output.finish()), ("a\nb\n", Ok(())));
        let mut output = stream(&DeviceAddress::Local, "echo 'tar: no such thing' >&2; exit 3").unwrap();
        output.read_to_string(&mut text).unwrap();
        let error = output.finish().unwrap_err();
        assert!(error.why.contains("no such thing"), "{error}");
    }

    #[test]
    fn stream_that_is_not_read_is_ended() {
        drop(stream(&DeviceAddress::Local, "yes").unwrap());
    }

    #[test]
    fn word_with_quotes_reaches_the_shell_as_it_is() {
        let word = "a'b \"$(x)\" \\ ;";
        let mut text = String::new();
        let mut output = stream(&DeviceAddress::Local, &format!("printf %s {}", quoted(word))).unwrap();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, word);
    }
}
