//! Writes the synthetic trace of the tests to a file, for viewing in <https://ui.perfetto.dev>: `cargo run -p formats
//! --example synthetic_trace -- FILE.pftrace`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or_else(|| std::io::Error::other("usage: synthetic_trace FILE"))?;
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    formats::perfetto::export(&synthetic::everything().tables(), &mut out).map(drop)
}
