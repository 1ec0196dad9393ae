//! Reads from pipes and sockets. A signal may interrupt any of them (EINTR); that is neither the end nor a failure.

use std::io::{self, Read};

/// Reads some bytes, like [`Read::read`], and again if a signal interrupts it.
pub(super) fn read_some(from: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Reads the head of a message; `None` at the end before it.
///
/// # Errors
/// The connection broke, or ended within the head.
pub(super) fn read_head<const N: usize>(from: &mut impl Read) -> io::Result<Option<[u8; N]>> {
    let mut head = [0; N];
    let got = read_some(from, &mut head)?;
    if got == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[got..])?;
    Ok(Some(head))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every read is interrupted once, and then returns one byte.
    pub struct Interrupted<'a>(pub &'a [u8], pub bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = buffer.len().min(1);
            self.0.read(&mut buffer[..length])
        }
    }

    #[test]
    fn interrupted_read_is_repeated() {
        let mut from = Interrupted(b"abcd", false);
        assert_eq!(read_head::<3>(&mut from).unwrap(), Some(*b"abc"));
        assert_eq!(read_head::<3>(&mut from).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_head::<3>(&mut from).unwrap(), None);
        assert_eq!(read_some(&mut from, &mut [0; 9]).unwrap(), 0);
    }
}
