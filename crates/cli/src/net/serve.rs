//! `fathom net serve`.

use crate::args::NetServe;
use anyhow::Result;
use net::serve::Server;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

pub fn run(args: &NetServe) -> Result<ExitCode> {
    if args.at.device.is_some() {
        return crate::device::service("serve", &args.at, args.key.as_deref());
    }
    let key = super::read_key(args.key.as_deref())?;
    let listen = match (&args.listen, &args.interface) {
        (Some(address), _) => *address,
        (None, interface) => SocketAddr::new(net::interface::address(interface.as_deref().unwrap_or("lo"))?, 0),
    };
    if key.is_none() && !listen.ip().is_loopback() {
        eprintln!(
            "fathom: {} is not a loopback address, so a key is required: make one with `fathom pool keygen FILE`, \
             copy it to both ends and give --key FILE (without a key, listen on 127.0.0.1 or ::1)",
            listen
        );
        return Ok(ExitCode::from(2));
    }
    net::local_run::run_local(1, async {
        let server = Server::listen(listen, key, Rc::new(|line| eprintln!("fathom: {line}"))).await?;
        // Alone on stdout, for scripts that asked for port 0.
        println!("{}", server.address());
        if !args.hosted {
            eprintln!("fathom: waiting for runs; Ctrl-C to stop");
        }
        server.serve(args.once).await;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
