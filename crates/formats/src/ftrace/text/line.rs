//! One line of a trace as text: thread, CPU, time, event, and the rest.
//!
//! tracefs writes `TASK-PID (TGID) [CPU] FLAGS TIME: EVENT: …`, trace-cmd the same without flags and with the instance before it,
//! perf `TASK PID [CPU] TIME: COUNT SYSTEM:EVENT: …`. A name may contain anything, including spaces, dashes and brackets; so the CPU
//! is the first bracket that follows a number and contains one.

/// The part of a line before the event's own text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The thread's name.
    pub task: &'a str,
    /// Thread.
    pub tid: u32,
    /// Process, if the line has it.
    pub tgid: Option<u32>,
    /// CPU.
    pub cpu: u16,
    /// Time in ns.
    pub time_ns: u64,
    /// Whether the time was written in seconds; otherwise it is a bare number.
    pub seconds: bool,
    /// The event, without its system.
    pub event: &'a str,
    /// Its text.
    pub rest: &'a str,
}

impl<'a> Line<'a> {
    /// Parses a line; `None` if it is not an event.
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut from = 0;
        while let Some(open) = line[from..].find('[').map(|at| from + at) {
            from = open + 1;
            let Some(close) = line[from..].find(']').map(|at| from + at) else { break };
            let Some(cpu) = parse_number(&line[from..close]) else { continue };
            let Some((task, tid, tgid)) = parse_task(line[..open].trim()) else { continue };
            let Some((time_ns, seconds, event, rest)) = parse_event(&line[close + 1..]) else { continue };
            return Some(Self { task, tid, tgid, cpu: u16::try_from(cpu).ok()?, time_ns, seconds, event, rest });
        }
        None
    }
}

/// Digits only.
fn parse_number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// `TASK-PID`, `TASK-PID (TGID)`, `TASK PID`, `TASK PID/TID`.
fn parse_task(text: &str) -> Option<(&str, u32, Option<u32>)> {
    let (text, tgid) = match text.strip_suffix(')').and_then(|t| t.rsplit_once('(')) {
        Some((before, inside)) => match (parse_number(inside.trim()), inside.trim_matches('-').is_empty()) {
            (Some(tgid), _) => (before.trim_end(), Some(tgid)),
            (None, true) => (before.trim_end(), None),
            _ => (text, None),
        },
        None => (text, None),
    };
    let split = text.rfind(['-', ' ', '\t', '/'])?;
    let tid = parse_number(&text[split + 1..])?;
    let before = text[..split].trim();
    if text.as_bytes()[split] == b'/' {
        let (task, pid) = before.rsplit_once([' ', '\t'])?;
        return Some((task.trim(), tid, Some(parse_number(pid)?)));
    }
    Some((before, tid, tgid))
}

/// `FLAGS TIME: COUNT SYSTEM:EVENT: …`.
fn parse_event(text: &str) -> Option<(u64, bool, &str, &str)> {
    let mut rest = text.trim_start();
    let (mut time, mut flags) = (None, 0);
    while time.is_none() {
        let (word, after) = rest.split_once([' ', '\t'])?;
        time = word.strip_suffix(':').and_then(parse_time);
        flags += 1;
        if time.is_none() && (flags > 2 || word.ends_with(':')) {
            return None;
        }
        rest = after.trim_start();
    }
    let (time_ns, seconds) = time?;
    let (mut word, mut after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    if parse_number(word).is_some() {
        (word, after) = after.trim_start().split_once([' ', '\t']).unwrap_or((after.trim_start(), ""));
    }
    let event = word.strip_suffix(':')?;
    let event = event.rsplit(':').next().filter(|e| !e.is_empty())?;
    Some((time_ns, seconds, event, after.trim()))
}

/// `SECONDS.FRACTION`, or a bare number.
fn parse_time(word: &str) -> Option<(u64, bool)> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match word.split_once('.') {
        Some((seconds, fraction)) if digits(seconds) && digits(fraction) && fraction.len() <= 9 => {
            let scale = 10_u64.pow(9 - fraction.len() as u32);
            let whole = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
            Some((whole.checked_add(fraction.parse::<u64>().ok()? * scale)?, true))
        }
        None if digits(word) => Some((word.parse().ok()?, false)),
        _ => None,
    }
}

