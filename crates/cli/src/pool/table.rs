//! Figures of a pool's bench as a table for people.

use pool::bench::Figures;

/// Of the columns whose headings have no room for them.
pub const UNITS: &str = "window: limit of requests in flight to a node; batch: requests per frame";

/// The same of the paper's cluster, which has no frames and no limit on them.
pub const PAPER_UNITS: &str = "window: mean requests in flight to a node; batch: requests per write";

/// The columns.
pub fn heading() -> String {
    format!(
        "{:<34}{:>10}{:>10}{:>10}{:>8}{:>8}{:>15}{:>12}",
        "", "ops/s", "p50 us", "p99 us", "window", "batch", "packets/s up", "down"
    )
}

/// A row.
pub fn line(name: &str, figures: &Figures) -> String {
    let Figures { ops_per_s, latency_us, window, batch_mean, packets_per_s, failed, .. } = figures;
    let failed = if *failed > 0 { format!("  {failed} failed") } else { String::new() };
    format!(
        "{name:<34}{ops_per_s:>10.0}{:>10.1}{:>10.1}{window:>8.1}{batch_mean:>8.1}{:>15.0}{:>12.0}{failed}",
        latency_us.p50, latency_us.p99, packets_per_s.sent, packets_per_s.received
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::bench::Latency;
    use pool::packets::BothWays;

    /// Numbers are right-aligned with their headings, and headings are separated.
    #[test]
    fn headings_are_aligned_with_numbers() {
        let ways = BothWays { sent: 123_456.0, received: 654_321.0 };
        let figures = Figures {
            ops_per_s: 1_234_567.0,
            latency_us: Latency { p50: 1.0, p99: 2.0 },
            window: 1024.0,
            batch_mean: 12.5,
            packets_per_s: ways,
            packet_bytes_mean: ways,
            failed: 0,
        };
        let (heading, line) = (heading(), line("reads", &figures));
        assert_eq!(heading.len(), line.len(), "{heading}\n{line}");
        assert!(heading.contains(" batch ") && heading.contains(" packets/s up "), "{heading}");
    }
}
