//! Output of an NBD server's results: a table as text, lines for a design's runner.

use crate::nbd_bench::Figures;
use serde_json::json;

fn by(figures: &Figures) -> String {
    let Figures { compared, failed, .. } = figures;
    format!("every reply matches a request in flight; {compared} verified; {failed} failed")
}

/// The output of a design's replicate.
pub fn lines(figures: &Figures) -> Vec<String> {
    let metric = |metric, unit, v: f64| json!({"metric": metric, "unit": unit, "v": v});
    let mut lines = vec![
        metric("rate", "1/s", figures.ops_per_s),
        metric("latency.p50", "ns", figures.latency_ns.p50),
        metric("latency.p99", "ns", figures.latency_ns.p99),
        metric("requests_per_write", "request", figures.requests_per_write),
        metric("replies_per_read", "reply", figures.replies_per_read),
        metric("client.cpu", "ns", figures.client_ns),
    ];
    if let Some(server_ns) = figures.server_ns {
        lines.push(metric("server.cpu", "ns", server_ns));
        lines.push(metric("server.rate", "1/s", 1e9 / server_ns));
        lines.push(metric("server.busy", "ratio", server_ns * figures.ops_per_s / 1e9));
    }
    lines.push(json!({"verified": figures.failed == 0, "by": by(figures)}));
    lines.iter().map(ToString::to_string).collect()
}

pub fn table(figures: &Figures) -> String {
    let busy = |ns: f64| format!("{ns:.0} ns ({:.0} % of a CPU)", ns * figures.ops_per_s / 1e7);
    let mut rows = vec![
        ("requests/s", format!("{:.0}", figures.ops_per_s)),
        ("p50, p99", format!("{:.3} us, {:.3} us", figures.latency_ns.p50 / 1e3, figures.latency_ns.p99 / 1e3)),
        ("requests per write", format!("{:.1}", figures.requests_per_write)),
        ("replies per read", format!("{:.1}", figures.replies_per_read)),
        ("client CPU per request", busy(figures.client_ns)),
    ];
    rows.extend(figures.server_ns.map(|ns| ("server CPU per request", busy(ns))));
    let rows: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<24}{value}")).collect();
    format!("{}\n{}", rows.join("\n"), by(figures))
}
