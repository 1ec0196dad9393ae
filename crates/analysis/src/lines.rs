//! Lines for a terminal: `show`, `diff` and `explain` print no line wider than 100 columns, whatever names a traced program uses.

/// Maximum width of a line, in columns.
pub const LINE_COLUMNS_MAX: usize = 100;

/// Adds a line, truncated at the width: only names from outside can be so long.
pub fn line(out: &mut String, text: &str) {
    let text = text.trim_end();
    if text.chars().count() <= LINE_COLUMNS_MAX {
        out.push_str(text);
    } else {
        out.extend(text.chars().take(LINE_COLUMNS_MAX - 1).chain(['…']));
    }
    out.push('\n');
}

/// Adds a text, wrapped: the first line after `head`, the others two columns further in.
pub fn wrapped(out: &mut String, head: &str, text: &str) {
    fold(out, head, head.chars().count() + 2, text);
}

/// Adds a text, wrapped, with every line after `indent`.
pub fn paragraph(out: &mut String, indent: &str, text: &str) {
    fold(out, indent, indent.chars().count(), text);
}

fn fold(out: &mut String, head: &str, hang: usize, text: &str) {
    let (mut now, mut empty) = (head.to_string(), true);
    for word in text.split_whitespace() {
        if !empty && now.chars().count() + 1 + word.chars().count() > LINE_COLUMNS_MAX {
            line(out, &now);
            (now, empty) = (" ".repeat(hang), true);
        }
        now += if empty { "" } else { " " };
        now += word;
        empty = false;
    }
    line(out, &now);
}

/// Capitalises the first letter of a sentence.
pub fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Draws values beside one another as bars of at most `columns` columns, in steps of eighths of the largest value. Of values that share
/// a column the largest is drawn. Only zero is blank.
pub fn bars(values: &[f64], columns: usize) -> String {
    const BAR_EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let columns = columns.min(values.len()).max(1);
    let column = |i: usize| &values[i * values.len() / columns..(i + 1) * values.len() / columns];
    let bar = |i: usize| match column(i).iter().copied().fold(0.0, f64::max) {
        value if value > 0.0 => BAR_EIGHTHS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
        _ => ' ',
    };
    (0..columns).map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_exceeds_the_width_and_no_word_is_lost() {
        let text = "é".repeat(60) + " b " + &"c ".repeat(80);
        for add in [wrapped, paragraph] {
            let mut out = String::new();
            add(&mut out, "  head: ", &text);
            assert!(out.lines().all(|line| line.chars().count() <= LINE_COLUMNS_MAX), "{out}");
            assert_eq!(out.split_whitespace().skip(1).collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        }
        let mut out = String::new();
        line(&mut out, &"x".repeat(LINE_COLUMNS_MAX + 1));
        assert!(out.ends_with("x…\n") && out.chars().count() == LINE_COLUMNS_MAX + 1, "{out}");
    }

    #[test]
    fn following_lines_are_indented() {
        let text = "w".repeat(99) + " next";
        let second = |add: fn(&mut String, &str, &str)| {
            let mut out = String::new();
            add(&mut out, "  ", &text);
            out.lines().last().unwrap().to_owned()
        };
        assert_eq!((second(wrapped), second(paragraph)), ("    next".into(), "  next".into()));
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        assert_eq!(bars(&[0.0, 1.0, 4.0, 8.0], 10), " ▁▄█");
        assert_eq!(bars(&[0.001, 8.0], 10), "▁█");
        // A peak is not averaged away.
        assert_eq!(bars(&[0.0, 0.0, 8.0, 0.0, 0.0, 2.0], 3), " █▂");
        assert_eq!([bars(&[], 10), bars(&[0.0], 10)], [" ", " "]);
    }
}
