//! The messages of this program on stderr, as another of its processes quotes them.

/// Precedes each message.
const PROGRAM_NAME: &str = "fathom: ";

/// Returns a line of this program's messages without its name, which the process that quotes it puts before its own message.
pub fn strip_program_name(line: &str) -> &str {
    line.strip_prefix(PROGRAM_NAME).unwrap_or(line)
}

/// Splits what a process of this program printed into the output of what it ran and its own last message, which follows it.
pub fn split_own_message(printed: &str) -> (&str, &str) {
    printed.rsplit_once(PROGRAM_NAME).unwrap_or(("", printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_removed_where_it_begins_a_line() {
        assert_eq!(strip_program_name("fathom: no BTF"), "no BTF");
        assert_eq!(strip_program_name("ls: fathom: x"), "ls: fathom: x");
        assert_eq!(split_own_message("ls: no x\nfathom: ls x: exit status 2"), ("ls: no x\n", "ls x: exit status 2"));
        assert_eq!(split_own_message("no x"), ("", "no x"));
    }
}
