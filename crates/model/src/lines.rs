//! Another program's output, which arrives in pieces: passed on in whole lines, so that no character is split.

/// Accepts pieces, and passes on whole lines; when dropped, also an unterminated last line.
pub struct Lines<'a> {
    rest: Vec<u8>,
    on_lines: Box<dyn FnMut(&str) + 'a>,
}

impl std::fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("rest", &self.rest).finish_non_exhaustive()
    }
}

impl<'a> Lines<'a> {
    /// Maximum length of an unterminated line that is kept.
    const LINE_BYTES_MAX: usize = 1 << 20;

    /// Creates it; `say` receives one or more lines at once, including their line ends.
    pub fn new(say: impl FnMut(&str) + 'a) -> Self {
        Self { rest: Vec::new(), on_lines: Box::new(say) }
    }

    /// Adds a piece.
    pub fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|b| *b == b'\n').map(|at| at + 1);
        if let Some(end) = end.or((self.rest.len() > Self::LINE_BYTES_MAX).then_some(self.rest.len())) {
            let whole: Vec<u8> = self.rest.drain(..end).collect();
            (self.on_lines)(&String::from_utf8_lossy(&whole));
        }
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            (self.on_lines)(&String::from_utf8_lossy(&self.rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_output_is_handed_on_in_complete_lines() {
        let text = "{\"a\": \"ü\u{202e}\"}\r\n é\nend";
        for cut in 0..=text.len() {
            let mut said: Vec<String> = Vec::new();
            let mut lines = Lines::new(|text| said.push(text.into()));
            lines.take(&text.as_bytes()[..cut]);
            lines.take(&text.as_bytes()[cut..]);
            drop(lines);
            assert_eq!(said.concat(), text);
            assert!(said[..said.len() - 1].iter().all(|line| line.ends_with('\n')), "{said:?}");
        }
    }
}