/// Events that a line reports as missing: the CPU, and the number if the line has it.
pub fn parse_lost_events(line: &str) -> Option<(u16, Option<u64>)> {
    let (cpu, rest) = line.trim().strip_prefix("CPU:")?.split_once(' ')?;
    let inside = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    let cpu = u16::try_from(parse_number(cpu)?).ok()?;
    let count = inside.split(' ').find_map(|word| parse_number(word).map(u64::from));
    // tracefs: LOST n EVENTS; trace-cmd: EVENTS DROPPED, or n EVENTS DROPPED.
    (inside.contains("LOST") || inside.contains("DROPPED")).then_some((cpu, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_each_tool_are_parsed() {
        for (text, task, tid, tgid, cpu, ns, event, rest) in [
            (
                "          python3-323     [001] d..2.  123.456789: block_getrq: 254,0 WS 8 + 8 [python3]",
                "python3",
                323,
                None,
                1,
                123_456_789_000,
                "block_getrq",
                "254,0 WS 8 + 8 [python3]",
            ),
            (
                "  <...>-44    (-------) [000] .....    1.000001: sys_exit: NR 1 = 1",
                "<...>",
                44,
                None,
                0,
                1_000_001_000,
                "sys_exit",
                "NR 1 = 1",
            ),
            (
                " a-b c-44    (   40) [000] .....    1.000001: sys_exit: NR 1 = 1",
                "a-b c",
                44,
                Some(40),
                0,
                1_000_001_000,
                "sys_exit",
                "NR 1 = 1",
            ),
            (
                "box:  kworker/u8:2-35    [001]535000193623: sched_switch:         x:1 [120] R ==> y:2 [120]",
                "box:  kworker/u8:2",
                35,
                None,
                1,
                535_000_193_623,
                "sched_switch",
                "x:1 [120] R ==> y:2 [120]",
            ),
            (
                "  kworker/0:1-35    [003]   53.000193623: print:   tracing_mark_write: E",
                "kworker/0:1",
                35,
                None,
                3,
                53_000_193_623,
                "print",
                "tracing_mark_write: E",
            ),
            (
                "fio job 1234/1240 [000]   534.685779:          1     block:block_rq_issue: 8,0 R 512 () 1 + 1 [fio]",
                "fio job",
                1240,
                Some(1234),
                0,
                534_685_779_000,
                "block_rq_issue",
                "8,0 R 512 () 1 + 1 [fio]",
            ),
            ("x [1]y 7 [000]   1.5: s:e: ", "x [1]y", 7, None, 0, 1_500_000_000, "e", ""),
        ] {
            let seconds = ns % 1000 == 0 || text.contains('.');
            let expected = Line { task, tid, tgid, cpu, time_ns: ns, seconds, event, rest };
            assert_eq!(Line::parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_lines_are_not_events() {
        for text in [
            "",
            "# tracer: nop",
            "cpus=2",
            "[001]",
            "x-1 [001]",
            "x-1 [001] 5.0",
            "x-1 [001] 5.0: event",
            "x [001] 5.0: e: ",
            "x-1 [1] 5.0000000000: e: x",
            " => schedule",
            "x-1 [99999] 5.0: e: ",
            "x-1 [1] 99999999999999999999.0: e: ",
        ] {
            assert_eq!(Line::parse(text), None, "{text}");
        }
    }

    #[test]
    fn lines_about_lost_events_are_understood() {
        assert_eq!(parse_lost_events("CPU:1 [LOST 123 EVENTS]"), Some((1, Some(123))));
        assert_eq!(parse_lost_events("CPU:0 [EVENTS DROPPED]"), Some((0, None)));
        assert_eq!(parse_lost_events(" CPU:3 [7 EVENTS DROPPED]"), Some((3, Some(7))));
        assert_eq!(parse_lost_events("CPU:3 [x]"), None);
    }
}
