//! Serves memory over TCP, as a demonstration and for benchmarks of the library itself:
//!
//!     cargo run --release -p nbd --example memory -- 127.0.0.1:10809 512

use nbd::memory::Memory;
use nbd::{Single, Tls};
use std::rc::Rc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_else(|| "127.0.0.1:10809".into());
    let mebibytes: u64 = words.next().unwrap_or_else(|| "512".into()).parse()?;
    let exports = Rc::new(Single { name: "memory".into(), export: Memory::new(mebibytes << 20) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let exports = exports.clone();
            tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &Tls::Off).await });
        }
    })
}
